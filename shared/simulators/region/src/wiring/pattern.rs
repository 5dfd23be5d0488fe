//! EventBridge's event patterns, with the operators that the stacks use; any other is an error.
//!
//! Source: Amazon EventBridge User Guide, "Event pattern syntax" and "Comparison operators".

use serde_json::Value;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPattern(Vec<(String, PatternNode)>);

#[derive(Debug, Clone, PartialEq)]
enum PatternNode {
    /// All fields must match.
    Fields(EventPattern),
    /// One of the alternatives must match; against a list, any element.
    AnyOf(Vec<Matcher>),
}

#[derive(Debug, Clone, PartialEq)]
enum Matcher {
    Equals(Value),
    Prefix(String),
    Suffix(String),
    Exists(bool),
    Numeric(Vec<(Comparison, f64)>),
    AnythingBut(Vec<Value>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// A pattern that EventBridge, or this reader, doesn't know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at `{field}`: {problem}")]
pub struct PatternError {
    /// The field.
    pub field: String,
    /// The problem.
    pub problem: String,
}

fn wrong(field: &str, problem: &str) -> PatternError {
    PatternError { field: field.to_owned(), problem: problem.to_owned() }
}

impl EventPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`PatternError`] for an operator that isn't known here.
    pub fn parse(pattern: &Value) -> Result<Self, PatternError> {
        let fields = pattern.as_object().ok_or_else(|| wrong("", "a pattern is an object"))?;
        let parsed = fields.iter().map(|(name, value)| {
            let node = match value {
                Value::Object(_) => PatternNode::Fields(Self::parse(value)?),
                Value::Array(alternatives) => PatternNode::AnyOf(
                    alternatives.iter().map(|a| parse_matcher(name, a)).collect::<Result<_, _>>()?,
                ),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    return Err(wrong(name, "a leaf is a list of alternatives"));
                }
            };
            Ok((name.clone(), node))
        });
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    /// Whether an event matches: every field of the pattern is there and matches.
    #[must_use]
    pub fn matches(&self, event: &Value) -> bool {
        self.0.iter().all(|(name, node)| match (node, event.get(name)) {
            (PatternNode::Fields(inner), Some(value)) => inner.matches(value),
            (PatternNode::Fields(_), None) => false,
            (PatternNode::AnyOf(alternatives), found) => alternatives.iter().any(|m| matches_value(m, found)),
        })
    }
}

fn parse_matcher(field: &str, value: &Value) -> Result<Matcher, PatternError> {
    let Some(operator) = value.as_object() else { return Ok(Matcher::Equals(value.clone())) };
    let (name, argument) = operator
        .iter()
        .next()
        .filter(|_| operator.len() == 1)
        .ok_or_else(|| wrong(field, "an operator is an object with one field"))?;
    match (name.as_str(), argument) {
        ("prefix", Value::String(text)) => Ok(Matcher::Prefix(text.clone())),
        ("suffix", Value::String(text)) => Ok(Matcher::Suffix(text.clone())),
        ("exists", Value::Bool(wanted)) => Ok(Matcher::Exists(*wanted)),
        ("anything-but", Value::Array(values)) => Ok(Matcher::AnythingBut(values.clone())),
        ("anything-but", Value::String(_) | Value::Number(_)) => {
            Ok(Matcher::AnythingBut(vec![argument.clone()]))
        }
        ("numeric", Value::Array(parts)) => parse_numeric(field, parts),
        _ => Err(wrong(field, &format!("operator `{name}` isn't known here"))),
    }
}

fn parse_numeric(field: &str, parts: &[Value]) -> Result<Matcher, PatternError> {
    let malformed = || wrong(field, "`numeric` is a list of comparisons and numbers in turn");
    let mut comparisons = Vec::new();
    for pair in parts.chunks(2) {
        let [comparison, number] = pair else { return Err(malformed()) };
        let comparison = match comparison.as_str() {
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::LessOrEqual,
            Some("=") => Comparison::Equal,
            Some(">=") => Comparison::GreaterOrEqual,
            Some(">") => Comparison::Greater,
            Some(_) | None => return Err(malformed()),
        };
        comparisons.push((comparison, number.as_f64().ok_or_else(malformed)?));
    }
    Ok(Matcher::Numeric(comparisons))
}

fn matches_value(matcher: &Matcher, found: Option<&Value>) -> bool {
    match (matcher, found) {
        (Matcher::Exists(wanted), found) => found.is_some() == *wanted,
        (_, None) => false,
        (matcher, Some(Value::Array(elements))) => elements.iter().any(|e| matches_scalar(matcher, e)),
        (matcher, Some(value)) => matches_scalar(matcher, value),
    }
}

fn matches_scalar(matcher: &Matcher, value: &Value) -> bool {
    match matcher {
        Matcher::Equals(wanted) => wanted == value,
        Matcher::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix.as_str())),
        Matcher::Suffix(suffix) => value.as_str().is_some_and(|text| text.ends_with(suffix.as_str())),
        Matcher::Exists(wanted) => *wanted,
        Matcher::AnythingBut(values) => !values.contains(value),
        Matcher::Numeric(comparisons) => value.as_f64().is_some_and(|number| {
            comparisons.iter().all(|(comparison, bound)| match comparison {
                Comparison::Less => number < *bound,
                Comparison::LessOrEqual => number <= *bound,
                Comparison::Equal => (number - *bound).abs() < f64::EPSILON,
                Comparison::GreaterOrEqual => number >= *bound,
                Comparison::Greater => number > *bound,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pattern: Value, event: Value, expected: bool) {
        assert_eq!(EventPattern::parse(&pattern).unwrap().matches(&event), expected, "{pattern} {event}");
    }

    #[test]
    fn fields_are_anded_and_alternatives_ored() {
        check(json!({"a": ["x", "y"], "b": {"c": [1]}}), json!({"a": "y", "b": {"c": 1}}), true);
        check(json!({"a": ["x", "y"], "b": {"c": [1]}}), json!({"a": "y", "b": {"c": 2}}), false);
        check(json!({"a": ["x"]}), json!({}), false);
    }

    #[test]
    fn operators_match_as_eventbridge_documents() {
        check(json!({"a": [{"prefix": "tenon."}]}), json!({"a": "tenon.agent.x"}), true);
        check(json!({"a": [{"suffix": ".x"}]}), json!({"a": "tenon.agent.x"}), true);
        check(json!({"a": [{"exists": false}]}), json!({}), true);
        check(json!({"a": [{"numeric": [">", 0, "<=", 5]}]}), json!({"a": 5}), true);
        check(json!({"a": [{"numeric": [">", 0]}]}), json!({"a": 0}), false);
        check(json!({"a": [{"anything-but": ["x"]}]}), json!({"a": "y"}), true);
    }

    #[test]
    fn any_element_of_a_list_matches() {
        check(json!({"a": ["x"]}), json!({"a": ["y", "x"]}), true);
        check(json!({"a": ["x"]}), json!({"a": []}), false);
    }

    #[test]
    fn an_unknown_operator_is_refused_when_read() {
        let error = EventPattern::parse(&json!({"a": [{"cidr": "10.0.0.0/8"}]})).unwrap_err();
        assert_eq!(error.to_string(), "at `a`: operator `cidr` isn't known here");
    }
}
