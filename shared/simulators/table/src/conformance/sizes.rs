//! Size limits, at their boundaries.

use super::support::{
    Checked, at_revision, commit, equal, expect_error, fail, holds, item, key, ok, put, write,
};
use super::{Can, Capability, Harness};
use jiff::SignedDuration;
use tenon_table::commit::{CommitError, Expect, Write};
use tenon_table::key::Key;
use tenon_table::limits;
use tenon_table::number::Number;
use tenon_table::port::{Consistency, Table, TableError};
use tenon_table::value::{Item, Value, item_size};

/// An item of exactly so many bytes.
fn of_size(key: &Key, bytes: u64) -> Item {
    let sized = |length| item([("data", Value::B(vec![1; length]))]);
    let rest = bytes.saturating_sub(item_size(key, &sized(0)));
    sized(usize::try_from(rest).unwrap_or(0))
}

/// Lets throughput recover from large writes where time can pass.
async fn rest<H: Harness>(harness: &H) {
    if harness.can(Capability::AdvanceTime) == Can::Yes {
        harness.advance(SignedDuration::from_secs(20)).await;
    }
}

pub(super) async fn an_item_holds_400_kilobytes<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let fitting = of_size(&key("A"), limits::ITEM_BYTES);
    write(&table, vec![put("A", fitting.clone())]).await?;
    rest(harness).await;
    let large = put("A", of_size(&key("A"), limits::ITEM_BYTES + 1));
    let refused = table.commit(&commit("t", vec![], vec![large])?).await;
    expect_error!("an item of a byte more", refused, CommitError::ItemTooLarge { .. })?;
    holds(&table, "A", Some(fitting)).await
}

/// The largest item with each kind of value is accepted, one byte more isn't.
pub(super) async fn an_item_is_measured_to_the_byte<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let number = |text| ok("the number", Number::parse(text)).map(Value::N);
    let mut values = vec![Value::text("grün"), Value::Null, Value::Bool(true), Value::B(vec![0; 3])];
    for text in
        ["0", "7", "120", "1200", "0.05", "1.2", "-1", "-123", "1e125", "-1e-130", "18446744073709551615"]
    {
        values.push(number(text)?);
    }
    let map = item([("ab", Value::Null), ("c", Value::M(item([])))]);
    values.push(Value::L(vec![Value::L(vec![]), number("-2")?, Value::M(map)]));
    for value in values {
        let sized = |length| item([("value", value.clone()), ("data", Value::B(vec![1; length]))]);
        let rest_bytes = limits::ITEM_BYTES.saturating_sub(item_size(&key("A"), &sized(0)));
        let fitting = usize::try_from(rest_bytes).unwrap_or(0);
        ok(&format!("{value:?}"), table.commit(&commit("t", vec![], vec![put("A", sized(fitting))])?).await)?;
        rest(harness).await;
        // Without the value it is small enough to be sent: the table itself has to measure it.
        let larger = item([("data", Value::B(vec![1; fitting + 1]))]);
        let set = Write::Set { key: key("A"), set: larger, remove: vec![] };
        let refused = table.commit(&commit("t", vec![], vec![set])?).await;
        expect_error!(format!("{value:?} and a byte more"), refused, CommitError::ItemTooLarge { .. })?;
        rest(harness).await;
    }
    Ok(())
}

pub(super) async fn a_set_cannot_outgrow_an_item<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let fitting = of_size(&key("A"), limits::ITEM_BYTES);
    write(&table, vec![put("A", fitting.clone())]).await?;
    rest(harness).await;
    let set = || Write::Set { key: key("A"), set: at_revision(1), remove: vec![] };
    let refused = table.commit(&commit("t", vec![], vec![set()])?).await;
    expect_error!("a set alone", refused, CommitError::ItemTooLarge { .. })?;
    rest(harness).await;
    let refused = table.commit(&commit("u", vec![], vec![set(), put("B", at_revision(1))])?).await;
    expect_error!("a set in a transaction", refused, CommitError::ItemTooLarge { .. })?;
    holds(&table, "B", None).await?;
    holds(&table, "A", Some(fitting)).await
}

pub(super) async fn a_transaction_holds_100_actions<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let puts = |count: usize| (0..count).map(|n| put(&format!("N{n}"), at_revision(1))).collect::<Vec<_>>();
    let refused = table.commit(&commit("t", vec![], puts(101))?).await;
    expect_error!("101 actions", refused, CommitError::TooLarge { actions: 101, .. })?;
    holds(&table, "N0", None).await?;
    ok("100 actions", table.commit(&commit("u", vec![], puts(100))?).await)?;
    holds(&table, "N99", Some(at_revision(1))).await
}

pub(super) async fn a_transaction_holds_4_megabytes<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let puts = |last: u64| {
        let sizes = [limits::ITEM_BYTES; 10].into_iter().chain([last]).enumerate();
        sizes
            .map(|(n, bytes)| (format!("N{n:02}"), bytes))
            .map(|(n, b)| put(&n, of_size(&key(&n), b)))
            .collect()
    };
    let rest_bytes = limits::TRANSACTION_BYTES - 10 * limits::ITEM_BYTES;
    let refused = table.commit(&commit("t", vec![], puts(rest_bytes + 1))?).await;
    expect_error!("a byte more than 4 MB", refused, CommitError::TooLarge { .. })?;
    holds(&table, "N00", None).await?;
    ok("4 MB", table.commit(&commit("u", vec![], puts(rest_bytes))?).await)
}

pub(super) async fn a_batch_holds_16_megabytes<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let fitting = usize::try_from(limits::BATCH_BYTES / limits::ITEM_BYTES).unwrap_or(usize::MAX);
    let keys: Vec<Key> = (0..=fitting).map(|n| key(&format!("N{n:02}"))).collect();
    for key in &keys {
        write(&table, vec![put(&key.sk, of_size(key, limits::ITEM_BYTES))]).await?;
        rest(harness).await;
    }
    let refused = table.batch_get(&keys, Consistency::Strong).await.map(|items| items.len());
    expect_error!("a batch of an item too many", refused, TableError::AnswerTooLarge { .. })?;
    rest(harness).await;
    let whole = ok(
        "a batch that fits",
        table.batch_get(keys.get(1..).unwrap_or_default(), Consistency::Strong).await,
    )?;
    equal("its items", &whole.len(), &fitting)
}

pub(super) async fn names_are_bounded<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let named = |length: usize| item([(&*"n".repeat(length), Value::Null)]);
    let nested = |length: usize| item([("list", Value::L(vec![Value::M(named(length))]))]);
    for item in [named(limits::NAME_BYTES), nested(limits::NAME_BYTES)] {
        write(&table, vec![put("A", item.clone())]).await?;
        rest(harness).await;
        holds(&table, "A", Some(item)).await?;
    }
    for length in [0, limits::NAME_BYTES + 1] {
        for item in [named(length), nested(length)] {
            let refused = table.commit(&commit("t", vec![], vec![put("A", item)])?).await;
            expect_error!(format!("a name of {length} bytes"), refused, CommitError::Invalid { .. })?;
        }
    }
    Ok(())
}

pub(super) async fn values_nest_31_levels<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let nested = |levels: usize| {
        let list = |value, _| Value::L(vec![value]);
        item([("deep", (0..levels).fold(Value::text("x"), list))])
    };
    write(&table, vec![put("A", nested(limits::DEPTH))]).await?;
    holds(&table, "A", Some(nested(limits::DEPTH))).await?;
    let refused = table.commit(&commit("t", vec![], vec![put("A", nested(limits::DEPTH + 1))])?).await;
    expect_error!("a level more", refused, CommitError::Invalid { .. })
}

pub(super) async fn a_set_names_300_attributes<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let names = |count: usize| (0..count).map(|n| format!("attribute-{n}"));
    let set = |set: usize, remove: usize| Write::Set {
        key: key("A"),
        set: names(set).map(|name| (name, Value::Null)).collect(),
        remove: names(set + remove).skip(set).collect(),
    };
    let most = limits::UPDATED_ATTRIBUTES;
    let expected = |count: usize| Some(names(count).map(|name| (name, Value::Null)).collect());
    write(&table, vec![set(most, 0)]).await?;
    holds(&table, "A", expected(most)).await?;
    let conditions = || vec![super::support::expect("B", Expect::Absent)];
    ok("in a transaction", table.commit(&commit("t", conditions(), vec![set(1, most - 1)])?).await)?;
    holds(&table, "A", expected(1)).await?;
    for refused in [set(most + 1, 0), set(most, 1)] {
        let refused = table.commit(&commit("u", vec![], vec![refused])?).await;
        expect_error!("an attribute more", refused, CommitError::Invalid { .. })?;
    }
    Ok(())
}

pub(super) async fn keys_are_bounded<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let largest = Key::new("p".repeat(limits::PK_BYTES), "s".repeat(limits::SK_BYTES));
    let write = |key: Key| commit("t", vec![], vec![Write::Put { key, item: at_revision(1) }]);
    ok("the largest key", table.commit(&write(largest)?).await)?;
    let sizes = [(0, 1), (1, 0), (limits::PK_BYTES + 1, 1), (1, limits::SK_BYTES + 1)];
    for (pk, sk) in sizes {
        let refused = table.commit(&write(Key::new("p".repeat(pk), "s".repeat(sk)))?).await;
        if !matches!(refused, Err(CommitError::Invalid { .. })) {
            return fail(format!("a key of {pk} and {sk} bytes: {refused:?}"));
        }
    }
    Ok(())
}
