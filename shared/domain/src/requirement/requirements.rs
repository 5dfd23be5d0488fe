//! A set of requirements on a node, one for each key.
//!
//! Invariant: each requirement is stored under its own key. An absent key is unconstrained.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use super::operator::{NodeSelectorRequirement, WrittenRequirement};
use super::requirement::{Requirement, RequirementError};

/// Requirements by key, all of which have to hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Requirements(BTreeMap<String, Requirement>);

impl Requirements {
    /// No requirement.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Each label with its value.
    #[must_use]
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        labels.into_iter().map(|(key, value)| Requirement::one_of(key, [value])).collect()
    }

    /// Written requirements, intersected where a key comes twice.
    ///
    /// # Errors
    /// All that are wrong, each with its index.
    pub fn parse(written: &[NodeSelectorRequirement]) -> Result<Self, Vec<(usize, RequirementError)>> {
        let (mut requirements, mut errors) = (Self::new(), Vec::new());
        for (index, one) in written.iter().enumerate() {
            match Requirement::parse(one) {
                Ok(requirement) => requirements.add(requirement),
                Err(error) => errors.push((index, error)),
            }
        }
        if errors.is_empty() { Ok(requirements) } else { Err(errors) }
    }

    /// Adds a requirement; the key's values become those of both.
    pub fn add(&mut self, requirement: Requirement) {
        match self.0.entry(requirement.key().to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(requirement);
            }
            Entry::Occupied(mut entry) => {
                let both = entry.get().intersection(&requirement);
                entry.insert(both);
            }
        }
    }

    /// Replaces the requirement of its key.
    pub fn replace(&mut self, requirement: Requirement) {
        self.0.insert(requirement.key().to_owned(), requirement);
    }

    /// Removes and returns the requirement of a key.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(key)
    }

    /// Adds all requirements of another set.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().cloned().for_each(|requirement| self.add(requirement));
    }

    /// This and another set.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.add_all(other);
        self
    }

    /// The requirement of a key, if there is one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.0.get(key)
    }

    /// Whether a value of a key is allowed; every value of an unconstrained key is.
    #[must_use]
    pub fn allows(&self, key: &str, value: &str) -> bool {
        self.get(key).is_none_or(|requirement| requirement.has(value))
    }

    /// Whether a key has a requirement.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// How many keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no requirement.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The requirements by key.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    /// The labels that are decided: keys with a single value.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.iter()
            .filter_map(|r| r.single_value().map(|value| (r.key().to_owned(), value.to_owned())))
            .collect()
    }

    /// The written form, by key, then operator.
    #[must_use]
    pub fn to_node_selectors(&self) -> Vec<NodeSelectorRequirement> {
        self.written().into_iter().map(NodeSelectorRequirement::from).collect()
    }

    /// The same, borrowed.
    #[must_use]
    pub fn written(&self) -> Vec<WrittenRequirement<'_>> {
        let mut written: Vec<_> = self.iter().flat_map(Requirement::written).collect();
        written.sort_by(|a, b| (a.key, a.operator.as_str()).cmp(&(b.key, b.operator.as_str())));
        written
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(items: I) -> Self {
        let mut requirements = Self::new();
        items.into_iter().for_each(|requirement| requirements.add(requirement));
        requirements
    }
}

/// The requirements separated by commas.
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}
