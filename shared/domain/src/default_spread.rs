//! The spread that a cluster's kube-scheduler gives pods without a constraint of their own: `defaultConstraints` of its
//! plugin PodTopologySpread.
//!
//! Decides the text of one: `topology.kubernetes.io/zone=1:DoNotSchedule`. It doesn't decide which pods get it.

use std::fmt;
use std::str::FromStr;

use crate::api::pod::WhenUnsatisfiable;
use crate::id::ParseIdError;
use crate::labels::is_qualified_name;

/// One of a kube-scheduler's default constraints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultConstraint {
    /// `topologyKey`.
    pub topology_key: String,
    /// `maxSkew`, at least 1.
    pub max_skew: u32,
    /// `whenUnsatisfiable`.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

impl DefaultConstraint {
    /// What a text must be, in words.
    pub const FORM: &str = "a label, `=`, `maxSkew`, `:` and `DoNotSchedule` or `ScheduleAnyway`, such as \
         `topology.kubernetes.io/zone=1:DoNotSchedule`";

    /// The constraint of a text; `None` if it isn't of the [`Self::FORM`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (topology_key, terms) = text.split_once('=')?;
        let (max_skew, action) = terms.split_once(':')?;
        let when_unsatisfiable = match action {
            DO_NOT_SCHEDULE => WhenUnsatisfiable::DoNotSchedule,
            SCHEDULE_ANYWAY => WhenUnsatisfiable::ScheduleAnyway,
            _ => return None,
        };
        let max_skew = max_skew.parse().ok().filter(|skew| *skew > 0)?;
        is_qualified_name(topology_key).then(|| Self {
            topology_key: topology_key.to_owned(),
            max_skew,
            when_unsatisfiable,
        })
    }
}

impl FromStr for DefaultConstraint {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || ParseIdError { kind: "default constraint", value: text.to_owned(), expected: Self::FORM };
        Self::parse(text).ok_or_else(wrong)
    }
}

const DO_NOT_SCHEDULE: &str = "DoNotSchedule";
const SCHEDULE_ANYWAY: &str = "ScheduleAnyway";

impl fmt::Display for DefaultConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.when_unsatisfiable {
            WhenUnsatisfiable::DoNotSchedule => DO_NOT_SCHEDULE,
            WhenUnsatisfiable::ScheduleAnyway => SCHEDULE_ANYWAY,
        };
        write!(f, "{}={}:{action}", self.topology_key, self.max_skew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_is_a_label_a_skew_and_an_action() {
        for text in ["topology.kubernetes.io/zone=1:DoNotSchedule", "kubernetes.io/hostname=3:ScheduleAnyway"]
        {
            assert_eq!(DefaultConstraint::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "zone",
            "zone=1",
            "zone=0:DoNotSchedule",
            "zone=1:Never",
            "=1:DoNotSchedule",
            "a b=1:DoNotSchedule",
        ] {
            assert_eq!(DefaultConstraint::parse(text), None, "{text}");
        }
    }
}
