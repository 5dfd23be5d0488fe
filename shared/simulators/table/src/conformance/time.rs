//! Time: consistency, throughput, expiry.

use super::support::{Checked, at_revision, commit, equal, fail, holds, item, key, ok, put, write};
use super::{Can, Capability, Harness};
use jiff::SignedDuration;
use tenon_table::commit::CommitError;
use tenon_table::port::{Consistency, Query, SkRange, Table};
use tenon_table::value::Value;

pub(super) async fn a_strong_read_sees_every_write<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    for revision in 1..20 {
        write(&table, vec![put("A", at_revision(revision))]).await?;
        holds(&table, "A", Some(at_revision(revision))).await?;
        let keys = [key("A")];
        let batch = ok("a batch", table.batch_get(&keys, Consistency::Strong).await)?;
        equal("the batch", &batch.get(&key("A")), &Some(&at_revision(revision)))?;
        let query = Query::new(super::support::PK, SkRange::All, Consistency::Strong);
        let page = ok("a query", table.query(&query).await)?;
        equal("the page", &page.items, &vec![(key("A"), at_revision(revision))])?;
    }
    Ok(())
}

pub(super) async fn an_eventual_read_sees_one_of_the_written_states<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    for revision in 1..20 {
        write(&table, vec![put("A", at_revision(revision))]).await?;
        let found = ok("an eventual get", table.get(&key("A"), Consistency::Eventual).await)?;
        let possible = found.is_none() || (1..=revision).any(|r| found == Some(at_revision(r)));
        if !possible {
            return fail(format!(
                "an eventual read after revision {revision} sees {found:?}, which never was"
            ));
        }
        if harness.can(Capability::AdvanceTime) == Can::Yes {
            harness.advance(SignedDuration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// After this no replica is behind.
const CAUGHT_UP: SignedDuration = SignedDuration::from_mins(1);

pub(super) async fn an_eventual_read_catches_up<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    write(&table, vec![put("A", at_revision(1)), put("A", at_revision(2))]).await?;
    harness.advance(CAUGHT_UP).await;
    for _ in 0..20 {
        let found = ok("an eventual get", table.get(&key("A"), Consistency::Eventual).await)?;
        equal("an eventual read a minute later", &found, &Some(at_revision(2)))?;
    }
    Ok(())
}

pub(super) async fn a_hot_key_is_throttled_and_recovers<H: Harness>(harness: &H) -> Checked {
    /// Of 300 units each: a second holds three and a part.
    const MOST: u64 = 100;
    let table = harness.fresh().await;
    let large = |n: u64| put("A", item([("n", Value::number(n)), ("data", Value::B(vec![1; 300_000]))]));
    let mut throttled = None;
    for n in 0..MOST {
        match table.commit(&commit("t", vec![], vec![large(n)])?).await {
            Ok(()) => {}
            Err(CommitError::Throttled { pk }) => {
                throttled = Some((n, pk));
                break;
            }
            Err(other) => return fail(format!("a hot key: {other:?}")),
        }
    }
    let Some((writes, pk)) = throttled else {
        return fail(format!("{MOST} writes of 300 KB to one key in one moment aren't throttled"));
    };
    equal("the throttled key", &pk.as_str(), &super::support::PK)?;
    if writes < 3 {
        return fail(format!("only {writes} writes of 300 units go through in a second of 1,000"));
    }
    harness.advance(SignedDuration::from_secs(2)).await;
    ok("a write two seconds later", table.commit(&commit("u", vec![], vec![large(0)])?).await)
}

pub(super) async fn an_expired_item_goes_late<H: Harness>(harness: &H) -> Checked {
    let table = harness.fresh().await;
    let expires_at = harness.now().as_second() + 60;
    write(
        &table,
        vec![put("A", item([("expires_at", Value::number(expires_at))])), put("B", at_revision(1))],
    )
    .await?;
    harness.advance(SignedDuration::from_secs(59)).await;
    if super::support::read(&table, "A").await?.is_none() {
        return fail("an item is deleted before it expires");
    }
    harness.advance(SignedDuration::from_hours(49)).await;
    holds(&table, "A", None).await?;
    holds(&table, "B", Some(at_revision(1))).await
}
