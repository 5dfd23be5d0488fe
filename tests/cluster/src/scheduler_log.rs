//! What the test cluster's kube-scheduler does, in its order: it writes each attempt into its log, which
//! `tests/servers/control-plane` names.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The variable with the log's path.
const VARIABLE: &str = "TENON_SCHEDULER_LOG";

/// Something that kube-scheduler saw or did. Pods are named without their namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulerEvent {
    /// It knows a new Node.
    NodeAdded(String),
    /// It knows a change of a Node.
    NodeUpdated(String),
    /// It knows a change of a pod that waits.
    PodUpdated(String),
    /// It looks for a place for a pod.
    Attempted(String),
    /// It takes a node for the pod from what it found for an equal one, without rating nodes again.
    Hinted(String),
    /// A pod is bound, some time after its attempt.
    Bound {
        /// The pod.
        pod: String,
        /// Its node.
        node: String,
        /// How many nodes passed the filters.
        feasible: usize,
    },
    /// A pod found no place.
    Refused {
        /// The pod.
        pod: String,
        /// The reasons.
        why: String,
    },
    /// An attempt ended by an error: the pod is gone, for instance.
    Failed(String),
}

/// The log from some time on.
pub struct SchedulerLog {
    file: File,
    /// A line that isn't whole yet.
    begun: String,
}

impl SchedulerLog {
    /// The log from now on.
    ///
    /// # Panics
    /// If `tests/servers/control-plane` didn't start the cluster.
    #[must_use]
    pub fn from_now() -> Self {
        let path = std::env::var(VARIABLE).unwrap_or_else(|_| panic!("`{VARIABLE}` isn't set"));
        let mut file = File::open(path).expect("kube-scheduler has a log");
        file.seek(SeekFrom::End(0)).expect("a log has an end");
        Self { file, begun: String::new() }
    }

    /// The events since the last call.
    pub fn read(&mut self) -> Vec<SchedulerEvent> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).expect("a log can be read");
        self.begun.push_str(&String::from_utf8_lossy(&bytes));
        let Some((whole, begun)) = self.begun.rsplit_once('\n') else { return Vec::new() };
        let events = whole.lines().filter_map(event).collect();
        self.begun = begun.to_owned();
        events
    }
}

/// The event of a line, if it tells one.
fn event(line: &str) -> Option<SchedulerEvent> {
    let (_, message) = line.split_once("] \"")?;
    let (message, values) = message.split_once('"')?;
    let quoted = |key: &str| {
        let (_, value) = values.split_once(&format!(" {key}=\""))?;
        value.split_once('"').map(|(value, _)| value)
    };
    let pod = || quoted("pod").map(|name| name.rsplit('/').next().unwrap_or(name).to_owned());
    let node = || quoted("node").map(str::to_owned);
    let number = |key: &str| {
        let (_, value) = values.split_once(&format!(" {key}="))?;
        value.split(' ').next()?.parse().ok()
    };
    Some(match message {
        "Add event for node" => SchedulerEvent::NodeAdded(node()?),
        "Update event for node" => SchedulerEvent::NodeUpdated(node()?),
        "Update event for unscheduled pod" => SchedulerEvent::PodUpdated(pod()?),
        "Attempting to schedule pod" => SchedulerEvent::Attempted(pod()?),
        "OpportunisticBatch provided node hint" => SchedulerEvent::Hinted(pod()?),
        "Successfully bound pod to node" => {
            SchedulerEvent::Bound { pod: pod()?, node: node()?, feasible: number("feasibleNodes")? }
        }
        "Unable to schedule pod; no fit; waiting" => {
            SchedulerEvent::Refused { pod: pod()?, why: quoted("err").unwrap_or_default().to_owned() }
        }
        "Error scheduling pod; retrying" => SchedulerEvent::Failed(pod()?),
        "Unable to schedule pod; no nodes are registered to the cluster; waiting" => {
            SchedulerEvent::Refused { pod: pod()?, why: String::new() }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_kube_scheduler_are_events() {
        let check =
            |line: &str, expected: Option<SchedulerEvent>| assert_eq!(event(line), expected, "{line}");
        check(
            r#"I1126 20:31:45.123456   12345 schedule_one.go:99] "Attempting to schedule pod" pod="default/web-1""#,
            Some(SchedulerEvent::Attempted("web-1".to_owned())),
        );
        check(
            concat!(
                r#"I1126 20:31:45.1   12345 schedule_one.go:337] "Successfully bound pod to node" pod="default/web-1" "#,
                r#"node="first-1" evaluatedNodes=3 feasibleNodes=2"#
            ),
            Some(SchedulerEvent::Bound { pod: "web-1".to_owned(), node: "first-1".to_owned(), feasible: 2 }),
        );
        check(
            concat!(
                r#"I1126 20:31:45.1   12345 schedule_one.go:1066] "Unable to schedule pod; no fit; waiting" "#,
                r#"pod="default/web-1" err="0/1 nodes are available: 1 Too many pods.""#
            ),
            Some(SchedulerEvent::Refused {
                pod: "web-1".to_owned(),
                why: "0/1 nodes are available: 1 Too many pods.".to_owned(),
            }),
        );
        check(
            r#"I1126 20:31:45.1 1 eventhandlers.go:64] "Add event for node" node="a""#,
            Some(SchedulerEvent::NodeAdded("a".to_owned())),
        );
        check(r#"I1126 20:31:45.1 1 eventhandlers.go:64] "Something else" node="a""#, None);
        check("a stack trace", None);
    }
}
