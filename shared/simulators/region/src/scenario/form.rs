//! The form of a scenario file.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::yaml;

/// A scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// Its subject, in a sentence.
    pub title: String,
    /// The region; us-east-1 where absent.
    #[serde(default = "default_region")]
    pub region: String,
    /// The seed of all choices.
    #[serde(default)]
    pub seed: u64,
    /// Instance types that the region has; all that it really offers where absent.
    #[serde(default)]
    pub types: Vec<String>,
    /// Zones that the region has; all where absent.
    #[serde(default)]
    pub zones: Vec<String>,
    /// The clusters.
    #[serde(default)]
    pub clusters: Vec<ClusterForm>,
    /// Images that are there from the start.
    #[serde(default)]
    pub images: Vec<ImageForm>,
    /// Its steps, in order.
    pub steps: Vec<ScenarioStep>,
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

/// A cluster of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClusterForm {
    /// Its name.
    pub name: String,
    /// The most nodes that its stack allows; no limit where absent.
    #[serde(default)]
    pub max_nodes: Option<u32>,
    /// The most vCPUs that its stack allows; no limit where absent.
    #[serde(default)]
    pub max_vcpus: Option<u32>,
    /// The families of instance types that its stack allows, such as `m7g` or `m7*`; every family where absent.
    #[serde(default)]
    pub allowed_families: Vec<String>,
    /// Whether its stack allows nodes public addresses; it does where absent.
    #[serde(default)]
    pub allow_public_addresses: Option<bool>,
    /// Whether its stack allows classes version 1 of the instance metadata service; it does where absent.
    #[serde(default)]
    pub allow_imds_v1: Option<bool>,
    /// Whether its stack allows classes user data of their own; it does where absent.
    #[serde(default)]
    pub allow_user_data: Option<bool>,
    /// The budget of its stack for all NodePools together, such as `5` or `10%`; none where absent.
    #[serde(default)]
    pub disruption_budget: Option<String>,
    /// Whether its gate `ReservedCapacity` is open.
    #[serde(default)]
    pub reserved_capacity: bool,
    /// Whether its gate `SpotToSpotConsolidation` is open.
    #[serde(default)]
    pub spot_to_spot_consolidation: bool,
    /// Whether its gate `NodeRepair` is open.
    #[serde(default)]
    pub node_repair: bool,
    /// Whether its setting `ConsoleOutput` is on.
    #[serde(default)]
    pub console_output: bool,
    /// The owners of images that its stack allows; `self` and `amazon` where absent.
    #[serde(default)]
    pub image_owners: Vec<String>,
    /// Whether zonal shift is on for it, in EKS and in its stack.
    #[serde(default)]
    pub zonal_shift: bool,
    /// Objects that are there from the start.
    #[serde(default)]
    pub objects: Vec<Value>,
}

/// An image of a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ImageForm {
    /// Its name.
    pub name: String,
    /// `x86_64` or `arm64`; `x86_64` where absent.
    #[serde(default = "default_architecture")]
    pub architecture: String,
    /// Its tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// How long it is pending.
    #[serde(default, deserialize_with = "optional_duration")]
    pub takes: Option<SignedDuration>,
    /// Whether it fails in the end.
    #[serde(default)]
    pub fails: bool,
    /// The account that owns it; this one where absent. EC2 sends events of its own images to an account, and of no others.
    #[serde(default)]
    pub owner: Option<String>,
    /// How long after its making it is deprecated.
    #[serde(default, deserialize_with = "optional_duration")]
    pub deprecated_after: Option<SignedDuration>,
}

impl ImageForm {
    /// An x86 image of this account, with a tag, that is made like any other.
    #[must_use]
    pub fn tagged(name: &str, (key, value): (&str, &str)) -> Self {
        Self {
            name: name.to_owned(),
            architecture: default_architecture(),
            tags: [(key.to_owned(), value.to_owned())].into(),
            takes: None,
            fails: false,
            owner: None,
            deprecated_after: None,
        }
    }
}

fn default_architecture() -> String {
    "x86_64".to_owned()
}

/// A step. Most steps take no time; `run` and `settle` let time pass.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ScenarioStep {
    /// Prints a note.
    Note(String),
    /// Lets time pass.
    Run(#[serde(deserialize_with = "duration")] SignedDuration),
    /// Lets time pass until the region has settled; the longest that may take.
    Settle(#[serde(deserialize_with = "duration")] SignedDuration),
    /// Creates or updates objects of the first cluster.
    Apply(Vec<Value>),
    /// Deletes an object of the first cluster.
    Delete {
        /// Its kind.
        kind: String,
        /// Its namespace; empty for kinds without.
        #[serde(default)]
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Makes an image: pending first.
    Image(ImageForm),
    /// A pipeline tags an image, and sends its event.
    TagImage {
        /// The image's name.
        image: String,
        /// The tags.
        tags: BTreeMap<String, String>,
    },
    /// Deregisters the image of that name.
    DeregisterImage(String),
    /// Disables the image of that name.
    DisableImage(String),
    /// Takes the account's right to launch the image of that name, which EC2 goes on to describe.
    UnshareImage(String),
    /// Gives that right back.
    ShareImage(String),
    /// Breaks an image for instances that are launched from now on.
    BreakImage {
        /// The image's name.
        image: String,
        /// `key`: the launch may not use its KMS key. `boot`: its instances never join.
        how: String,
    },
    /// Mends the image of that name for instances that are launched from now on.
    MendImage(String),
    /// EC2 takes back the first running spot instance, by id.
    InterruptSpot {},
    /// Stops the first running instance, by id, outside Tenon.
    StopInstance {},
    /// Terminates the first running instance, by id, outside Tenon.
    TerminateInstance {},
    /// The first running instances, by id, fail a status check, or pass it again.
    InstanceStatus {
        /// `instance` or `system`.
        check: String,
        /// `impaired` or `ok`.
        status: String,
        /// Of how many instances; one where absent.
        #[serde(default = "one_node")]
        instances: usize,
    },
    /// A monitoring agent sets a condition of the first Nodes, by name.
    NodeCondition {
        /// Such as `NetworkingReady`.
        condition: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// Of how many Nodes; one where absent.
        #[serde(default = "one_node")]
        nodes: usize,
    },
    /// Deletes all launch templates.
    DeleteTemplates {},
    /// EC2 refuses every CreateFleet with this error.
    RefuseLaunches {
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: String,
    },
    /// EC2 takes launches again.
    AcceptLaunches {},
    /// Policies deny a call, such as `RunInstances`.
    DenyCall {
        /// The call.
        call: String,
        /// Why, in the words of EC2's message: `because no identity-based policy allows the ec2:RunInstances action`.
        because: String,
    },
    /// Policies allow the call of that name again.
    AllowCall(String),
    /// Policies deny launches of one image.
    DenyImage {
        /// The image's name.
        image: String,
        /// Why, in the words of EC2's message.
        because: String,
    },
    /// Policies allow launches of the image of that name again.
    AllowImage(String),
    /// EC2 throttles the next calls of a name, such as `RunInstances`.
    ThrottleCall {
        /// The call.
        call: String,
        /// How many.
        times: u64,
    },
    /// AWS releases images of a family: `AmazonLinux2`, `AmazonLinux2023`, `Bottlerocket` or `Windows`.
    ReleaseImages {
        /// The family.
        family: String,
        /// Their version.
        version: String,
    },
    /// Puts a parameter that names the image of a name.
    PutParameter {
        /// The parameter's name.
        name: String,
        /// The image's name.
        image: String,
    },
    /// Creates an instance profile, with a role or without.
    CreateInstanceProfile {
        /// Its name.
        name: String,
        /// Its role.
        #[serde(default)]
        role: Option<String>,
    },
    /// Deletes the instance profile of that name.
    DeleteInstanceProfile(String),
    /// Upgrades the first cluster's control plane to a version of Kubernetes, such as `1.36`.
    UpgradeKubernetes(String),
    /// EC2 withdraws the instance type of that name.
    WithdrawType(String),
    /// Kubelets that join from now on report so much memory on instances of a type.
    ReportedMemory {
        /// The type.
        instance_type: String,
        /// How much, in MiB.
        mebibytes: u32,
    },
    /// Empties the functions' caches.
    RestartFunctions {},
    /// Limits the capacity of a type to this number of instances, in one zone or in all.
    Capacity {
        /// The type.
        instance_type: String,
        /// The zone; all where absent.
        #[serde(default)]
        zone: Option<String>,
        /// `on-demand` or `spot`.
        capacity_type: String,
        /// How many are left.
        left: u32,
    },
    /// Sets `VoluntaryDisruption` of the first cluster's registry entry: `Enabled` or `Disabled`.
    VoluntaryDisruption(String),
    /// An operator clears marks.
    Clear {
        /// Keys as in `UNAVAILABLE#`; all if absent.
        #[serde(default)]
        unavailable: Option<Vec<String>>,
    },
    /// Makes a capacity reservation of this account.
    Reserve {
        /// Its id.
        id: String,
        /// The type that it holds.
        instance_type: String,
        /// Its zone.
        zone: String,
        /// How many instances it is for.
        instances: u32,
        /// `open` or `targeted`; `targeted` where absent.
        #[serde(default = "default_criteria")]
        instance_match_criteria: String,
        /// Its tags.
        #[serde(default)]
        tags: BTreeMap<String, String>,
    },
    /// Makes a placement group.
    PlacementGroup {
        /// Its id.
        id: String,
        /// Its name.
        name: String,
        /// `cluster`, `partition` or `spread`.
        strategy: String,
        /// How many partitions it has.
        #[serde(default)]
        partitions: Option<u32>,
    },
    /// The capacity reservation of that id ends: its instances keep running without one.
    EndReservation(String),
    /// The first cluster is shifted away from a zone.
    ShiftZone {
        /// The zone.
        zone: String,
        /// For how long an operator does so; where absent AWS does, until it is ended.
        #[serde(default, deserialize_with = "optional_duration")]
        lasts: Option<SignedDuration>,
    },
    /// The shift away from the zone of that name ends.
    EndShift(String),
    /// Puts an event on a bus: on the default bus if its source is AWS's, else on ours.
    Event(Value),
    /// Sends a message with any body to a function's queue.
    Message {
        /// The function.
        function: String,
        /// The body.
        body: String,
    },
    /// Repeats steps.
    Repeat {
        /// How often.
        times: u32,
        /// The steps.
        steps: Vec<ScenarioStep>,
    },
    /// Sets the replicas of a Deployment of the first cluster's namespace `default`.
    Scale {
        /// The Deployment.
        name: String,
        /// How many.
        replicas: u32,
    },
    /// Adds replicas to a Deployment of the first cluster's namespace `default`, or takes some away.
    Grow {
        /// The Deployment.
        name: String,
        /// How many more; fewer where negative.
        by: i64,
    },
}

fn default_criteria() -> String {
    "targeted".to_owned()
}

/// The problem of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scenario: {0}")]
pub struct ScenarioError(pub String);

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors [`ScenarioError`] names the field and the expected form.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let value = yaml::parse(text).map_err(ScenarioError)?;
        serde_json::from_value(value).map_err(|error| ScenarioError(error.to_string()))
    }

    /// The steps with repetitions written out.
    #[must_use]
    pub fn unrolled(&self) -> Vec<ScenarioStep> {
        fn unroll(steps: &[ScenarioStep], into: &mut Vec<ScenarioStep>) {
            for step in steps {
                if let ScenarioStep::Repeat { times, steps } = step {
                    for _ in 0..*times {
                        unroll(steps, into);
                    }
                } else {
                    into.push(step.clone());
                }
            }
        }
        let mut steps = Vec::new();
        unroll(&self.steps, &mut steps);
        steps
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong =
        || serde::de::Error::custom(format!("`{text}` is not a duration such as `90s`, `10m` or `24h`"));
    let duration: SignedDuration = text.parse().map_err(|_| wrong())?;
    if duration.is_negative() { Err(wrong()) } else { Ok(duration) }
}

fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SignedDuration>, D::Error> {
    duration(deserializer).map(Some)
}

const fn one_node() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_scenarios_are_scenarios() {
        for (name, text) in super::super::BUILT_IN {
            let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!scenario.unrolled().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_wrong_step_is_named() {
        let error = Scenario::parse("title: x\nsteps:\n  - rum: 10m\n").unwrap_err();
        assert!(error.to_string().contains("unknown variant `rum`"), "{error}");
        let error = Scenario::parse("title: x\nsteps:\n  - run: ten\n").unwrap_err();
        assert!(error.to_string().contains("`ten` is not a duration"), "{error}");
    }
}
