//! Conditions and updates as expressions.
//!
//! Names and values are numbered placeholders: `#0`, `:0`. The same commit gives the same expressions, which
//! repeating it under its token requires.

use crate::value::{SdkAttributes, attribute};
use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::{BTreeMap, HashMap};
use tenon_table::action::revision_attributes;
use tenon_table::{Expect, Item, Number, Value, WriteCondition, key};

/// The names and values that expressions of one request speak of.
#[derive(Debug, Default)]
pub(crate) struct Placeholders {
    names: BTreeMap<String, String>,
    values: Vec<AttributeValue>,
}

impl Placeholders {
    pub(crate) fn name(&mut self, name: &str) -> String {
        let next = format!("#{}", self.names.len());
        self.names.entry(name.to_owned()).or_insert(next).clone()
    }

    pub(crate) fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":{}", self.values.len() - 1)
    }

    /// The names of the request; `None` if there are none, because DynamoDB refuses an empty map.
    pub(crate) fn names(&self) -> Option<HashMap<String, String>> {
        let names = || self.names.iter().map(|(name, place)| (place.clone(), name.clone())).collect();
        (!self.names.is_empty()).then(names)
    }

    /// The values of the request; `None` if there are none.
    pub(crate) fn into_values(self) -> Option<SdkAttributes> {
        let values = self.values.into_iter().enumerate();
        let values: SdkAttributes = values.map(|(n, value)| (format!(":{n}"), value)).collect();
        (!values.is_empty()).then_some(values)
    }

    /// The expression of a condition.
    pub(crate) fn condition(&mut self, condition: &WriteCondition) -> String {
        match condition {
            WriteCondition::Item { expect: Expect::Absent, .. } => {
                format!("attribute_not_exists({})", self.name(key::PK))
            }
            WriteCondition::Item { expect: Expect::Revision(revision), .. } => self.at_revision(*revision),
            WriteCondition::Cluster { revision: 0, .. } => {
                let at = self.at_revision(0);
                format!("attribute_not_exists({}) OR {at}", self.name(key::REVISION))
            }
            WriteCondition::Cluster { revision, .. } => self.at_revision(*revision),
        }
    }

    fn at_revision(&mut self, revision: u64) -> String {
        let value = attribute(&Value::N(Number::from(revision)));
        format!("{} = {}", self.name(key::REVISION), self.value(value))
    }

    /// `SET ... REMOVE ...`
    pub(crate) fn update(&mut self, set: &Item, remove: &[String]) -> String {
        let mut clauses = Vec::new();
        if !set.is_empty() {
            let assign = |(name, value): (&String, &Value)| {
                format!("{}={}", self.name(name), self.value(attribute(value)))
            };
            let assignments: Vec<String> = set.iter().map(assign).collect();
            clauses.push(format!("SET {}", assignments.join(",")));
        }
        if !remove.is_empty() {
            let names: Vec<String> = remove.iter().map(|name| self.name(name)).collect();
            clauses.push(format!("REMOVE {}", names.join(",")));
        }
        clauses.join(" ")
    }

    /// The cluster's next revision.
    pub(crate) fn bump(&mut self, next: u64) -> String {
        self.update(&revision_attributes(next), &[])
    }

    /// `ADD ...`
    pub(crate) fn add(&mut self, counter: &str, amount: i64) -> String {
        let amount = attribute(&Value::N(Number::from(amount)));
        format!("ADD {} {}", self.name(counter), self.value(amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_domain::id::ClusterName;
    use tenon_table::{Key, limits};

    fn check(build: impl FnOnce(&mut Placeholders) -> String, expected: &str) {
        let mut placeholders = Placeholders::default();
        let mut text = build(&mut placeholders);
        let names: BTreeMap<_, _> = placeholders.names().unwrap_or_default().into_iter().collect();
        for (place, name) in names.iter().rev() {
            text = text.replace(place, &format!("`{name}`"));
        }
        let values: BTreeMap<_, _> = placeholders.into_values().unwrap_or_default().into_iter().collect();
        for (place, value) in values.iter().rev() {
            text = text.replace(place, value.as_n().or(value.as_s()).unwrap());
        }
        assert_eq!(text, expected);
    }

    #[test]
    fn conditions_say_what_was_observed() {
        let key = || Key::new("p", "s");
        let item = |expect| WriteCondition::Item { key: key(), expect };
        let cluster =
            |revision| WriteCondition::Cluster { cluster: ClusterName::parse("prod").unwrap(), revision };
        check(|p| p.condition(&item(Expect::Absent)), "attribute_not_exists(`pk`)");
        check(|p| p.condition(&item(Expect::Revision(0))), "`revision` = 0");
        check(|p| p.condition(&item(Expect::Revision(u64::MAX))), "`revision` = 18446744073709551615");
        check(|p| p.condition(&cluster(0)), "attribute_not_exists(`revision`) OR `revision` = 0");
        check(|p| p.condition(&cluster(7)), "`revision` = 7");
    }

    #[test]
    fn updates_name_what_they_change() {
        let set = Item::from([
            ("status".to_owned(), Value::text("new")),
            ("size".to_owned(), Value::number(3_u64)),
        ]);
        let remove = ["name".to_owned(), "a.b".to_owned()];
        check(|p| p.update(&set, &[]), "SET `size`=3,`status`=new");
        check(|p| p.update(&set, &remove), "SET `size`=3,`status`=new REMOVE `name`,`a.b`");
        check(|p| p.update(&Item::new(), &remove), "REMOVE `name`,`a.b`");
        check(|p| p.bump(4), "SET `revision`=4,`v`=1");
        check(|p| p.add("count", -2), "ADD `count` -2");
    }

    #[test]
    fn a_name_has_one_placeholder() {
        let mut placeholders = Placeholders::default();
        assert_eq!(placeholders.name("revision"), "#0");
        assert_eq!(placeholders.name("other"), "#1");
        assert_eq!(placeholders.name("revision"), "#0");
        assert!(Placeholders::default().names().is_none());
        assert!(Placeholders::default().into_values().is_none());
    }

    #[test]
    fn the_largest_update_fits_an_expression() {
        /// Of any expression, as DynamoDB's constraints say.
        const EXPRESSION_BYTES: usize = 4096;
        let name = |n: usize| "n".repeat(n + 1);
        let set: Item = (0..limits::UPDATED_ATTRIBUTES).map(|n| (name(n), Value::Null)).collect();
        let length = Placeholders::default().update(&set, &[]).len();
        assert!(length <= EXPRESSION_BYTES, "{length}");
    }
}
