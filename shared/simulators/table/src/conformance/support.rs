//! Helpers of the cases: small worlds, and checks that fail with a sentence.

use super::CaseFailure;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tenon_domain::id::ClusterName;
use tenon_table::commit::{Commit, CommitToken, Expect, Write, WriteCondition};
use tenon_table::key::{self, Key};
use tenon_table::port::{Consistency, Table};
use tenon_table::value::{Item, Value};

pub(super) type Checked = Result<(), CaseFailure>;

pub(super) const PK: &str = "CLUSTER#conformance";

pub(super) fn fail<T>(message: impl Into<String>) -> Result<T, CaseFailure> {
    Err(CaseFailure(message.into()))
}

pub(super) fn equal<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Checked {
    if found == expected { Ok(()) } else { fail(format!("{what}: found {found:?}, expected {expected:?}")) }
}

pub(super) fn ok<T, E: Debug>(what: &str, result: Result<T, E>) -> Result<T, CaseFailure> {
    result.or_else(|error| fail(format!("{what}: {error:?}")))
}

/// Checks that this is an error of the expected kind.
macro_rules! expect_error {
    ($what:expr, $result:expr, $pattern:pat) => {
        match $result {
            Err($pattern) => Ok(()),
            other => $crate::conformance::support::fail(format!(
                "{}: found {other:?}, expected {}",
                $what,
                stringify!($pattern)
            )),
        }
    };
}
pub(super) use expect_error;

pub(super) fn cluster() -> Result<ClusterName, CaseFailure> {
    ok("the cluster's name", ClusterName::parse("conformance"))
}

pub(super) fn key(sk: &str) -> Key {
    Key::new(PK, sk)
}

pub(super) fn number(value: u64) -> Value {
    Value::number(value)
}

pub(super) fn item<const N: usize>(attributes: [(&str, Value); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn at_revision(revision: u64) -> Item {
    item([(key::REVISION, number(revision))])
}

pub(super) fn put(sk: &str, item: Item) -> Write {
    Write::Put { key: key(sk), item }
}

pub(super) fn expect(sk: &str, expect: Expect) -> WriteCondition {
    WriteCondition::Item { key: key(sk), expect }
}

pub(super) fn commit(
    token: &str,
    conditions: Vec<WriteCondition>,
    writes: Vec<Write>,
) -> Result<Commit, CaseFailure> {
    Ok(Commit { token: ok("the token", CommitToken::parse(token))?, conditions, writes })
}

/// Runs these concurrently, as far as the adapter can, and returns their results in order.
pub(super) async fn at_once<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    enum FutureRun<F: Future> {
        Going(Pin<Box<F>>),
        Ended(F::Output),
    }
    let mut runs: Vec<FutureRun<F>> =
        futures.into_iter().map(|future| FutureRun::Going(Box::pin(future))).collect();
    poll_fn(|context| {
        let mut going = false;
        for run in &mut runs {
            let FutureRun::Going(future) = run else { continue };
            match future.as_mut().poll(context) {
                Poll::Ready(output) => *run = FutureRun::Ended(output),
                Poll::Pending => going = true,
            }
        }
        if going { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let output = |run| match run {
        FutureRun::Going(_) => None,
        FutureRun::Ended(output) => Some(output),
    };
    runs.into_iter().filter_map(output).collect()
}

/// Writes one by one, without conditions.
pub(super) async fn write<T: Table>(table: &T, writes: Vec<Write>) -> Checked {
    for (n, write) in writes.into_iter().enumerate() {
        let commit = commit(&format!("setup-{n}"), vec![], vec![write])?;
        ok("a write without conditions", table.commit(&commit).await)?;
    }
    Ok(())
}

pub(super) async fn read<T: Table>(table: &T, sk: &str) -> Result<Option<Item>, CaseFailure> {
    ok("a get", table.get(&key(sk), Consistency::Strong).await)
}

pub(super) async fn holds<T: Table>(table: &T, sk: &str, expected: Option<Item>) -> Checked {
    equal(&format!("the item `{sk}`"), &read(table, sk).await?, &expected)
}
