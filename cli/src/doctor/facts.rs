//! The facts that the checks judge: the answers of AWS and of the table, or why there is none.
//!
//! Decides nothing. Texts are those of AWS.

use std::collections::BTreeMap;

/// An answer, or why there is none.
pub(super) type Answer<T> = Result<T, Unanswered>;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Nothing was asked, for lack of credentials.
    NotAsked,
    /// The credentials lack this right.
    Denied { right: &'static str },
    /// The call of this right took too long.
    Late { right: &'static str },
    /// The call of this right failed.
    Failed { right: &'static str, why: String },
}

/// What is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DoctorScope {
    pub(super) region: String,
    pub(super) installation: String,
    /// The table's name: that of `--table`, of the region's stack, or else the installation's id.
    pub(super) table: String,
    /// The cluster: the named one, or the only one that is registered.
    pub(super) cluster: Option<String>,
}

/// Everything that the checks need to know.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DoctorFacts {
    pub(super) scope: DoctorScope,
    pub(super) caller: Answer<CallerFacts>,
    /// The region's opt-in status, such as `opt-in-not-required`; `None` if EC2 doesn't know the region.
    pub(super) region: Answer<Option<String>>,
    /// The vCPUs of standard on-demand instances that the account may run in the region.
    pub(super) on_demand_vcpus: Answer<Option<f64>>,
    /// The same of spot instances.
    pub(super) spot_vcpus: Answer<Option<f64>>,
    /// The ARN of the service-linked role of spot.
    pub(super) spot_role: Answer<Option<String>>,
    /// The stacks with the installation's id as their parameter `Installation`.
    pub(super) stacks: Answer<Vec<StackFacts>>,
    /// The clusters of the registry; `None` if there is no table.
    pub(super) registered: Answer<Option<Vec<String>>>,
    /// The installation's dead-letter queues, with their approximate numbers of messages.
    pub(super) dead_letters: Answer<BTreeMap<String, u64>>,
    /// What is known of the cluster; `None` if none is named.
    pub(super) cluster: Option<ClusterAnswers>,
}

impl DoctorFacts {
    /// The facts without credentials.
    pub(super) fn without_credentials(scope: DoctorScope, why: String) -> Self {
        let cluster = scope.cluster.as_ref().map(|_| ClusterAnswers::not_asked());
        Self {
            scope,
            caller: Ok(CallerFacts::Nobody { why }),
            region: Err(Unanswered::NotAsked),
            on_demand_vcpus: Err(Unanswered::NotAsked),
            spot_vcpus: Err(Unanswered::NotAsked),
            spot_role: Err(Unanswered::NotAsked),
            stacks: Err(Unanswered::NotAsked),
            registered: Err(Unanswered::NotAsked),
            dead_letters: Err(Unanswered::NotAsked),
            cluster,
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallerFacts {
    /// There are no credentials.
    Nobody { why: String },
    /// AWS doesn't accept the credentials in this region.
    Refused,
    /// STS knows them.
    Known { account: String, arn: String },
}

/// A stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StackFacts {
    pub(super) name: String,
    /// CloudFormation's status, such as `CREATE_COMPLETE`.
    pub(super) status: String,
    pub(super) parameters: BTreeMap<String, String>,
}

/// What is known of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterAnswers {
    /// EKS's description; `None` if EKS doesn't know the cluster.
    pub(super) eks: Answer<Option<EksFacts>>,
    /// The status of the add-on `eks-pod-identity-agent`; `None` if it isn't there.
    pub(super) addon: Answer<Option<String>>,
    /// The ARN of the OIDC provider that the cluster's stack names; `None` if IAM has none, or the stack names none.
    pub(super) oidc_provider: Answer<Option<String>>,
    /// The access entries whose principals have the names of node roles.
    pub(super) entries: Answer<Vec<EntryFacts>>,
    /// The cluster's entry in the registry; `None` if it has none.
    pub(super) registration: Answer<Option<RegistrationFacts>>,
    /// The agent's last report; `None` if it never reported.
    pub(super) report: Answer<Option<ReportFacts>>,
    /// Why nothing is terminated or disrupted; `None` if the cluster isn't halted.
    pub(super) halt: Answer<Option<String>>,
    /// EC2NodeClasses as they resolved.
    pub(super) classes: Answer<Vec<ClassFacts>>,
    /// Subnets with the tags that the cluster's stack requires.
    pub(super) subnets: Answer<TaggedFacts>,
    /// Security groups with the tags that the cluster's stack requires.
    pub(super) security_groups: Answer<TaggedFacts>,
}

impl ClusterAnswers {
    /// Those without credentials.
    pub(super) fn not_asked() -> Self {
        Self {
            eks: Err(Unanswered::NotAsked),
            addon: Err(Unanswered::NotAsked),
            oidc_provider: Err(Unanswered::NotAsked),
            entries: Err(Unanswered::NotAsked),
            registration: Err(Unanswered::NotAsked),
            report: Err(Unanswered::NotAsked),
            halt: Err(Unanswered::NotAsked),
            classes: Err(Unanswered::NotAsked),
            subnets: Err(Unanswered::NotAsked),
            security_groups: Err(Unanswered::NotAsked),
        }
    }
}

/// A cluster, as EKS describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EksFacts {
    /// The control plane's version, such as `1.35`.
    pub(super) version: String,
    /// EKS's status, such as `ACTIVE`.
    pub(super) status: String,
    /// The API server's URL.
    pub(super) endpoint: String,
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`; EKS tells none of an old cluster.
    pub(super) authentication_mode: Option<String>,
    pub(super) auto_mode: AutoMode,
}

/// Whether EKS Auto Mode is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AutoMode {
    On,
    Off,
}

/// An access entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryFacts {
    /// The ARN of the role.
    pub(super) principal: String,
    /// Its type, such as `EC2_LINUX`.
    pub(super) entry_type: Answer<String>,
}

/// A cluster's entry in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegistrationFacts {
    pub(super) endpoint: String,
    pub(super) kubernetes_version: String,
    /// The roles that nodes may have, by name.
    pub(super) node_roles: Vec<String>,
    pub(super) subnet_tags: BTreeMap<String, String>,
    pub(super) security_group_tags: BTreeMap<String, String>,
}

/// An agent's last report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportFacts {
    /// Negative where its time hasn't come yet.
    pub(super) age_seconds: i64,
    /// The roles that EC2NodeClasses name.
    pub(super) roles: Vec<String>,
    pub(super) node_pools: usize,
    /// NodePools that allow spot.
    pub(super) spot_pools: Vec<String>,
    /// Pods with Karpenter's label, by namespace and name.
    pub(super) karpenter_pods: Vec<(String, String)>,
}

/// An EC2NodeClass, as it resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClassFacts {
    pub(super) name: String,
    pub(super) subnets: usize,
    pub(super) security_groups: usize,
}

/// What EC2 finds by tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaggedFacts {
    /// The tags, ANDed; the value `*` matches any value.
    pub(super) tags: BTreeMap<String, String>,
    pub(super) ids: Vec<String>,
}
