//! A plan's budget of work.

use super::input::StepBudget;
use super::report::PlanCompletion;

/// That a plan's steps ran out: only the count of the steps can tell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepsRanOut(());

/// Steps used of a budget.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    used: u64,
    max: u64,
}

impl Steps {
    /// Nothing used yet.
    pub(crate) const fn new(budget: StepBudget) -> Self {
        Self { used: 0, max: budget.max }
    }

    /// Takes steps. Returns whether enough were left.
    pub(crate) fn take(&mut self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if self.max - self.used < count {
            self.used = self.max;
            return false;
        }
        self.used += count;
        true
    }

    /// A part of what is left, for work that may stop at any time: half of it at most, so that a plan doesn't end for
    /// want of steps that made another pool's claims cheaper.
    pub(crate) fn part(&self, most: u64) -> Self {
        Self { used: 0, max: most.min((self.max - self.used) / 2) }
    }

    /// Takes what a part has used.
    pub(crate) fn take_part(&mut self, part: &Self) {
        self.used += part.used.min(self.max - self.used);
    }

    /// The budget.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// Steps used.
    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    /// Whether the budget sufficed.
    pub(crate) const fn outcome(&self) -> PlanCompletion {
        if self.ran_out().is_none() { PlanCompletion::Complete } else { PlanCompletion::BudgetExhausted }
    }

    /// The proof that it didn't.
    pub(crate) const fn ran_out(&self) -> Option<StepsRanOut> {
        if self.used < self.max { None } else { Some(StepsRanOut(())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_takes_as_many_steps_as_it_may_and_is_complete_with_less() {
        let mut steps = Steps::new(StepBudget { max: 10 });
        assert!(steps.take(4));
        assert_eq!((steps.used(), steps.outcome()), (4, PlanCompletion::Complete));
        assert_eq!(steps.ran_out(), None);
        assert!(steps.take(6));
        assert_eq!((steps.used(), steps.outcome()), (10, PlanCompletion::BudgetExhausted));
        assert!(!steps.take(1));
        assert_eq!((steps.part(5).max(), Steps::new(StepBudget { max: 10 }).part(7).max()), (0, 5));
        let mut other = Steps::new(StepBudget { max: 10 });
        assert!(other.take(4) && !other.take(7));
        assert_eq!((other.used(), other.outcome()), (10, PlanCompletion::BudgetExhausted));
    }
}
