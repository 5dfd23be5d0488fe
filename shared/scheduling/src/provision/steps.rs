//! The plan's budget of work.

use super::input::StepBudget;
use super::report::Outcome;

/// Steps used of a budget.
#[derive(Debug)]
pub(crate) struct Steps {
    used: u64,
    max: u64,
}

impl Steps {
    /// Nothing used yet.
    pub(crate) const fn new(budget: StepBudget) -> Self {
        Self { used: 0, max: budget.max }
    }

    /// Takes steps; whether there were so many left.
    pub(crate) fn take(&mut self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if self.max - self.used < count {
            self.used = self.max;
            return false;
        }
        self.used += count;
        true
    }

    /// Steps used.
    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    /// Whether the budget sufficed.
    pub(crate) const fn outcome(&self) -> Outcome {
        if self.used < self.max { Outcome::Complete } else { Outcome::BudgetExhausted }
    }
}
