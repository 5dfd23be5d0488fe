//! Tenon's own annotations of a NodePool, which say what its spec has no field for.
//!
//! Decides their grammar and their defaults. One that can't be read is ignored, and told; [`ConsolidationTerms`] are
//! apart, because there a typing error must not move pods.
//!
//! [`ConsolidationTerms`]: crate::savings::ConsolidationTerms

use jiff::SignedDuration;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::api::NodePool;
use crate::claim::InterruptionOrder;
use crate::labels::{BUDGET_TIME_ZONE, EXPIRE_WITHIN_BUDGETS, INTERRUPTION};
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

/// What the pool wants for the pods of interrupted nodes.
///
/// # Errors The annotation, if it can't be read.
pub fn interruption_order(pool: &NodePool) -> Result<InterruptionOrder, PoolAnnotationError> {
    let found = read(pool, INTERRUPTION, "`ReplaceFirst` or `Drain`", InterruptionOrder::parse)?;
    Ok(found.unwrap_or(InterruptionOrder::ReplaceFirst))
}

/// The time zone of the pool's budgets, by its name in the IANA database. The release has the database.
///
/// # Errors The annotation, if there is no such zone.
pub fn budget_time_zone(text: Option<&str>) -> Result<TimeZone, PoolAnnotationError> {
    let Some(text) = text else { return Ok(TimeZone::UTC) };
    TimeZoneDatabase::bundled().get(text.trim()).map_err(|_| PoolAnnotationError {
        key: BUDGET_TIME_ZONE,
        value: text.to_owned(),
        remedy: "a time zone of the IANA database such as `Europe/Berlin`",
    })
}

/// The pool's annotations that are ignored because they can't be read.
#[must_use]
pub fn ignored(pool: &NodePool) -> Vec<PoolAnnotationError> {
    [expiry_wait(pool).err(), interruption_order(pool).err()].into_iter().flatten().collect()
}

fn read<T>(
    pool: &NodePool,
    key: &'static str,
    remedy: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, PoolAnnotationError> {
    let Some(text) = pool.meta.annotations.get(key) else { return Ok(None) };
    let found = parse(text.trim());
    let error = || PoolAnnotationError { key, value: text.clone(), remedy };
    found.map(Some).ok_or_else(error)
}
