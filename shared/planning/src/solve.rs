//! The linear bound of a plan's price, solved.
//!
//! Decides nothing: [`crate::bound`] makes the programme, a library solves it. It is behind the feature `bound`,
//! which no function enables, because the solver brings a log and a clock.

use std::time::Duration;

use crate::bound::{Programme, programme};
use crate::provision::{ProvisionInput, ProvisionPlan};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolutionStatus, SolveOutcome, Variable};
use tenon_domain::money::UsdPerHour;

/// The reason for a plan without a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundOmission {
    /// The programme is too large.
    TooLarge,
    /// The solver used up its time.
    TimeUp,
    /// The solver found no optimum.
    Unsolved,
}

/// The least cost of the pods on the plan's claims, rounded down to whole nano-dollars; `None` if the programme is
/// too large or nothing has a price.
#[must_use]
pub fn linear(input: &ProvisionInput, plan: &ProvisionPlan) -> Option<UsdPerHour> {
    linear_within(input, plan, Duration::MAX).ok()
}

/// The same, unless the solver takes longer than this.
///
/// # Errors [`BoundOmission`]. Only an optimum is a bound: whatever the solver has before is too high.
pub fn linear_within(
    input: &ProvisionInput,
    plan: &ProvisionPlan,
    longest: Duration,
) -> Result<UsdPerHour, BoundOmission> {
    let programme = programme(input, plan).ok_or(BoundOmission::TooLarge)?;
    solve(&programme, longest)
}

/// Minimises the price of machines bought in fractions.
fn solve(programme: &Programme, longest: Duration) -> Result<UsdPerHour, BoundOmission> {
    let Programme { counts, needs, columns } = programme;
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    problem.set_time_limit(longest);
    let mut shares: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); counts.len()];
    for column in columns {
        let machines = problem.add_var(column.price, (0.0, f64::INFINITY));
        let mut rows: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); column.room.len()];
        for user in &column.users {
            let share = problem.add_var(0.0, (0.0, f64::INFINITY));
            if let (Some(shares), Some(need)) = (shares.get_mut(*user), needs.get(*user)) {
                shares.push((share, 1.0));
                for (row, need) in rows.iter_mut().zip(need).filter(|(_, need)| **need > 0.0) {
                    row.push((share, *need));
                }
            }
        }
        for (row, room) in rows.iter_mut().zip(&column.room).filter(|(row, _)| !row.is_empty()) {
            row.push((machines, -room));
            problem.add_constraint(row.as_slice(), ComparisonOp::Le, 0.0);
        }
    }
    for (shares, count) in shares.iter().zip(counts).filter(|(_, count)| **count > 0.0) {
        problem.add_constraint(shares.as_slice(), ComparisonOp::Ge, *count);
    }
    match problem.solve().map_err(|_| BoundOmission::Unsolved)? {
        SolveOutcome::Solution(solution) if solution.status() == SolutionStatus::Optimal => {
            nanos(solution.objective()).ok_or(BoundOmission::Unsolved)
        }
        SolveOutcome::Solution(_) | SolveOutcome::Interrupted(_) => Err(BoundOmission::TimeUp),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before the cast; a lower bound is rounded down"
)]
fn nanos(usd: f64) -> Option<UsdPerHour> {
    let nanos = (usd * 1e9).floor();
    (0.0..9e18).contains(&nanos).then(|| UsdPerHour::from_nanos(nanos as u64))
}
