//! Families of instance types, and the patterns by which a cluster's stack names them.
//!
//! Decides which families a pattern matches. It doesn't decide which patterns a cluster has.

use std::fmt;
use std::str::FromStr;

use crate::id::InstanceType;

/// A family such as `m7g`, or all families that begin so, such as `m7*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyPattern(String);

/// A text that is no pattern of families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", FamilyPattern::FORM)]
pub struct FamilyPatternError;

impl FamilyPattern {
    /// Its form, for messages.
    pub const FORM: &str = "an instance family such as `m7g`, or the beginning of some such as `m7*`";

    /// Whether it matches a family.
    #[must_use]
    pub fn matches(&self, family: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => family.starts_with(beginning),
            None => self.0 == family,
        }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FamilyPattern {
    type Err = FamilyPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let family = text.strip_suffix('*').unwrap_or(text);
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if family.is_empty() || !family.bytes().all(fits) {
            return Err(FamilyPatternError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl AsRef<str> for FamilyPattern {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FamilyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl InstanceType {
    /// Its family, such as `m7g` of `m7g.large`.
    #[must_use]
    pub fn family(&self) -> &str {
        self.as_str().split_once('.').map_or(self.as_str(), |(family, _)| family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, family: &str, expected: bool) {
        let pattern: FamilyPattern = pattern.parse().unwrap();
        assert_eq!(pattern.matches(family), expected, "{pattern} of {family}");
    }

    #[test]
    fn a_pattern_matches_its_family_or_all_that_begin_so() {
        check("m7g", "m7g", true);
        check("m7g", "m7gd", false);
        check("m7g", "m7", false);
        check("m7*", "m7g", true);
        check("m7*", "m7", true);
        check("m7*", "m6g", false);
        check("u-6tb1", "u-6tb1", true);
    }

    #[test]
    fn a_type_is_no_pattern() {
        for wrong in ["", "*", "m7g.large", "M7g", "m*g", "m7**", "m7 g"] {
            assert_eq!(wrong.parse::<FamilyPattern>(), Err(FamilyPatternError), "{wrong}");
        }
        assert_eq!(
            FamilyPatternError.to_string(),
            "expected an instance family such as `m7g`, or the beginning of some such as `m7*`"
        );
    }

    #[test]
    fn the_family_of_a_type_is_what_precedes_its_size() {
        let family = |text: &str| InstanceType::parse(text).unwrap().family().to_owned();
        assert_eq!([family("m7g.large"), family("u-6tb1.metal")], ["m7g", "u-6tb1"]);
    }
}
