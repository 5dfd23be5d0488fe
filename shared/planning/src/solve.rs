//! The linear bound of a plan's price, solved.
//!
//! Decides nothing: [`crate::bound`] makes the programme, a library solves it. It is behind the feature `bound`,
//! which no function enables, because the solver brings a log and a clock.

use crate::bound::{Programme, programme};
use crate::provision::{ProvisionInput, ProvisionPlan};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use tenon_domain::money::UsdPerHour;

/// The least cost of the pods on the plan's claims, rounded down to whole nano-dollars; `None` if the programme is
/// too large or nothing has a price.
#[must_use]
pub fn linear(input: &ProvisionInput, plan: &ProvisionPlan) -> Option<UsdPerHour> {
    programme(input, plan).as_ref().and_then(solve)
}

/// Minimises the price of machines bought in fractions.
fn solve(Programme { counts, needs, columns }: &Programme) -> Option<UsdPerHour> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
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
    let solution = problem.solve().ok()?.into_solution().ok()?;
    nanos(solution.objective())
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
