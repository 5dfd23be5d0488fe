//! `NODEPOOL#`: the status of a NodePool.

use tenon_domain::class_status::ConditionStatus;
use tenon_domain::pool_status::{PoolCondition, PoolConditionType, PoolStatus};

use super::form::{Attributes, FieldError, Fields, ItemForm};
use crate::key::REVISION;

impl ItemForm for PoolStatus {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.number(REVISION, self.revision);
        to.number("generation", self.generation);
        to.number("nodes", self.nodes);
        to.resources("resources", &self.resources);
        to.list("conditions", &self.conditions, |condition, to| {
            to.text("type", condition.condition.as_str());
            to.text("status", condition.status.as_str());
            to.text("reason", &condition.reason);
            to.text("message", &condition.message);
            to.time("since", condition.since);
        });
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            name: from.parsed("name")?,
            revision: from.u64(REVISION)?,
            generation: from.u64("generation")?,
            nodes: from.u64("nodes")?,
            resources: from.resources("resources")?,
            conditions: from.known_list("conditions", read_condition)?,
        })
    }
}

/// A type of a later release is no error; it stays in the item until `lifecycle` judges the pool anew.
fn read_condition(from: Fields<'_>) -> Result<PoolCondition, FieldError> {
    Ok(PoolCondition {
        condition: from.word("type", PoolConditionType::parse)?,
        status: ConditionStatus::of_any_release(from.text("status")?),
        reason: from.string("reason")?,
        message: from.string("message")?,
        since: from.time("since")?,
    })
}
