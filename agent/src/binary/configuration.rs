//! The agent's configuration from its environment.
//!
//! Decides the variables, and reports all problems at once.

use std::net::SocketAddr;

use tenon_domain::id::ClusterName;

/// The default address of health and metrics.
const LISTEN: &str = "0.0.0.0:8080";

/// The agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfiguration {
    /// `TENON_CLUSTER`: the cluster's name, as in the registry.
    pub cluster: ClusterName,
    /// `TENON_INSTALLATION`: the installation's id.
    pub installation: String,
    /// `TENON_TABLE`: the table's name or ARN.
    pub table: String,
    /// `TENON_BUS`: the bus's name or ARN.
    pub bus: String,
    /// `TENON_QUEUE`: the URL of the agent's queue, an output of the cluster's stack.
    pub queue: String,
    /// `AWS_REGION`.
    pub region: String,
    /// `POD_NAME`: this replica.
    pub pod: String,
    /// `POD_NAMESPACE`: where the lease is.
    pub namespace: String,
    /// `TENON_LISTEN`: address and port of `/healthz`, `/readyz` and `/metrics`; 0.0.0.0:8080 where absent.
    pub listen: SocketAddr,
}

/// All that is wrong with the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigurationErrors(Vec<String>);

impl AgentConfiguration {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`ConfigurationErrors`] names every variable that is missing or wrong.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigurationErrors> {
        let mut errors = Vec::new();
        let mut required = |name: &str, remedy: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            if value.is_none() {
                errors.push(format!("`{name}` is missing: set it to {remedy}"));
            }
            value.unwrap_or_default()
        };
        let cluster = required("TENON_CLUSTER", "the cluster's name in the registry");
        let installation = required("TENON_INSTALLATION", "the installation's id, such as `tenon`");
        let table = required("TENON_TABLE", "the name of the region's table");
        let bus = required("TENON_BUS", "the name of the region's bus");
        let queue = required("TENON_QUEUE", "the output `AgentQueueUrl` of the cluster's stack");
        let region = required("AWS_REGION", "the region of the table");
        let pod = required("POD_NAME", "the pod's name, by `fieldRef: metadata.name`");
        let namespace = required("POD_NAMESPACE", "the pod's namespace, by `fieldRef: metadata.namespace`");
        let parsed = ClusterName::parse(cluster.clone());
        if let (Err(error), false) = (&parsed, cluster.is_empty()) {
            errors.push(format!("`TENON_CLUSTER` is invalid: {error}"));
        }
        let listen = variable("TENON_LISTEN").unwrap_or_else(|| LISTEN.to_owned());
        let address = listen.parse();
        if address.is_err() {
            errors.push(format!(
                "`TENON_LISTEN` is `{listen}`: set it to an address and a port, such as `{LISTEN}`"
            ));
        }
        match (parsed, address) {
            (Ok(cluster), Ok(listen)) if errors.is_empty() => {
                Ok(Self { cluster, installation, table, bus, queue, region, pod, namespace, listen })
            }
            _ => Err(ConfigurationErrors(errors)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, &str); 8] = [
        ("TENON_CLUSTER", "prod"),
        ("TENON_INSTALLATION", "tenon"),
        ("TENON_TABLE", "tenon"),
        ("TENON_BUS", "tenon"),
        ("TENON_QUEUE", "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-agent-prod"),
        ("AWS_REGION", "us-east-1"),
        ("POD_NAME", "tenon-agent-0"),
        ("POD_NAMESPACE", "tenon-system"),
    ];

    fn read(vars: &[(&str, &str)]) -> Result<AgentConfiguration, String> {
        let find = |name: &str| {
            vars.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        AgentConfiguration::read(find).map_err(|errors| errors.to_string())
    }

    #[test]
    fn what_is_given_is_read() {
        let read = read(&ALL).unwrap();
        assert_eq!((read.cluster.as_str(), read.listen.port()), ("prod", 8080));
    }

    #[test]
    fn all_errors_are_told_at_once() {
        let mut vars = ALL[1..].to_vec();
        vars.extend([("TENON_QUEUE", ""), ("TENON_LISTEN", "8080")]);
        assert_eq!(
            read(&vars).unwrap_err(),
            "`TENON_CLUSTER` is missing: set it to the cluster's name in the registry; `TENON_QUEUE` is missing: set it \
             to the output `AgentQueueUrl` of the cluster's stack; `TENON_LISTEN` is `8080`: set it to an address and a \
             port, such as `0.0.0.0:8080`"
        );
    }
}
