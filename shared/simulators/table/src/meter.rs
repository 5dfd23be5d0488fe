//! The usage of a table, in the units that DynamoDB bills.
//!
//! Decides how bytes become units, not prices.

use std::collections::BTreeMap;
use tenon_table::limits;

tenon_domain::words! {
    /// A call of DynamoDB's API.
    pub enum Operation {
        /// One item read.
        GetItem,
        /// Several items read.
        BatchGetItem,
        /// A partition read.
        Query,
        /// One item written as a whole.
        PutItem,
        /// Attributes of one item written.
        UpdateItem,
        /// One item deleted.
        DeleteItem,
        /// Several items written, checked or deleted.
        TransactWriteItems,
    }
}

/// The usage of one operation's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationUsage {
    /// Calls that the table answered; those refused before sending don't count.
    pub calls: u64,
    /// Throttled calls among them, which cost nothing.
    pub throttled: u64,
    /// Calls with a failed condition among them, which cost as much as the write.
    pub lost: u64,
    /// Read units, in halves: an eventually consistent read of 4 KB costs one half.
    pub read_half_units: u64,
    /// Write units.
    pub write_units: u64,
}

impl OperationUsage {
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            calls: with(self.calls, other.calls),
            throttled: with(self.throttled, other.throttled),
            lost: with(self.lost, other.lost),
            read_half_units: with(self.read_half_units, other.read_half_units),
            write_units: with(self.write_units, other.write_units),
        }
    }
}

/// The usage of a table by operation, and its storage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meter {
    /// The usage; operations without calls may be missing.
    pub operations: BTreeMap<Operation, OperationUsage>,
    /// The current storage, with 100 bytes more for each item, as it is billed.
    pub storage_bytes: u64,
}

impl Meter {
    /// The usage since the earlier reading, with the later storage.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let used = |(operation, usage): (&Operation, &OperationUsage)| {
            let before = earlier.operations.get(operation).copied().unwrap_or_default();
            (*operation, usage.zip(before, u64::saturating_sub))
        };
        Self { operations: self.operations.iter().map(used).collect(), storage_bytes: self.storage_bytes }
    }

    /// All operations together.
    #[must_use]
    pub fn total(&self) -> OperationUsage {
        self.operations
            .values()
            .fold(OperationUsage::default(), |sum, usage| sum.zip(*usage, u64::saturating_add))
    }

    /// The usage of one operation.
    #[must_use]
    pub fn of(&self, operation: Operation) -> OperationUsage {
        self.operations.get(&operation).copied().unwrap_or_default()
    }

    /// Counts a call.
    pub(crate) fn count(&mut self, operation: Operation, usage: OperationUsage) {
        let sum = self.operations.entry(operation).or_default();
        *sum = sum.zip(usage, u64::saturating_add);
    }
}

/// Half read units of reading so many bytes: at least one step, also for nothing.
#[must_use]
pub fn read_half_units(bytes: u64, consistency: crate::Consistency) -> u64 {
    let steps = bytes.div_ceil(limits::READ_UNIT_BYTES).max(1);
    match consistency {
        crate::Consistency::Strong => steps * 2,
        crate::Consistency::Eventual => steps,
    }
}

/// Write units of writing so many bytes outside of a transaction: at least one, also for nothing.
#[must_use]
pub fn write_units(bytes: u64) -> u64 {
    bytes.div_ceil(limits::WRITE_UNIT_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Consistency;

    #[test]
    fn units_are_dynamodbs() {
        let check = |bytes: u64, strong: u64, eventual: u64, write: u64| {
            assert_eq!(read_half_units(bytes, Consistency::Strong), strong, "{bytes}");
            assert_eq!(read_half_units(bytes, Consistency::Eventual), eventual, "{bytes}");
            assert_eq!(write_units(bytes), write, "{bytes}");
        };
        check(0, 2, 1, 1);
        check(1024, 2, 1, 1);
        check(1025, 2, 1, 2);
        check(4096, 2, 1, 4);
        check(4097, 4, 2, 5);
    }

    #[test]
    fn meters_subtract() {
        let mut meter = Meter::default();
        meter.count(
            Operation::Query,
            OperationUsage { calls: 1, read_half_units: 3, ..OperationUsage::default() },
        );
        let earlier = meter.clone();
        meter.count(
            Operation::Query,
            OperationUsage { calls: 1, read_half_units: 5, ..OperationUsage::default() },
        );
        meter.count(
            Operation::PutItem,
            OperationUsage { calls: 1, write_units: 2, ..OperationUsage::default() },
        );
        let used = meter.since(&earlier);
        assert_eq!(
            used.of(Operation::Query),
            OperationUsage { calls: 1, read_half_units: 5, ..OperationUsage::default() }
        );
        assert_eq!(
            used.total(),
            OperationUsage { calls: 2, read_half_units: 5, write_units: 2, ..OperationUsage::default() }
        );
    }
}
