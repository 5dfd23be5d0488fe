//! Reading of properties one by one, with the problems of all of them.
//!
//! Decides how a missing, malformed or unknown property is reported. It doesn't decide which values are valid: its caller
//! parses them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tenon_domain::registry::FeatureGate;

/// The properties that CloudFormation adds to every custom resource.
const CLOUDFORMATIONS: [&str; 2] = ["ServiceToken", "ServiceTimeout"];

/// The properties, with those that were asked for, and what was wrong with them.
pub(super) struct PropertyReader<'a> {
    pub(super) properties: &'a Map<String, Value>,
    asked: BTreeSet<&'static str>,
    pub(super) problems: Vec<String>,
}

impl<'a> PropertyReader<'a> {
    /// Of properties that nobody has asked for.
    pub(super) fn of(properties: &'a Map<String, Value>) -> Self {
        Self { properties, asked: BTreeSet::from(CLOUDFORMATIONS), problems: Vec::new() }
    }

    pub(super) fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.insert(name);
        self.properties.get(name)
    }

    pub(super) fn wrong(&mut self, name: &str, found: &str, expected: &str) {
        self.problems.push(format!("`{name}` is `{found}`: expected {expected}"));
    }

    /// A property that must be there.
    pub(super) fn parsed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if self.value(name).is_none() {
            self.problems.push(format!("`{name}` is missing: expected {expected}"));
        }
        self.parsed_if(name, expected, parse)
    }

    /// A property that may be left out.
    pub(super) fn parsed_if<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let parsed = value.as_str().and_then(parse);
        if parsed.is_none() {
            self.wrong(name, &told(value), expected);
        }
        parsed
    }

    /// A list; a missing one is empty, and so is one with a single empty text, which is CloudFormation's empty list.
    pub(super) fn list<T: Ord>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> BTreeSet<T> {
        let Some(value) = self.value(name) else { return BTreeSet::new() };
        let Some(items) = value.as_array() else {
            self.wrong(name, &told(value), "a list");
            return BTreeSet::new();
        };
        let mut found = BTreeSet::new();
        for item in items.iter().filter(|item| item.as_str() != Some("")) {
            match item.as_str().and_then(|text| parse(text.trim())) {
                Some(parsed) => drop(found.insert(parsed)),
                None => self.wrong(name, &told(item), expected),
            }
        }
        found
    }

    /// A gate, if it is given.
    pub(super) fn gate(&mut self, name: &'static str) -> Option<FeatureGate> {
        self.parsed_if(name, "`Enabled` or `Disabled`", FeatureGate::parse)
    }

    /// An unknown property is a misspelt one.
    pub(super) fn strangers(&mut self) {
        let unknown = self.properties.keys().filter(|name| !self.asked.contains(name.as_str()));
        self.problems.extend(unknown.map(|name| format!("`{name}` isn't a cluster property: remove it")));
    }
}

/// A value as problems quote it.
pub(super) fn told(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
