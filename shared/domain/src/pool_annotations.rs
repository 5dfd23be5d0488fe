//! Tenon's own annotations of a NodePool, which say what its spec has no field for.
//!
//! Decides their grammar and their defaults. One that can't be read is ignored, and told; [`ConsolidationTerms`] are
//! apart, because there a typing error must not move pods.
//!
//! [`ConsolidationTerms`]: crate::savings::ConsolidationTerms

use jiff::SignedDuration;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::api::NodePool;
use crate::claim::{InterruptionOrder, RebalanceOrder};
use crate::labels::{
    BUDGET_TIME_ZONE, EXPIRE_WITHIN_BUDGETS, INTERRUPTION, LOAD_BALANCER_DEREGISTRATION, REBALANCE,
};
use crate::manifest::duration::parse_plain;

/// How long an expired node waits for its pool's budgets, if the pool says nothing else.
pub const EXPIRY_WAIT: SignedDuration = SignedDuration::from_hours(24);

/// An annotation that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation `{key}` is `{value}`; write {remedy}")]
pub struct PoolAnnotationError {
    /// The annotation.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What can be read.
    pub remedy: &'static str,
}

/// How long an expired node waits for its pool's budgets; zero is the peer's behaviour.
///
/// # Errors The annotation, if it can't be read.
pub fn expiry_wait(pool: &NodePool) -> Result<SignedDuration, PoolAnnotationError> {
    let remedy = "hours, minutes and seconds such as `24h`, or `0s` to drain at once";
    read(pool, EXPIRE_WITHIN_BUDGETS, remedy, parse_plain).map(|found| found.unwrap_or(EXPIRY_WAIT))
}

/// [`expiry_wait`], or the default where it can't be read.
#[must_use]
pub fn expiry_wait_or_default(pool: Option<&NodePool>) -> SignedDuration {
    pool.and_then(|pool| expiry_wait(pool).ok()).unwrap_or(EXPIRY_WAIT)
}

/// How long load balancers have to deregister the instance of a node, from the begin of its drain; `None` if nothing
/// waits for them.
///
/// # Errors The annotation, if it can't be read.
pub fn load_balancer_deregistration(pool: &NodePool) -> Result<Option<SignedDuration>, PoolAnnotationError> {
    let remedy = "hours, minutes and seconds such as `90s`";
    read(pool, LOAD_BALANCER_DEREGISTRATION, remedy, parse_plain)
}

/// What the value of the annotation wants for the pods of interrupted nodes.
///
/// # Errors The annotation, if it can't be read.
pub fn interruption_order(written: Option<&str>) -> Result<InterruptionOrder, PoolAnnotationError> {
    let found = parsed(written, INTERRUPTION, "`ReplaceFirst` or `Drain`", InterruptionOrder::parse)?;
    Ok(found.unwrap_or(InterruptionOrder::ReplaceFirst))
}

/// What the pool wants for nodes of which EC2 recommends to move the pods.
///
/// # Errors The annotation, if it can't be read.
pub fn rebalance_order(pool: &NodePool) -> Result<RebalanceOrder, PoolAnnotationError> {
    let remedy = "`Ignore`, `ReplaceFirst` or `Drain`";
    read(pool, REBALANCE, remedy, RebalanceOrder::parse).map(|found| found.unwrap_or(RebalanceOrder::Ignore))
}

/// [`rebalance_order`], or the default where it can't be read.
#[must_use]
pub fn rebalance_order_or_default(pool: Option<&NodePool>) -> RebalanceOrder {
    pool.and_then(|pool| rebalance_order(pool).ok()).unwrap_or(RebalanceOrder::Ignore)
}

/// The time zone of the pool's budgets, by its name in the IANA database. The release has the database.
///
/// # Errors The annotation, if there is no such zone.
pub fn budget_time_zone(written: &str) -> Result<TimeZone, PoolAnnotationError> {
    let remedy = "a time zone of the IANA database such as `Europe/Berlin`";
    let find = |name: &str| TimeZoneDatabase::bundled().get(name).ok();
    let found = parsed(Some(written), BUDGET_TIME_ZONE, remedy, find)?;
    Ok(found.unwrap_or(TimeZone::UTC))
}

/// The pool's annotations that are ignored because they can't be read.
#[must_use]
pub fn ignored(pool: &NodePool) -> Vec<PoolAnnotationError> {
    let interruption = pool.meta.annotations.get(INTERRUPTION).map(String::as_str);
    let read = [
        expiry_wait(pool).err(),
        interruption_order(interruption).err(),
        rebalance_order(pool).err(),
        load_balancer_deregistration(pool).err(),
    ];
    read.into_iter().flatten().collect()
}

/// An annotation of the pool; `None` without it.
pub(crate) fn read<T>(
    pool: &NodePool,
    key: &'static str,
    remedy: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, PoolAnnotationError> {
    parsed(pool.meta.annotations.get(key).map(String::as_str), key, remedy, parse)
}

fn parsed<T>(
    written: Option<&str>,
    key: &'static str,
    remedy: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, PoolAnnotationError> {
    let Some(text) = written else { return Ok(None) };
    let error = || PoolAnnotationError { key, value: text.to_owned(), remedy };
    parse(text.trim()).map(Some).ok_or_else(error)
}
