//! One requirement: the set of values that one label may have.
//!
//! Decides membership, intersection and the written form. Whether a node may lack the label is in
//! [`super::compatibility`].
//!
//! Invariants: a concrete set has no bounds; a complement set's bounds don't cross, and it excludes only values
//! within them. An empty concrete set *is* `DoesNotExist`. Keys are normalised.
//!
//! Source: kubernetes-sigs/karpenter `pkg/scheduling/requirement.go`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use super::aliases::normalize;
use super::operator::{NodeSelectorRequirement, Operator, WrittenRequirement};

/// How many values the text form shows.
const SHOWN_VALUES: usize = 5;

/// The values that a label may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    key: String,
    set: Set,
    min_values: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Set {
    /// These values.
    Of(BTreeSet<String>),
    /// All values within the bounds but these.
    AllBut(BTreeSet<String>, Bounds),
}

/// Inclusive bounds; a value that isn't an integer is outside of any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Bounds {
    gte: Option<i64>,
    lte: Option<i64>,
}

impl Bounds {
    fn contain(self, value: &str) -> bool {
        if self == Self::default() {
            return true;
        }
        value.parse::<i64>().is_ok_and(|v| self.gte.is_none_or(|b| v >= b) && self.lte.is_none_or(|b| v <= b))
    }

    /// The bounds within both; `None` if they cross.
    fn within(self, other: Self) -> Option<Self> {
        // `None` is below every bound, so the greater of two lower bounds is their maximum as it is.
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let cross = gte.zip(lte).is_some_and(|(gte, lte)| gte > lte);
        (!cross).then_some(Self { gte, lte })
    }
}

/// A written requirement that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// `In` and `NotIn` need values.
    #[error("operator `{operator}` of `{key}` needs at least one value")]
    NoValues {
        /// The label's key.
        key: String,
        /// The operator.
        operator: Operator,
    },
    /// `Exists` and `DoesNotExist` take none.
    #[error("operator `{operator}` of `{key}` takes no values, found `{}`; leave `values` out", .values.join("`, `"))]
    UnexpectedValues {
        /// The label's key.
        key: String,
        /// The operator.
        operator: Operator,
        /// The given values.
        values: Vec<String>,
    },
    /// The comparisons take exactly one integer.
    #[error("operator `{operator}` of `{key}` takes exactly one integer, found `{}`", .values.join("`, `"))]
    NotOneInteger {
        /// The label's key.
        key: String,
        /// The operator.
        operator: Operator,
        /// The given values.
        values: Vec<String>,
    },
    /// `minValues` exceeds the number of listed values.
    #[error(
        "`minValues` of `{key}` is `{min_values}`, but `values` lists only `{values}`; lower it or list more"
    )]
    MinValuesUnreachable {
        /// The label's key.
        key: String,
        /// The given `minValues`.
        min_values: u32,
        /// How many different values are listed.
        values: usize,
    },
}

impl Requirement {
    /// Reads a written requirement.
    ///
    /// # Errors
    /// [`RequirementError`] if the values don't go with the operator.
    pub fn parse(written: &NodeSelectorRequirement) -> Result<Self, RequirementError> {
        let NodeSelectorRequirement { key, operator, values, min_values } = written;
        let (key, operator) = (key.clone(), *operator);
        let requirement = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return Err(RequirementError::NoValues { key, operator });
            }
            Operator::In => Self::one_of(&key, values.iter().cloned()),
            Operator::NotIn => Self::none_of(&key, values.iter().cloned()),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return Err(RequirementError::UnexpectedValues { key, operator, values: values.clone() });
            }
            Operator::Exists => Self::exists(&key),
            Operator::DoesNotExist => Self::does_not_exist(&key),
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
                let [value] = values.as_slice() else {
                    return Err(RequirementError::NotOneInteger { key, operator, values: values.clone() });
                };
                let bound: i64 = value.parse().map_err(|_| RequirementError::NotOneInteger {
                    key: key.clone(),
                    operator,
                    values: values.clone(),
                })?;
                Self::bounded(&key, operator, bound)
            }
        };
        match (min_values, &requirement.set) {
            (Some(min), Set::Of(values))
                if operator == Operator::In && usize::try_from(*min).is_ok_and(|m| m > values.len()) =>
            {
                let values = values.len();
                Err(RequirementError::MinValuesUnreachable { key, min_values: *min, values })
            }
            _ => Ok(requirement.with_min_values(*min_values)),
        }
    }

    /// One of these values; of none, the same as [`Requirement::does_not_exist`].
    #[must_use]
    pub fn one_of(key: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(key, Set::Of(values.into_iter().map(Into::into).collect()))
    }

    /// Any value but these.
    #[must_use]
    pub fn none_of(key: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(key, Set::AllBut(values.into_iter().map(Into::into).collect(), Bounds::default()))
    }

    /// Any value.
    #[must_use]
    pub fn exists(key: &str) -> Self {
        Self::of(key, Set::AllBut(BTreeSet::new(), Bounds::default()))
    }

    /// No value.
    #[must_use]
    pub fn does_not_exist(key: &str) -> Self {
        Self::of(key, Set::Of(BTreeSet::new()))
    }

    /// An integer of this value or more.
    #[must_use]
    pub fn at_least(key: &str, bound: i64) -> Self {
        Self::of(key, Set::AllBut(BTreeSet::new(), Bounds { gte: Some(bound), lte: None }))
    }

    /// An integer of this value or less.
    #[must_use]
    pub fn at_most(key: &str, bound: i64) -> Self {
        Self::of(key, Set::AllBut(BTreeSet::new(), Bounds { gte: None, lte: Some(bound) }))
    }

    /// This, with `minValues`.
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    fn of(key: &str, set: Set) -> Self {
        Self { key: normalize(key).to_owned(), set, min_values: None }
    }

    /// A comparison. Nothing is above the largest integer, nor below the smallest.
    fn bounded(key: &str, operator: Operator, bound: i64) -> Self {
        match operator {
            Operator::Gte => Self::at_least(key, bound),
            Operator::Lte => Self::at_most(key, bound),
            Operator::Gt => {
                bound.checked_add(1).map_or_else(|| Self::does_not_exist(key), |b| Self::at_least(key, b))
            }
            Operator::Lt => {
                bound.checked_sub(1).map_or_else(|| Self::does_not_exist(key), |b| Self::at_most(key, b))
            }
            Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => Self::exists(key),
        }
    }

    /// The label's key, normalised.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether the set is all values but some.
    #[must_use]
    pub fn is_complement(&self) -> bool {
        matches!(self.set, Set::AllBut(..))
    }

    /// The values listed: the members of a concrete set, the exclusions of a complement set.
    #[must_use]
    pub fn values(&self) -> &BTreeSet<String> {
        match &self.set {
            Set::Of(values) | Set::AllBut(values, _) => values,
        }
    }

    /// The inclusive lower bound.
    #[must_use]
    pub fn gte(&self) -> Option<i64> {
        self.bounds().gte
    }

    /// The inclusive upper bound.
    #[must_use]
    pub fn lte(&self) -> Option<i64> {
        self.bounds().lte
    }

    /// The minimum number of different values that must remain possible.
    #[must_use]
    pub fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// Whether bounds are set.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.bounds() != Bounds::default()
    }

    fn bounds(&self) -> Bounds {
        match &self.set {
            Set::Of(_) => Bounds::default(),
            Set::AllBut(_, bounds) => *bounds,
        }
    }

    /// Whether a value is in the set.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        match &self.set {
            Set::Of(values) => values.contains(value),
            Set::AllBut(excluded, bounds) => !excluded.contains(value) && bounds.contain(value),
        }
    }

    /// The number of values in the set; for a complement set, the largest 64-bit integer less its exclusions.
    #[must_use]
    pub fn len(&self) -> u64 {
        let listed = u64::try_from(self.values().len()).unwrap_or(u64::MAX);
        match &self.set {
            Set::Of(_) => listed,
            Set::AllBut(..) => i64::MAX.unsigned_abs().saturating_sub(listed),
        }
    }

    /// Whether no value is in the set: `DoesNotExist`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A member, always the same one for the same set; `None` for an empty set.
    ///
    /// For a concrete set it is the first value, otherwise the first integer within the bounds that isn't excluded.
    #[must_use]
    pub fn any(&self) -> Option<String> {
        let (excluded, bounds) = match &self.set {
            Set::Of(values) => return values.first().cloned(),
            Set::AllBut(excluded, bounds) => (excluded, *bounds),
        };
        // One more candidate than there are exclusions: one of them must be free, unless the bounds are narrower.
        let tries = excluded.len().saturating_add(1);
        let free = |value: &String| self.has(value);
        match (bounds.gte, bounds.lte) {
            (None, Some(lte)) => (i64::MIN..=lte).rev().take(tries).map(|v| v.to_string()).find(free),
            (gte, lte) => {
                (gte.unwrap_or(0)..=lte.unwrap_or(i64::MAX)).take(tries).map(|v| v.to_string()).find(free)
            }
        }
    }

    /// The only value that is possible, if there is just one.
    #[must_use]
    pub fn single_value(&self) -> Option<&str> {
        match &self.set {
            Set::Of(values) if values.len() == 1 => values.first().map(String::as_str),
            Set::Of(_) | Set::AllBut(..) => None,
        }
    }

    /// The operator that describes the set; a bounded set without exclusions is `Exists`.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match &self.set {
            Set::Of(values) if values.is_empty() => Operator::DoesNotExist,
            Set::Of(_) => Operator::In,
            Set::AllBut(excluded, _) if excluded.is_empty() => Operator::Exists,
            Set::AllBut(..) => Operator::NotIn,
        }
    }

    /// Whether a node without the label satisfies this: `DoesNotExist`, and `NotIn` without bounds.
    #[must_use]
    pub fn accepts_absence(&self) -> bool {
        match self.operator() {
            Operator::DoesNotExist => true,
            Operator::NotIn => !self.is_bounded(),
            Operator::In | Operator::Exists | Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
                false
            }
        }
    }

    /// The values in both sets, under this one's key, with the larger `minValues`.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let min_values = self.min_values.max(other.min_values);
        Self { key: self.key.clone(), set: intersect(&self.set, &other.set), min_values }
    }

    /// Whether some value is in both sets; the same as a non-empty [`Requirement::intersection`], without making it.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        match (&self.set, &other.set) {
            (Set::Of(values), _) => values.iter().any(|value| other.has(value)),
            (_, Set::Of(values)) => values.iter().any(|value| self.has(value)),
            (Set::AllBut(_, a), Set::AllBut(_, b)) => a.within(*b).is_some(),
        }
    }

    /// The written form: one requirement, or one each for exclusions and for either bound.
    #[must_use]
    pub fn to_node_selector(&self) -> Vec<NodeSelectorRequirement> {
        self.written().into_iter().map(NodeSelectorRequirement::from).collect()
    }

    /// The same, borrowed: lists may have hundreds of values.
    #[must_use]
    pub fn written(&self) -> Vec<WrittenRequirement<'_>> {
        let written = |operator, values| WrittenRequirement {
            key: &self.key,
            operator,
            values,
            min_values: self.min_values,
        };
        let listed: Vec<Cow<'_, str>> = self.values().iter().map(|value| value.as_str().into()).collect();
        if !self.is_bounded() {
            return vec![written(self.operator(), listed)];
        }
        let exclusions = (!listed.is_empty()).then(|| written(Operator::NotIn, listed));
        let gte = self.gte().map(|bound| written(Operator::Gte, vec![bound.to_string().into()]));
        let lte = self.lte().map(|bound| written(Operator::Lte, vec![bound.to_string().into()]));
        [gte, lte, exclusions].into_iter().flatten().collect()
    }
}

fn intersect(left: &Set, right: &Set) -> Set {
    match (left, right) {
        (Set::Of(a), Set::Of(b)) => Set::Of(a.intersection(b).cloned().collect()),
        (Set::Of(values), Set::AllBut(excluded, bounds))
        | (Set::AllBut(excluded, bounds), Set::Of(values)) => {
            Set::Of(values.difference(excluded).filter(|value| bounds.contain(value)).cloned().collect())
        }
        (Set::AllBut(a, left), Set::AllBut(b, right)) => match left.within(*right) {
            Some(bounds) => {
                Set::AllBut(a.union(b).filter(|value| bounds.contain(value)).cloned().collect(), bounds)
            }
            None => Set::Of(BTreeSet::new()),
        },
    }
}

/// `key Exists >=2 <=8`, `key In [a b] minValues 2`; long lists are cut.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.operator())?;
        let values = self.values();
        if !values.is_empty() {
            let shown: Vec<&str> = values.iter().take(SHOWN_VALUES).map(String::as_str).collect();
            write!(f, " [{}]", shown.join(" "))?;
            if let Some(hidden) = values.len().checked_sub(SHOWN_VALUES).filter(|n| *n > 0) {
                write!(f, " and {hidden} others")?;
            }
        }
        if let Some(gte) = self.gte() {
            write!(f, " >={gte}")?;
        }
        if let Some(lte) = self.lte() {
            write!(f, " <={lte}")?;
        }
        self.min_values.map_or(Ok(()), |min| write!(f, " minValues {min}"))
    }
}
