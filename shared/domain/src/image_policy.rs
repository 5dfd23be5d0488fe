//! A class's policy on images: which of those that its terms select it takes.
//!
//! Decides the grammar of the annotation `tenon.dev/image-policy`, a small object in JSON or YAML, and its defaults.
//! It doesn't judge an image (`node-classes` does), and allows none that the cluster's registry entry doesn't.
//!
//! Invariant: a policy with a problem isn't read in part, so that a typing error lets no image through.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::Ec2NodeClass;
use crate::image::ImageState;
use crate::labels::IMAGE_POLICY;
use crate::manifest;
use crate::manifest::duration::{format_plain, parse_plain};
use crate::requirement::hints::nearest;

/// The keys of the object.
const KEYS: [&str; 5] = ["acceptedStates", "minimumAge", "owners", "deprecated", "requiredTags"];

/// Owners by alias (docs.aws.amazon.com/AWSEC2/latest/APIReference `API_DescribeImages.html`, read November 2026).
const ALIASES: [&str; 4] = ["self", "amazon", "aws-backup-vault", "aws-marketplace"];

/// Digits of an account.
const ACCOUNT_DIGITS: usize = 12;

/// EC2's bounds for an image's tags (docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html, read November 2026).
const TAGS: usize = 50;
const TAG_KEY_CHARS: usize = 128;
const TAG_VALUE_CHARS: usize = 256;

/// The most problems that are told, and the most characters of one: a condition's message has at most 32,768
/// (`metav1.Condition`), and somebody may put anything into an annotation.
const PROBLEMS: usize = 5;
const PROBLEM_CHARS: usize = 200;

/// A policy. The default accepts every available image, deprecated ones as the last choice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImagePolicy {
    /// `minimumAge`: how long ago an image must have been created.
    pub minimum_age: SignedDuration,
    /// `owners`: accounts, `self` or aliases; empty for every owner.
    pub owners: BTreeSet<String>,
    /// `deprecated`.
    pub deprecated: DeprecatedImages,
    /// `requiredTags`; the value `*` matches any value.
    pub required_tags: BTreeMap<String, String>,
}

crate::words! {
    /// What a policy does with deprecated images.
    #[derive(Default)]
    pub enum DeprecatedImages {
        /// They are the last choice, as with the peer.
        #[default]
        Accept = "accept",
        /// They are rejected.
        Reject = "reject",
    }
}

/// A policy that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("can't read annotation `{}`: {}", IMAGE_POLICY, problems.join("; "))]
pub struct ImagePolicyError {
    /// The first problems, each with its remedy.
    pub problems: Vec<String>,
}

impl ImagePolicyError {
    fn of(problems: Vec<String>) -> Self {
        let bounded = |problem: String| match problem.char_indices().nth(PROBLEM_CHARS) {
            Some((end, _)) => format!("{}...", problem.get(..end).unwrap_or_default()),
            None => problem,
        };
        Self { problems: problems.into_iter().take(PROBLEMS).map(bounded).collect() }
    }
}

impl ImagePolicy {
    /// A class's policy; without the annotation the default.
    ///
    /// # Errors
    /// [`ImagePolicyError`] has all problems.
    pub fn of(class: &Ec2NodeClass) -> Result<Self, ImagePolicyError> {
        text_of(class).map_or_else(|| Ok(Self::default()), Self::parse)
    }

    /// Reads the annotation's text.
    ///
    /// # Errors
    /// [`ImagePolicyError`] has all problems.
    pub fn parse(text: &str) -> Result<Self, ImagePolicyError> {
        let one = |problem| ImagePolicyError::of(vec![problem]);
        let Value::Object(fields) = manifest::document(text).map_err(one)? else {
            return Err(one(r#"it isn't an object; write such as `{"minimumAge": "2h"}`"#.to_owned()));
        };
        let mut policy = Self::default();
        let mut problems = Vec::new();
        for (key, value) in &fields {
            if let Err(problem) = policy.read(key, value) {
                problems.push(format!("`{key}` {problem}"));
            }
        }
        if problems.is_empty() { Ok(policy) } else { Err(ImagePolicyError::of(problems)) }
    }

    /// `minimumAge` as it is written.
    #[must_use]
    pub fn minimum_age_text(&self) -> String {
        format_plain(self.minimum_age)
    }

    fn read(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match key {
            "acceptedStates" => accepted_states(&typed::<Vec<String>>(value, "a list of states")?)?,
            "minimumAge" => {
                let text: String = typed(value, "a duration such as `\"2h\"`")?;
                let age = parse_plain(&text);
                self.minimum_age = age.ok_or_else(|| {
                    format!(
                        "has `{text}`, which isn't a duration; write hours, minutes and seconds, such as `1h30m`"
                    )
                })?;
            }
            "owners" => self.owners = owners(typed(value, "a list of accounts in quotes")?)?,
            "deprecated" => {
                let text: String = typed(value, "`accept` or `reject`")?;
                let word = DeprecatedImages::parse(&text);
                self.deprecated = word.ok_or_else(|| format!("has `{text}`; write `accept` or `reject`"))?;
            }
            "requiredTags" => {
                self.required_tags = required_tags(typed(value, "a map of tags with values in quotes")?)?;
            }
            _ => return Err(unknown_key(key)),
        }
        Ok(())
    }
}

/// The annotation's text.
#[must_use]
pub fn text_of(class: &Ec2NodeClass) -> Option<&str> {
    class.meta.annotations.get(IMAGE_POLICY).map(String::as_str)
}

fn typed<T: DeserializeOwned>(value: &Value, what: &str) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| format!("isn't {what}: {error}"))
}

fn unknown_key(key: &str) -> String {
    match nearest(key, KEYS) {
        Some(near) => format!("isn't a key; did you mean `{near}`?"),
        None => format!("isn't a key; expected `{}`", KEYS.join("`, `")),
    }
}

/// EC2 launches nothing but available images, so a list that is valid restricts nothing.
fn accepted_states(states: &[String]) -> Result<(), String> {
    if states.is_empty() {
        return Err("accepts no state; write `[\"available\"]`, or leave it out".to_owned());
    }
    for state in states {
        match ImageState::parse(state) {
            Some(ImageState::Available) => {}
            Some(
                ImageState::Pending
                | ImageState::Failed
                | ImageState::Deregistered
                | ImageState::Disabled
                | ImageState::Invalid,
            ) => return Err(format!("has `{state}`, which EC2 doesn't launch; write only `available`")),
            None => return Err(format!("has `{state}`, which isn't a state; write only `available`")),
        }
    }
    Ok(())
}

fn required_tags(tags: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    if tags.len() > TAGS {
        return Err(format!("has {} tags, an image has at most {TAGS}; leave some out", tags.len()));
    }
    let long = |(key, value): &(&String, &String)| {
        key.chars().count() > TAG_KEY_CHARS || value.chars().count() > TAG_VALUE_CHARS
    };
    match tags.iter().find(long) {
        Some((key, _)) => Err(format!(
            "has a tag that is longer than EC2's, {TAG_KEY_CHARS} and {TAG_VALUE_CHARS} characters; shorten `{key}`"
        )),
        None => Ok(tags),
    }
}

fn owners(owners: Vec<String>) -> Result<BTreeSet<String>, String> {
    if owners.is_empty() {
        return Err("accepts no owner; name some, or leave it out".to_owned());
    }
    let known = |owner: &str| {
        let account = owner.len() == ACCOUNT_DIGITS && owner.bytes().all(|byte| byte.is_ascii_digit());
        account || ALIASES.contains(&owner)
    };
    match owners.iter().find(|owner| !known(owner)) {
        Some(owner) => Err(format!(
            "has `{owner}`; write an account's {ACCOUNT_DIGITS} digits, or one of `{}`",
            ALIASES.join("`, `")
        )),
        None => Ok(owners.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match ImagePolicy::parse(text) {
            Ok(ImagePolicy { minimum_age, owners, deprecated, required_tags }) => {
                let owners: Vec<String> = owners.into_iter().collect();
                let tags: Vec<String> =
                    required_tags.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
                let age = minimum_age.as_secs();
                format!("{age}s owners={} {deprecated} tags={}", owners.join(","), tags.join(","))
            }
            Err(error) => error.to_string(),
        }
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(read(text), expected, "{text}");
    }

    #[test]
    fn a_policy_is_read_from_json_and_from_yaml() {
        check("{}", "0s owners= accept tags=");
        let all = "7200s owners=111122223333,self reject tags=stage=approved";
        check(
            r#"{"minimumAge":"2h","owners":["self","111122223333"],"requiredTags":{"stage":"approved"},"deprecated":"reject"}"#,
            all,
        );
        check(
            "minimumAge: 2h\nowners: [self, '111122223333']\nrequiredTags: {stage: approved}\ndeprecated: reject",
            all,
        );
        check(r#"{"acceptedStates":["available"]}"#, "0s owners= accept tags=");
    }

    #[test]
    fn every_problem_is_told_with_its_key_and_remedy() {
        let wrong = |text: &str, says: &[&str]| {
            let told = read(text);
            assert!(told.starts_with("can't read annotation `tenon.dev/image-policy`: "), "{told}");
            for part in says {
                assert!(told.contains(part), "{text}: {told}");
            }
        };
        wrong("", &["it isn't an object; write such as"]);
        wrong("2h", &["it isn't an object"]);
        wrong("{", &[""]);
        wrong("{}\n---\n{}", &["one document"]);
        wrong(
            r#"{"minimumAge":"1d","requiredTag":{"a":"b"}}"#,
            &[
                "`minimumAge` has `1d`, which isn't a duration",
                "`requiredTag` isn't a key; did you mean `requiredTags`?",
            ],
        );
        wrong(r#"{"minimumAge":7200}"#, &["`minimumAge` isn't a duration such as `\"2h\"`"]);
        wrong(r#"{"hours":2}"#, &["`hours` isn't a key; expected `acceptedStates`, `minimumAge`"]);
        wrong(r#"{"acceptedStates":["pending"]}"#, &["`pending`, which EC2 doesn't launch"]);
        wrong(r#"{"acceptedStates":["ready"]}"#, &["`ready`, which isn't a state"]);
        wrong(r#"{"acceptedStates":[]}"#, &["accepts no state"]);
        wrong(r#"{"owners":["me"]}"#, &["`owners` has `me`; write an account's 12 digits"]);
        wrong("owners: [111122223333]", &["`owners` isn't a list of accounts in quotes"]);
        wrong(r#"{"owners":[]}"#, &["accepts no owner"]);
        wrong(r#"{"deprecated":"no"}"#, &["`deprecated` has `no`; write `accept` or `reject`"]);
        wrong("requiredTags: {stable: true}", &["`requiredTags` isn't a map of tags"]);
        let long = "x".repeat(300);
        wrong(
            &format!("requiredTags: {{stage: {long}}}"),
            &["`requiredTags` has a tag that is longer", "`stage`"],
        );
        assert!(read(&format!("deprecated: {long}")).len() < 300, "a message is bounded");
    }
}
