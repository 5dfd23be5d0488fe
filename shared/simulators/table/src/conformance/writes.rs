//! Commits: writes, the two kinds of condition, tokens, slices.

use super::Harness;
use super::support::{
    Checked, at_once, at_revision, cluster, commit, equal, expect, expect_error, fail, holds, item, key,
    number, ok, put, read, write,
};
use jiff::SignedDuration;
use tenon_table::commit::{Commit, CommitError, CommitToken, Expect, Write, WriteCondition};
use tenon_table::number::Number;
use tenon_table::port::Table;
use tenon_table::slices::{Slices, WriteGroup};
use tenon_table::value::Value;

pub(super) async fn a_put_replaces_the_whole_item<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    write(&table, vec![put("A", item([("old", number(1))])), put("A", item([("new", number(2))]))]).await?;
    holds(&table, "A", Some(item([("new", number(2))]))).await?;
    holds(&table, "B", None).await
}

pub(super) async fn a_set_keeps_attributes_it_does_not_know<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let set = |set, remove: &[&str]| Write::Set {
        key: key("A"),
        set,
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
    };
    write(&table, vec![set(item([("mine", number(1)), ("unknown", Value::text("kept"))]), &[])]).await?;
    write(&table, vec![set(item([("mine", number(2)), ("status", Value::text("new"))]), &[])]).await?;
    write(&table, vec![set(item([]), &["status", "never-there"])]).await?;
    holds(&table, "A", Some(item([("mine", number(2)), ("unknown", Value::text("kept"))]))).await
}

pub(super) async fn an_add_counts_from_nothing<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let add = |amount| Write::Add { key: key("A"), attribute: "count".to_owned(), amount };
    for (token, amount) in [("a", 5), ("b", -7), ("c", 1)] {
        ok("an add", table.commit(&commit(token, vec![], vec![add(amount)])?).await)?;
    }
    let again = commit("c", vec![], vec![add(1)])?;
    ok("an add that is sent again", table.commit(&again).await)?;
    holds(&table, "A", Some(item([("count", Value::number(-1_i64))]))).await?;
    let decimal = |text| ok("the number", Number::parse(text)).map(Value::N);
    for (before, amount, after) in
        [("0.5", -2, "-1.5"), ("1e38", -1, "99999999999999999999999999999999999999")]
    {
        write(&table, vec![put("A", item([("count", decimal(before)?)]))]).await?;
        ok("an add to a decimal", table.commit(&commit(before, vec![], vec![add(amount)])?).await)?;
        holds(&table, "A", Some(item([("count", decimal(after)?)]))).await?;
    }
    write(&table, vec![put("A", item([("count", decimal("1e-38")?)]))]).await?;
    let refused = table.commit(&commit("long", vec![], vec![add(1)])?).await;
    expect_error!("a sum of 39 digits", refused, CommitError::Invalid { .. })?;
    write(&table, vec![put("A", item([("count", Value::text("three"))]))]).await?;
    let refused = table.commit(&commit("d", vec![], vec![add(1)])?).await;
    expect_error!("an add to a text", refused, CommitError::Invalid { .. })
}

pub(super) async fn a_delete_is_no_error_twice<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let delete = || Write::Delete { key: key("A") };
    write(&table, vec![put("A", at_revision(1)), delete(), delete()]).await?;
    holds(&table, "A", None).await
}

pub(super) async fn a_cluster_revision_is_created_and_raised<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    for revision in 0..3 {
        let condition = WriteCondition::Cluster { cluster: cluster()?, revision };
        let step = commit(&format!("t{revision}"), vec![condition], vec![put("A", at_revision(revision))])?;
        ok("a commit under the cluster's revision", table.commit(&step).await)?;
    }
    let found = read(&table, "REVISION").await?;
    let revision = found.as_ref().and_then(|item| item.get("revision"));
    equal("the cluster's revision after three commits", &revision, &Some(&number(3)))
}

pub(super) async fn a_lost_race_for_a_cluster_writes_nothing<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let at = |revision| cluster().map(|cluster| WriteCondition::Cluster { cluster, revision });
    ok("the winner", table.commit(&commit("w", vec![at(0)?], vec![put("A", at_revision(1))])?).await)?;
    for stale in [0, 2] {
        let loser = commit(&format!("l{stale}"), vec![at(stale)?], vec![put("B", at_revision(1))])?;
        match table.commit(&loser).await {
            Err(CommitError::LostRace { lost }) => equal("what was lost", &lost, &vec![at(stale)?])?,
            other => return fail(format!("the loser: {other:?}")),
        }
        holds(&table, "B", None).await?;
    }
    let next = commit("n", vec![at(1)?], vec![put("B", at_revision(1))])?;
    ok("the loser, after it observed again", table.commit(&next).await)
}

pub(super) async fn a_lost_race_names_every_condition<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    write(&table, vec![put("A", at_revision(4)), put("B", at_revision(1))]).await?;
    let stale = expect("A", Expect::Revision(3));
    let absent = expect("B", Expect::Absent);
    let good = expect("C", Expect::Absent);
    let conditions = vec![good, stale.clone(), absent.clone()];
    match table.commit(&commit("t", conditions, vec![put("C", at_revision(1))])?).await {
        Err(CommitError::LostRace { lost }) => equal("what was lost", &lost, &vec![stale, absent])?,
        other => return fail(format!("the loser: {other:?}")),
    }
    holds(&table, "C", None).await
}

pub(super) async fn conditions_merge_with_writes_of_their_item<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let create = commit("c", vec![expect("A", Expect::Absent)], vec![put("A", at_revision(1))])?;
    ok("creating", table.commit(&create).await)?;
    expect_error!("creating again", table.commit(&create).await, CommitError::LostRace { .. })?;
    let writes = || {
        let set = Write::Set { key: key("A"), set: at_revision(2), remove: vec![] };
        vec![set, put("B", at_revision(1))]
    };
    let step = commit("s", vec![expect("A", Expect::Revision(1))], writes())?;
    ok("a step from revision 1", table.commit(&step).await)?;
    let late = commit("l", vec![expect("A", Expect::Revision(1))], writes())?;
    expect_error!("a late step from revision 1", table.commit(&late).await, CommitError::LostRace { .. })?;
    let delete = vec![Write::Delete { key: key("A") }];
    let wrong = commit("x", vec![expect("A", Expect::Revision(1))], delete.clone())?;
    expect_error!("deleting from revision 1", table.commit(&wrong).await, CommitError::LostRace { .. })?;
    let right = commit("y", vec![expect("A", Expect::Revision(2))], delete)?;
    ok("deleting from revision 2", table.commit(&right).await)?;
    holds(&table, "A", None).await
}

pub(super) async fn a_condition_alone_is_checked<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    write(&table, vec![put("A", at_revision(1)), put("PLAIN", item([("x", number(1))]))]).await?;
    let other = || vec![put("B", at_revision(1))];
    let wrong = commit("a", vec![expect("A", Expect::Revision(2))], other())?;
    expect_error!("a wrong revision", table.commit(&wrong).await, CommitError::LostRace { .. })?;
    let none = commit("b", vec![expect("PLAIN", Expect::Revision(0))], other())?;
    expect_error!("an item without a revision", table.commit(&none).await, CommitError::LostRace { .. })?;
    let right = commit("c", vec![expect("A", Expect::Revision(1))], other())?;
    ok("the right revision", table.commit(&right).await)?;
    holds(&table, "A", Some(at_revision(1))).await
}

pub(super) async fn rivals_at_once_have_one_winner<H: Harness>(harness: &H) -> Checked {
    const RIVALS: u64 = 8;
    /// A commit that meets another under way is sent again as it is; the other ends.
    const ATTEMPTS: usize = 20;
    let table = harness.fresh().await;
    let rival = async |n: u64| {
        let condition = WriteCondition::Cluster { cluster: cluster()?, revision: 0 };
        let plan =
            commit(&format!("rival-{n}"), vec![condition], vec![put(&format!("R{n}"), at_revision(n))])?;
        for _ in 0..ATTEMPTS {
            match table.commit(&plan).await {
                Err(CommitError::Conflict { .. }) => {}
                outcome => return Ok(outcome),
            }
        }
        fail(format!("rival {n} meets another commit under way {ATTEMPTS} times"))
    };
    let mut winners = Vec::new();
    for (n, outcome) in (0..).zip(at_once((0..RIVALS).map(rival).collect()).await) {
        match outcome? {
            Ok(()) => winners.push(n),
            Err(CommitError::LostRace { .. }) => {}
            other => return fail(format!("rival {n}: {other:?}")),
        }
    }
    equal("the winners of one race", &winners.len(), &1)?;
    for n in 0..RIVALS {
        holds(&table, &format!("R{n}"), winners.contains(&n).then(|| at_revision(n))).await?;
    }
    let revision = read(&table, "REVISION").await?.and_then(|item| item.get("revision").cloned());
    equal("the revision after one race", &revision, &Some(number(1)))
}

/// Reserved words, paths, and text that looks like a placeholder.
pub(super) async fn a_name_may_be_any_text<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let long = "n".repeat(300);
    let names = ["name", "status", "size", "a.b", "l[0]", "#0", ":0", "two words", "größe", &long];
    for name in names {
        let set = |value| Write::Set { key: key("A"), set: item([(name, number(value))]), remove: vec![] };
        write(&table, vec![put("A", item([(name, number(1))])), set(2)]).await?;
        let add = Write::Add { key: key("A"), attribute: name.to_owned(), amount: 1 };
        let token = CommitToken::of_texts([name]);
        let counted = Commit { token, ..commit("t", vec![], vec![add])? };
        ok(name, table.commit(&counted).await)?;
        holds(&table, "A", Some(item([(name, number(3))]))).await?;
        let remove = Write::Set { key: key("A"), set: item([]), remove: vec![name.to_owned()] };
        write(&table, vec![remove]).await?;
        holds(&table, "A", Some(item([]))).await?;
    }
    Ok(())
}

pub(super) async fn a_token_makes_a_repetition_harmless<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let conditions =
        vec![WriteCondition::Cluster { cluster: cluster()?, revision: 0 }, expect("A", Expect::Absent)];
    let once = commit("t", conditions, vec![put("A", at_revision(1))])?;
    ok("a commit", table.commit(&once).await)?;
    ok("the same commit again", table.commit(&once).await)?;
    let next = WriteCondition::Cluster { cluster: cluster()?, revision: 1 };
    ok("the next", table.commit(&commit("u", vec![next], vec![])?).await)
}

pub(super) async fn a_token_with_other_content_is_refused<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let two = |value| commit("t", vec![], vec![put("A", at_revision(value)), put("B", at_revision(value))]);
    ok("a commit", table.commit(&two(1)?).await)?;
    let other = table.commit(&two(2)?).await;
    expect_error!("another commit with its token", other, CommitError::TokenMismatch { .. })?;
    holds(&table, "A", Some(at_revision(1))).await
}

pub(super) async fn a_token_is_forgotten_after_ten_minutes<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let add = Write::Add { key: key("A"), attribute: "count".to_owned(), amount: 1 };
    let once = commit("t", vec![], vec![add])?;
    ok("a commit", table.commit(&once).await)?;
    harness.advance(SignedDuration::from_mins(9)).await;
    ok("the same within ten minutes", table.commit(&once).await)?;
    holds(&table, "A", Some(item([("count", number(1))]))).await?;
    harness.advance(SignedDuration::from_mins(2)).await;
    ok("the same after ten minutes", table.commit(&once).await)?;
    holds(&table, "A", Some(item([("count", number(2))]))).await
}

pub(super) async fn contradictions_are_refused<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let at = WriteCondition::Cluster { cluster: cluster()?, revision: 0 };
    let set = |set, remove: &[&str]| Write::Set {
        key: key("A"),
        set,
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
    };
    let one = || at_revision(1);
    let absent = || expect("A", Expect::Absent);
    let cases = [
        ("nothing", vec![], vec![]),
        ("two writes to one item", vec![], vec![put("A", one()), Write::Delete { key: key("A") }]),
        ("two conditions on one item", vec![absent(), absent()], vec![put("B", one())]),
        ("a write to the cluster's revision", vec![at], vec![put("REVISION", one())]),
        ("a set of nothing", vec![], vec![set(item([]), &[])]),
        ("an attribute set and removed", vec![], vec![set(one(), &["revision"])]),
        ("a key's attribute", vec![], vec![put("A", item([("pk", Value::text("x"))]))]),
        ("a delete of what is absent", vec![absent()], vec![Write::Delete { key: key("A") }]),
    ];
    for (what, conditions, writes) in cases {
        let refused = table.commit(&commit("t", conditions, writes)?).await;
        expect_error!(what, refused, CommitError::Invalid { .. })?;
    }
    holds(&table, "A", None).await
}

pub(super) async fn slices_stop_at_a_lost_race_and_keep_what_is_committed<H: Harness>(
    harness: &H,
) -> Checked {
    let table = harness.fresh().await;
    let group = |n: usize| WriteGroup {
        conditions: vec![],
        writes: (0..60).map(|m| put(&format!("G{n}#{m}"), at_revision(1))).collect(),
    };
    let token = ok("the token", CommitToken::parse("plan"))?;
    let cut = |revision| {
        cluster().and_then(|c| ok("cutting", Slices::cut(&token, &c, revision, (0..3).map(group).collect())))
    };
    let slices = cut(0)?;
    equal("the number of slices", &slices.commits().len(), &3)?;
    for first in slices.commits().iter().take(1) {
        ok("the first slice", table.commit(first).await)?;
    }
    let rival = WriteCondition::Cluster { cluster: cluster()?, revision: 1 };
    ok("the rival", table.commit(&commit("rival", vec![rival], vec![])?).await)?;
    // The first commit's token shows that it was applied. The second loses.
    let mut outcomes = Vec::new();
    for commit in slices.commits().iter().take(2) {
        outcomes.push(table.commit(commit).await);
    }
    let second = outcomes.pop().unwrap_or(Ok(()));
    equal("whether the first went through", &outcomes.iter().all(Result::is_ok), &true)?;
    expect_error!("what stopped the second", second, CommitError::LostRace { .. })?;
    holds(&table, "G0#59", Some(at_revision(1))).await?;
    holds(&table, "G1#0", None).await?;
    holds(&table, "G2#0", None).await
}
