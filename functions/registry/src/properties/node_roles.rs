//! The node roles of a cluster, each with its instance profile.
//!
//! Decides the forms of roles and profiles, and that a role has one profile.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::{PropertyReader, told};

/// The longest name of a role. Source: IAM API Reference, `CreateRole`, read 2026-11.
pub(super) const LONGEST_ROLE: usize = 64;
/// The longest name of an instance profile. Source: IAM API Reference, `CreateInstanceProfile`, read 2026-11.
const LONGEST_PROFILE: usize = 128;

impl PropertyReader<'_> {
    /// The nodes' roles, each with its instance profile. No node starts without one.
    pub(super) fn node_roles(&mut self) -> BTreeMap<String, String> {
        let problems = self.problems.len();
        let value = self.value("NodeRoles");
        let items = value.and_then(Value::as_array);
        if let (Some(value), None) = (value, items) {
            self.wrong("NodeRoles", &told(value), "a list");
        }
        let mut roles = BTreeMap::new();
        for item in items.into_iter().flatten() {
            match node_role(item) {
                Ok(Some((role, profile))) => {
                    let first = roles.entry(role.clone()).or_insert_with(|| profile.clone());
                    if *first != profile {
                        self.problems.push(format!(
                            "`NodeRoles` gives role `{role}` two instance profiles, `{first}` and `{profile}`: keep one \
                             of them, because classes name the role without its path"
                        ));
                    }
                }
                Ok(None) => {}
                Err(problem) => self.problems.push(problem),
            }
        }
        if roles.is_empty() && self.problems.len() == problems {
            self.problems
                .push("`NodeRoles` is empty: expected a node role and its instance profile".to_owned());
        }
        roles
    }
}

/// The name in a role's ARN, after its path.
pub(super) fn role_name(arn: &str) -> Option<&str> {
    let mut parts = arn.splitn(6, ':');
    let (scheme, _, service) = (parts.next()?, parts.next()?, parts.next()?);
    let name = parts.nth(2)?.strip_prefix("role/")?.rsplit('/').next()?;
    (scheme == "arn" && service == "iam" && !name.is_empty()).then_some(name)
}

/// The names of a node role and its instance profile, `Role` and `InstanceProfile`; nothing where both are empty, as for
/// a number without a role. A text is a role's ARN, and its profile has its name: CloudFormation repeats that form of
/// earlier templates where it rolls back from this one.
fn node_role(item: &Value) -> Result<Option<(String, String)>, String> {
    if item.as_str() == Some("") {
        return Ok(None);
    }
    if let Some(name) = item.as_str().and_then(|arn| role_name(arn.trim())) {
        return Ok(Some((name.to_owned(), name.to_owned())));
    }
    let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::trim);
    let (Some(role), Some(profile)) = (text("Role"), text("InstanceProfile")) else {
        let found = told(item);
        return Err(format!(
            "`NodeRoles` is `{found}`: expected `Role` and `InstanceProfile`, or a role's ARN"
        ));
    };
    if role.is_empty() && profile.is_empty() {
        return Ok(None);
    }
    if role.is_empty() {
        return Err(format!("`NodeRoles` has instance profile `{profile}` without its role: add the role"));
    }
    let name = if role.starts_with("arn:") { role_name(role) } else { role.rsplit('/').next() };
    let Some(name) = name.filter(|name| is_iam_name(name, LONGEST_ROLE)) else {
        return Err(format!(
            "`NodeRoles` has role `{role}`: expected a role's name of 1 to {LONGEST_ROLE} letters, digits and \
             `_+=,.@-`, behind its path if it has one"
        ));
    };
    let of_arn = profile.starts_with("arn:").then(|| profile.rsplit('/').next()).flatten();
    let own = of_arn.unwrap_or(profile);
    if !is_iam_name(own, LONGEST_PROFILE) {
        return Err(format!(
            "`NodeRoles` gives role `{role}` instance profile `{profile}`: expected an instance profile's name of 1 to \
             {LONGEST_PROFILE} letters, digits and `_+=,.@-`, without a path"
        ));
    }
    Ok(Some((name.to_owned(), own.to_owned())))
}

pub(super) fn is_iam_name(text: &str, longest: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(allowed)
}
