//! A function's configuration from its environment, parsed once.
//!
//! Decides the variables and their valid values, and reports all problems at once. Whether a named resource exists
//! shows at its first use.

use std::fmt;

use tenon_domain::id::{ClusterName, InstallationId, Region};
use tenon_domain::wake::FunctionName;
use tenon_runtime::Installation;

/// The stack's variables.
const INSTALLATION: &str = "TENON_INSTALLATION";
const ACCOUNT: &str = "TENON_ACCOUNT";
const TABLE: &str = "TENON_TABLE";
const BUS: &str = "TENON_BUS";
const QUEUES: &str = "TENON_QUEUES";
/// Lambda's own.
const REGION: &str = "AWS_REGION";

/// A function's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionConfiguration {
    /// The installation.
    pub installation: Installation,
    /// The state table's name or ARN.
    pub table: String,
    /// The bus's name or ARN.
    pub bus: String,
    /// The installation's queues.
    pub queues: Queues,
}

/// The URLs of the installation's queues, which differ in their ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queues {
    prefix: String,
}

impl Queues {
    /// The queue that wakes a function.
    #[must_use]
    pub fn of_function(&self, function: FunctionName) -> String {
        format!("{}{function}", self.prefix)
    }

    /// The queue that rings a cluster's agent.
    #[must_use]
    pub fn of_agent(&self, cluster: &ClusterName) -> String {
        format!("{}agent-{cluster}", self.prefix)
    }
}

/// All problems of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationError {
    /// One a variable, in the order of this module.
    pub problems: Vec<VariableProblem>,
}

/// The problem of a variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariableProblem {
    /// It isn't there.
    #[error("`{variable}` isn't set: set it to {expected}")]
    Missing {
        /// The variable.
        variable: &'static str,
        /// The expected form.
        expected: &'static str,
    },
    /// It is malformed.
    #[error("`{variable}` is `{value}`: set it to {expected}")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid environment of the function (template.yaml sets it)")?;
        self.problems.iter().enumerate().try_for_each(|(index, problem)| {
            let separator = if index == 0 { ": " } else { "; " };
            write!(f, "{separator}{problem}")
        })
    }
}

impl std::error::Error for ConfigurationError {}

impl FunctionConfiguration {
    /// The configuration of this process.
    ///
    /// # Errors
    /// [`ConfigurationError`] names every variable that is missing or malformed.
    pub fn from_environment() -> Result<Self, ConfigurationError> {
        Self::parse(|variable| std::env::var(variable).ok())
    }

    /// The configuration from variables.
    ///
    /// # Errors
    /// [`ConfigurationError`] names every variable that is missing or malformed.
    pub fn parse(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigurationError> {
        let mut read = VariableReader { variable, problems: Vec::new() };
        let id = read.value(INSTALLATION, "the installation's id", |text| InstallationId::parse(text).ok());
        let account = read.value(ACCOUNT, "the account's twelve digits", |text| {
            (text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.to_owned())
        });
        let table = read.value(TABLE, "the state table's name or ARN", name);
        let bus = read.value(BUS, "the name or ARN of the installation's bus", name);
        let expected = "the start of its queues' URLs, up to and with the installation's id and `-`";
        let prefix = read.value(QUEUES, expected, |text| queues(text, id.as_ref()));
        let region =
            read.value(REGION, "the function's region, which Lambda does", |t| Region::parse(t).ok());
        match (id, account, table, bus, prefix, region) {
            (Some(id), Some(account), Some(table), Some(bus), Some(prefix), Some(region)) => Ok(Self {
                installation: Installation { id, region, account, table: table.clone() },
                table,
                bus,
                queues: Queues { prefix },
            }),
            _ => Err(ConfigurationError { problems: read.problems }),
        }
    }
}

struct VariableReader<F> {
    variable: F,
    problems: Vec<VariableProblem>,
}

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    fn value<T>(
        &mut self,
        variable: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let Some(value) = (self.variable)(variable).filter(|value| !value.is_empty()) else {
            self.problems.push(VariableProblem::Missing { variable, expected });
            return None;
        };
        let parsed = parse(&value);
        if parsed.is_none() {
            self.problems.push(VariableProblem::Malformed { variable, value, expected });
        }
        parsed
    }
}

/// A name or an ARN: characters that DynamoDB and EventBridge allow, which excludes the remains of a broken template.
fn name(text: &str) -> Option<String> {
    let admitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    (text.len() <= 1600 && text.chars().all(admitted)).then(|| text.to_owned())
}

/// The prefix of queue URLs. Where the installation's id couldn't be read, that is the problem to tell.
fn queues(text: &str, installation: Option<&InstallationId>) -> Option<String> {
    let of_web = text.starts_with("https://") || text.starts_with("http://");
    let of_installation = installation.is_none_or(|id| text.ends_with(&format!("/{id}-")));
    (of_web && of_installation).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const GOOD: [(&str, &str); 6] = [
        (INSTALLATION, "tenon"),
        (ACCOUNT, "123456789012"),
        (TABLE, "tenon"),
        (BUS, "tenon"),
        (QUEUES, "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-"),
        (REGION, "us-east-1"),
    ];

    fn parse(changes: &[(&str, &str)]) -> Result<FunctionConfiguration, ConfigurationError> {
        let variables: BTreeMap<&str, &str> = GOOD.iter().chain(changes).copied().collect();
        FunctionConfiguration::parse(|variable| variables.get(variable).map(|value| (*value).to_owned()))
    }

    fn check(changes: &[(&str, &str)], expected: &[&str]) {
        let problems = parse(changes).unwrap_err().problems;
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn the_stacks_variables_are_the_configuration() {
        let configuration = parse(&[]).unwrap();
        assert_eq!(configuration.installation.id.as_str(), "tenon");
        assert_eq!(configuration.installation.region.as_str(), "us-east-1");
        assert_eq!(configuration.installation.account, "123456789012");
        assert_eq!(configuration.installation.table, configuration.table);
        assert_eq!(
            configuration.queues.of_function(FunctionName::NodeClasses),
            "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-node-classes"
        );
        assert_eq!(
            configuration.queues.of_agent(&ClusterName::parse("prod").unwrap()),
            "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-agent-prod"
        );
        let arn = "arn:aws:events:us-east-1:123456789012:event-bus/tenon";
        assert_eq!(parse(&[(BUS, arn)]).unwrap().bus, arn);
    }

    #[test]
    fn a_malformed_variable_is_told_with_what_it_has_to_be() {
        check(
            &[(INSTALLATION, "Tenon")],
            &["`TENON_INSTALLATION` is `Tenon`: set it to the installation's id"],
        );
        check(&[(ACCOUNT, "12345")], &["`TENON_ACCOUNT` is `12345`: set it to the account's twelve digits"]);
        check(
            &[(QUEUES, "https://sqs.us-east-1.amazonaws.com/123456789012/other-")],
            &[
                "`TENON_QUEUES` is `https://sqs.us-east-1.amazonaws.com/123456789012/other-`: set it to the start of its \
               queues' URLs, up to and with the installation's id and `-`",
            ],
        );
        check(
            &[(TABLE, "${Table}")],
            &["`TENON_TABLE` is `${Table}`: set it to the state table's name or ARN"],
        );
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let error = FunctionConfiguration::parse(|_| None).unwrap_err();
        let variables: Vec<&str> = error
            .problems
            .iter()
            .map(|problem| match problem {
                VariableProblem::Missing { variable, .. } | VariableProblem::Malformed { variable, .. } => {
                    *variable
                }
            })
            .collect();
        assert_eq!(variables, [INSTALLATION, ACCOUNT, TABLE, BUS, QUEUES, REGION]);
        let error = parse(&[(TABLE, ""), (REGION, "here")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid environment of the function (template.yaml sets it): `TENON_TABLE` isn't set: set it to the state \
             table's name or ARN; `AWS_REGION` is `here`: set it to the function's region, which Lambda does"
        );
    }
}
