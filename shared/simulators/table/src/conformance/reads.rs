//! Reads: values, queries and their pages, batches.

use super::Harness;
use super::support::{Checked, PK, at_revision, equal, expect_error, fail, holds, item, key, ok, put, write};
use tenon_table::limits;
use tenon_table::number::Number;
use tenon_table::port::{Consistency, Query, QueryOrder, SkRange, Table, TableError, query_all};
use tenon_table::value::{Item, Value};

pub(super) async fn numbers_are_exact<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    for text in [
        "0",
        "-1",
        "18446744073709551615",
        "0.153",
        "1e125",
        "-1e-130",
        "12345678901234567890123456789012345678",
    ] {
        let number = ok("the number", Number::parse(text))?;
        let expected = item([("n", Value::N(number))]);
        write(&table, vec![put("A", expected.clone())]).await?;
        holds(&table, "A", Some(expected)).await?;
    }
    Ok(())
}

pub(super) async fn every_type_of_value_comes_back<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let expected = item([
        ("text", Value::text("grün")),
        ("empty", Value::text("")),
        ("truth", Value::Bool(true)),
        ("bytes", Value::B(vec![0, 255, 7])),
        ("null", Value::Null),
        ("list", Value::L(vec![Value::Null, Value::number(1_u64), Value::L(vec![])])),
        ("map", Value::M(item([("key with spaces", Value::M(item([])))]))),
    ]);
    write(&table, vec![put("A", expected.clone())]).await?;
    holds(&table, "A", Some(expected)).await
}

async fn check_query<T: Table>(table: &T, query: &Query, expected: &[&str]) -> Checked {
    let found = ok("a query", query_all(table, query).await)?;
    let found: Vec<&str> = found.iter().map(|(key, _)| key.sk.as_str()).collect();
    equal(&format!("{:?} {:?}", query.range, query.order), &found.as_slice(), &expected)
}

fn strong(range: SkRange) -> Query {
    Query::new(PK, range, Consistency::Strong)
}

async fn five<H: Harness>(harness: &H) -> Result<H::Table, super::CaseFailure> {
    let table = harness.fresh().await;
    let names = ["ACTION#3", "ACTION#1", "B", "ACTION#2", "ACTION"];
    write(&table, names.iter().map(|name| put(name, at_revision(1))).collect()).await?;
    Ok(table)
}

pub(super) async fn a_query_reads_a_range_in_order<H: Harness>(harness: &H) -> Checked {
    let table = five(harness).await?;
    let prefix = || "ACTION#".to_owned();
    let after = |after: &str| SkRange::After { prefix: prefix(), after: after.to_owned() };
    let between = |a: &str, b: &str| SkRange::Between(a.to_owned(), b.to_owned());
    let cases: [(SkRange, &[&str]); 9] = [
        (SkRange::All, &["ACTION", "ACTION#1", "ACTION#2", "ACTION#3", "B"]),
        (SkRange::Prefix(prefix()), &["ACTION#1", "ACTION#2", "ACTION#3"]),
        (SkRange::Prefix("C".to_owned()), &[]),
        (after("ACTION#1"), &["ACTION#2", "ACTION#3"]),
        (after("ACTION#15"), &["ACTION#2", "ACTION#3"]),
        (after("ACTION#"), &["ACTION#1", "ACTION#2", "ACTION#3"]),
        (after("ACTION#3"), &[]),
        (between("ACTION#1", "ACTION#2"), &["ACTION#1", "ACTION#2"]),
        (between("B", "B"), &["B"]),
    ];
    for (range, expected) in cases {
        let mut reversed: Vec<&str> = expected.to_vec();
        reversed.reverse();
        for limit in [None, Some(1), Some(2)] {
            let query = Query { limit, ..strong(range.clone()) };
            check_query(&table, &query, expected).await?;
            check_query(&table, &Query { order: QueryOrder::Descending, ..query }, &reversed).await?;
        }
    }
    check_query(&table, &Query::new("CLUSTER#other", SkRange::All, Consistency::Strong), &[]).await
}

/// Not in that of their UTF-16 units, by which U+1F600 comes before U+E000.
pub(super) async fn keys_are_in_the_order_of_their_bytes<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let names =
        ["a", "a\0", "a\0b", "a\u{7f}", "aé", "a\u{e000}", "a\u{ffff}", "a\u{1f600}", "a\u{10ffff}", "b"];
    write(&table, names.iter().rev().map(|name| put(name, item([]))).collect()).await?;
    check_query(&table, &strong(SkRange::All), &names).await?;
    for limit in [None, Some(1)] {
        for (n, name) in names.iter().enumerate().take(names.len() - 1) {
            let range = SkRange::After { prefix: "a".to_owned(), after: (*name).to_owned() };
            let query = Query { limit, ..strong(range) };
            let mut expected: Vec<&str> = names.iter().take(names.len() - 1).skip(n + 1).copied().collect();
            check_query(&table, &query, &expected).await?;
            expected.reverse();
            check_query(&table, &Query { order: QueryOrder::Descending, ..query }, &expected).await?;
        }
    }
    Ok(())
}

pub(super) async fn a_limit_makes_pages_that_lead_on<H: Harness>(harness: &H) -> Checked {
    let table = five(harness).await?;
    let query = Query { limit: Some(5), ..strong(SkRange::All) };
    let page = ok("a query", table.query(&query).await)?;
    equal("the items of a full page", &page.items.len(), &5)?;
    let Some(next) = page.next else {
        return fail("a page that is full has no `next`, though the table can't know that nothing follows");
    };
    let page = ok("a query", table.query(&Query { start_after: Some(next), ..query }).await)?;
    equal("the page after the last", &(page.items.len(), page.next), &(0, None))?;
    // The same, with a range after which nothing follows.
    let between = strong(SkRange::Between("ACTION".to_owned(), "ACTION#1".to_owned()));
    for (order, end) in [(QueryOrder::Ascending, "ACTION#1"), (QueryOrder::Descending, "ACTION")] {
        let query = Query { limit: Some(2), order, ..between.clone() };
        let page = ok("a query", table.query(&query).await)?;
        equal("a full page at a bound", &(page.items.len(), page.next.as_deref()), &(2, Some(end)))?;
        let page = ok("a query", table.query(&Query { start_after: page.next, ..query }).await)?;
        equal("the page after a bound", &(page.items.len(), page.next), &(0, None))?;
    }
    Ok(())
}

pub(super) async fn a_page_holds_a_megabyte<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let large = || item([("data", Value::B(vec![7; 300 * 1024]))]);
    let names = ["L1", "L2", "L3", "L4", "L5"];
    for name in names {
        write(&table, vec![put(name, large())]).await?;
        if harness.can(super::Capability::AdvanceTime) == super::Can::Yes {
            harness.advance(jiff::SignedDuration::from_secs(1)).await;
        }
    }
    let query = strong(SkRange::All);
    let page = ok("a query", table.query(&query).await)?;
    let (count, next) = (page.items.len(), page.next);
    if !(3..=4).contains(&count) || next.is_none() {
        return fail(format!("a page of 1 MB holds {count} items of 300 KB and leads on to {next:?}"));
    }
    check_query(&table, &query, &names).await
}

pub(super) async fn a_batch_reads_what_exists<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    write(&table, vec![put("A", at_revision(1)), put("B", at_revision(2))]).await?;
    let keys = [key("B"), key("missing"), key("A")];
    let found = ok("a batch", table.batch_get(&keys, Consistency::Strong).await)?;
    let expected: std::collections::BTreeMap<_, Item> =
        [(key("A"), at_revision(1)), (key("B"), at_revision(2))].into();
    equal("the batch", &found, &expected)?;
    let many: Vec<_> = (0..100).map(|n| key(&n.to_string())).collect();
    ok("a batch of 100", table.batch_get(&many, Consistency::Eventual).await).map(|_| ())
}

pub(super) async fn bad_questions_are_refused<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let many: Vec<_> = (0..101).map(|n| key(&n.to_string())).collect();
    for (what, keys) in [("no keys", vec![]), ("101 keys", many), ("a key twice", vec![key("A"), key("A")])] {
        let refused = table.batch_get(&keys, Consistency::Strong).await;
        expect_error!(what, refused, TableError::Invalid { .. })?;
    }
    expect_error!(
        "an empty key",
        table.get(&key(""), Consistency::Strong).await,
        TableError::Invalid { .. }
    )?;
    let text = |text: &str| text.to_owned();
    let start = |range, start: &str| Query { start_after: Some(text(start)), ..strong(range) };
    let queries = [
        Query { limit: Some(0), ..strong(SkRange::All) },
        strong(SkRange::Between(text("B"), text("A"))),
        strong(SkRange::Prefix(text(""))),
        strong(SkRange::After { prefix: text("A#"), after: text("B#1") }),
        start(SkRange::All, ""),
        start(SkRange::All, &"s".repeat(limits::SK_BYTES + 1)),
        start(SkRange::Prefix(text("A#")), "B"),
        start(SkRange::Between(text("A"), text("B")), "C"),
    ];
    for query in queries {
        let refused = table.query(&query).await;
        expect_error!(format!("{query:?}"), refused, TableError::Invalid { .. })?;
    }
    Ok(())
}
