//! Parameters of Systems Manager's Parameter Store, as a request names them.
//!
//! Decides where a name ends and its selector begins. Source: "GetParameters" of the AWS Systems Manager API Reference
//! (read November 2026).

/// The most names of one call; the caller divides longer lists. Source: as above, `Names`.
pub const PARAMETERS_PER_CALL: usize = 10;

/// A parameter's value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameter {
    /// What was asked for: the name, or the ARN, with its selector.
    pub name: String,
    /// The value; that of a `SecureString` isn't decrypted.
    pub value: String,
}

/// A name or an ARN without its selector, and the selector: a version or a label.
#[must_use]
pub fn without_selector(asked: &str) -> (&str, Option<&str>) {
    // A name has no colon, an ARN has five before the resource.
    let before = if asked.starts_with("arn:") { 6 } else { 1 };
    let Some((at, _)) = asked.match_indices(':').nth(before - 1) else { return (asked, None) };
    match (asked.get(..at), asked.get(at + 1..)) {
        (Some(name), Some(selector)) => (name, Some(selector)),
        (None, _) | (_, None) => (asked, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: &str, name: &str, selector: Option<&str>) {
        assert_eq!(without_selector(asked), (name, selector), "{asked}");
    }

    #[test]
    fn a_selector_stands_behind_a_name_and_behind_an_arn() {
        check("/golden/ami", "/golden/ami", None);
        check("/golden/ami:3", "/golden/ami", Some("3"));
        check("/golden/ami:stable", "/golden/ami", Some("stable"));
        let arn = "arn:aws:ssm:us-east-1:111122223333:parameter/golden/ami";
        check(arn, arn, None);
        check(&format!("{arn}:3"), arn, Some("3"));
        let public = "arn:aws:ssm:us-east-1::parameter/aws/service/x/image_id";
        check(public, public, None);
    }
}
