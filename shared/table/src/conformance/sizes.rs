//! What doesn't fit, at its boundary.

use super::support::{Checked, at_revision, commit, expect_error, fail, holds, item, key, ok, put, write};
use super::{Can, Capability, Harness};
use crate::commit::{CommitError, Write};
use crate::key::Key;
use crate::limits;
use crate::port::Table;
use crate::value::{Item, Value, item_size};
use jiff::SignedDuration;

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
