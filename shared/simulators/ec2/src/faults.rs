//! Injected faults of the twin.
//!
//! Decides which call fails, and how. Invariant: at most one fault applies to a call, the one injected first.

use super::call::Call;
use super::random::draw;
use tenon_ec2::Ec2Error;

/// When a fault applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultWhen {
    /// To the nth call of that name from now on (1 is the next), once.
    Nth(u64),
    /// To the next so many calls of that name.
    Next(u64),
    /// To each call of that name with this chance, until faults are cleared.
    Permille(u64),
}

/// The effect of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultEffect {
    /// The call is refused with this error and does nothing.
    Refused(Ec2Error),
    /// The call takes effect and its answer is lost: the caller gets [`Ec2Error::NoAnswer`].
    AnswerLost,
    /// The call is lost on its way: it does nothing, and the caller gets [`Ec2Error::NoAnswer`].
    RequestLost,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The call.
    pub call: Call,
    /// When.
    pub when: FaultWhen,
    /// The effect.
    pub effect: FaultEffect,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    injected: Vec<Fault>,
    asked: u64,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault) {
        self.injected.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.injected.clear();
    }

    /// Counts the call, and returns its fault, if there is one.
    pub(super) fn next(&mut self, seed: u64, call: Call) -> Option<FaultEffect> {
        self.asked = self.asked.saturating_add(1);
        let chance = draw(seed, &["fault", &self.asked.to_string()]) % 1000;
        let mut hit = None;
        for fault in self.injected.iter_mut().filter(|f| f.call == call) {
            let applies = match &mut fault.when {
                FaultWhen::Nth(n) => {
                    *n = n.saturating_sub(1);
                    *n == 0
                }
                FaultWhen::Next(n) => {
                    let applies = *n > 0 && hit.is_none();
                    *n = n.saturating_sub(u64::from(applies));
                    applies
                }
                FaultWhen::Permille(permille) => chance < *permille,
            };
            if applies && hit.is_none() {
                hit = Some(fault.effect.clone());
            }
        }
        self.injected.retain(|f| !matches!(f.when, FaultWhen::Nth(0) | FaultWhen::Next(0)));
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(when: FaultWhen) -> String {
        let mut faults = Faults::default();
        faults.inject(Fault { call: Call::CreateFleet, when, effect: FaultEffect::AnswerLost });
        assert_eq!(faults.next(1, Call::CreateTags), None);
        (0..6).map(|_| if faults.next(1, Call::CreateFleet).is_some() { 'x' } else { '.' }).collect()
    }

    #[test]
    fn faults_hit_the_calls_that_they_are_for() {
        assert_eq!(pattern(FaultWhen::Nth(1)), "x.....");
        assert_eq!(pattern(FaultWhen::Nth(3)), "..x...");
        assert_eq!(pattern(FaultWhen::Next(2)), "xx....");
        assert_eq!(pattern(FaultWhen::Permille(1000)), "xxxxxx");
        assert_eq!(pattern(FaultWhen::Permille(0)), "......");
    }
}
