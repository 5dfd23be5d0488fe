//! Parameter Store of the twin: this account's parameters, and those that AWS publishes.
//!
//! Decides which parameter a name, an ARN or a version means. Not modelled: labels, `SecureString`, versions of AWS's
//! own parameters, parameters that other accounts share, the events of a change.

use std::collections::BTreeMap;

use tenon_domain::partition::AwsPartition;

use super::call::Call;
use super::state::{TwinState, error};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{PARAMETERS_PER_CALL, Parameter, without_selector};

/// Where AWS's own parameters are.
const PUBLIC: &str = "/aws/service/";

/// Parameters by name, each with its values, the oldest first. One without values was deleted: it hides AWS's own.
pub(super) type OwnParameters = BTreeMap<String, Vec<String>>;

impl TwinState {
    /// GetParameters: one malformed name refuses the whole call, an unknown one is left out.
    pub(super) fn parameters(&mut self, names: &[String]) -> Result<Vec<Parameter>, Ec2Error> {
        let refused = |message: &str| Err(error(Call::GetParameters, "ValidationException", message));
        if !(1..=PARAMETERS_PER_CALL).contains(&names.len()) {
            return refused("Member 'names' must have 1 to 10 items");
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-/:".contains(c);
        if names.iter().any(|name| name.is_empty() || !name.chars().all(allowed)) {
            return refused(
                "Parameter name: can't be prefixed with \"ssm\" (case-insensitive). If formed as a path, it can consist of sub-paths divided by slash symbol; each sub-path can be formed as a mix of letters, numbers and the following 3 symbols .-_",
            );
        }
        let named = |name: &String| Some(Parameter { name: name.clone(), value: self.parameter(name)? });
        Ok(names.iter().filter_map(named).collect())
    }

    /// A parameter's value, by name or ARN, with or without a version.
    pub(super) fn parameter(&mut self, asked: &str) -> Option<String> {
        let (asked, version) = without_selector(asked);
        let name = self.parameter_name(asked)?;
        match (self.own_parameters.get(&name), version) {
            (Some(values), None) => values.last().cloned(),
            (Some(values), Some(version)) => {
                let at = version.parse::<usize>().ok()?.checked_sub(1)?;
                values.get(at).cloned()
            }
            (None, None) => self.published_image(&name).map(|id| id.to_string()),
            (None, Some(_)) => None,
        }
    }

    /// The ARN of a parameter; AWS's own have no account.
    pub(super) fn parameter_arn(&self, name: &str) -> String {
        let region = &self.config.region;
        let account = if name.starts_with(PUBLIC) { "" } else { self.config.account.as_str() };
        let path = name.trim_start_matches('/');
        format!("arn:{}:ssm:{region}:{account}:parameter/{path}", AwsPartition::of(region).name)
    }

    /// A parameter's name, from its name or ARN.
    fn parameter_name(&self, asked: &str) -> Option<String> {
        if !asked.starts_with("arn:") {
            return Some(asked.to_owned());
        }
        // `a` and `/a` have the same ARN.
        let (_, path) = asked.split_once(":parameter/")?;
        let names = [format!("/{path}"), path.to_owned()];
        let known = |name: &&String| self.own_parameters.contains_key(*name) || name.starts_with(PUBLIC);
        let name = names.iter().find(known)?;
        (self.parameter_arn(name) == asked).then(|| name.clone())
    }

    pub(super) fn put_parameter(&mut self, name: &str, value: &str) {
        self.own_parameters.entry(name.to_owned()).or_default().push(value.to_owned());
    }

    pub(super) fn delete_parameter(&mut self, name: &str) -> Result<(), NotPossible> {
        if self.parameter(name).is_none() {
            return refuse(format!("there is no parameter `{name}`"));
        }
        self.own_parameters.insert(name.to_owned(), Vec::new());
        Ok(())
    }
}
