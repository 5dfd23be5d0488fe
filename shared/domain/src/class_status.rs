//! What a node class resolves to, and its conditions.
//!
//! Decides the conditions from one observation, all of them together: none is True before it was seen to hold, none
//! Unknown without a reason and a time of the next try. It doesn't decide which subnets, groups or images a class
//! selects: that is `node-classes`'.
//!
//! Source of types and reasons: KARPENTER.md 1.1.4.

use jiff::Timestamp;

use crate::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use crate::catalog::facts::Architecture;
use crate::id::{ImageId, NodeClassName, SubnetId, Zone, ZoneId};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one of that word.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|found| found.as_str() == text)
            }
        }
    };
}

words! {
    /// A condition of a node class.
    ConditionType {
        /// It has images.
        AmisReady => "AMIsReady",
        /// It has subnets.
        SubnetsReady => "SubnetsReady",
        /// It has security groups.
        SecurityGroupsReady => "SecurityGroupsReady",
        /// Its nodes have an identity.
        InstanceProfileReady => "InstanceProfileReady",
        /// EC2 would take a launch from it.
        ValidationSucceeded => "ValidationSucceeded",
        /// All that it depends on holds.
        Ready => "Ready",
        /// Parts of its spec are accepted and not acted on.
        Unsupported => "tenon.dev/Unsupported",
    }
}

words! {
    /// A condition's status.
    ConditionStatus {
        /// It holds.
        True => "True",
        /// It doesn't.
        False => "False",
        /// It couldn't be seen.
        Unknown => "Unknown",
    }
}

words! {
    /// Why a condition has its status.
    ConditionReason {
        /// It was seen to hold; written as the condition's own type, as the peer does.
        Holds => "Holds",
        /// Nothing matches the selector, or nothing of it is available.
        AmiNotFound => "AMINotFound",
        /// The alias names nothing for this version of Kubernetes.
        UnsupportedAlias => "UnsupportedAlias",
        /// EC2 or SSM couldn't be asked for images.
        AmiResolutionFailed => "AMIResolutionFailed",
        /// No subnet matches.
        SubnetsNotFound => "SubnetsNotFound",
        /// EC2 couldn't be asked for subnets.
        SubnetResolutionFailed => "SubnetResolutionFailed",
        /// No security group matches.
        SecurityGroupsNotFound => "SecurityGroupsNotFound",
        /// EC2 couldn't be asked for security groups.
        SecurityGroupResolutionFailed => "SecurityGroupResolutionFailed",
        /// There is no such instance profile.
        InstanceProfileNotFound => "InstanceProfileNotFound",
        /// The instance profile couldn't be looked up.
        InstanceProfileResolutionFailed => "InstanceProfileResolutionFailed",
        /// The class asks for what the cluster's registry doesn't allow.
        NotAllowed => "NotAllowed",
        /// The cluster isn't in the registry.
        ClusterNotRegistered => "ClusterNotRegistered",
        /// What it depends on doesn't hold, or isn't known.
        DependenciesNotReady => "DependenciesNotReady",
        /// The services' CIDR isn't known.
        ClusterCidrResolutionFailed => "ClusterCIDRResolutionFailed",
        /// The kubelet's settings contradict each other.
        InvalidKubeletConfiguration => "InvalidKubeletConfiguration",
        /// The AMI family doesn't take these kubelet settings.
        UnsupportedKubeletConfiguration => "UnsupportedKubeletConfiguration",
        /// The class's tags are reserved or malformed.
        TagValidationFailed => "TagValidationFailed",
        /// The user data is larger than EC2 takes.
        UserDataSizeLimitExceeded => "UserDataSizeLimitExceeded",
        /// EC2 refuses CreateLaunchTemplate.
        CreateLaunchTemplateAuthCheckFailed => "CreateLaunchTemplateAuthCheckFailed",
        /// EC2 refuses CreateFleet.
        CreateFleetAuthCheckFailed => "CreateFleetAuthCheckFailed",
        /// EC2 refuses RunInstances.
        RunInstancesAuthCheckFailed => "RunInstancesAuthCheckFailed",
        /// EC2 couldn't be asked whether it would take a launch.
        ValidationIncomplete => "ValidationIncomplete",
        /// One of the conditions below it isn't True.
        UnhealthyDependents => "UnhealthyDependents",
        /// Fields of the spec aren't acted on.
        UnsupportedFields => "UnsupportedFields",
    }
}

/// A node class, as it resolved last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassStatus {
    /// Its name.
    pub name: NodeClassName,
    /// Counts up with every change; the condition of the next.
    pub revision: u64,
    /// `metadata.generation` of the spec that was resolved.
    pub generation: u64,
    /// Digest of that spec: it changes without the generation where a class is made anew under its name.
    pub spec_digest: String,
    /// Its subnets: most free addresses first, then by id.
    pub subnets: Vec<ClassSubnet>,
    /// Its security groups, by id.
    pub security_groups: Vec<ResolvedSecurityGroup>,
    /// Its images, only available ones: newest first, then by id.
    pub images: Vec<ResolvedImage>,
    /// What its nodes are.
    pub instance_profile: Option<InstanceProfile>,
    /// Its conditions, in the order of [`ConditionType::ALL`].
    pub conditions: Vec<Condition>,
    /// When EC2 was asked.
    pub resolved_at: Timestamp,
}

/// A subnet of a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassSubnet {
    /// The subnet.
    pub id: SubnetId,
    /// Its zone's name.
    pub zone: Zone,
    /// Its zone's id.
    pub zone_id: ZoneId,
    /// Free addresses when EC2 was asked.
    pub free_addresses: u32,
}

/// An image of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedImage {
    /// The image.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub architecture: Architecture,
    /// When it was made.
    pub created_at: Timestamp,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Which.
    pub condition: ConditionType,
    /// Its status.
    pub status: ConditionStatus,
    /// Why.
    pub reason: ConditionReason,
    /// A sentence; empty where it holds.
    pub message: String,
    /// Since when it has this status (`lastTransitionTime`).
    pub since: Timestamp,
    /// The generation of the spec that was looked at.
    pub observed_generation: u64,
    /// When it is looked at again; always there where the status is Unknown.
    pub next_try: Option<Timestamp>,
}

impl Condition {
    /// The reason as the object's status shows it: the type's own name where the condition holds.
    #[must_use]
    pub const fn reason_text(&self) -> &'static str {
        match self.reason {
            ConditionReason::Holds => self.condition.as_str(),
            ConditionReason::AmiNotFound
            | ConditionReason::UnsupportedAlias
            | ConditionReason::AmiResolutionFailed
            | ConditionReason::SubnetsNotFound
            | ConditionReason::SubnetResolutionFailed
            | ConditionReason::SecurityGroupsNotFound
            | ConditionReason::SecurityGroupResolutionFailed
            | ConditionReason::InstanceProfileNotFound
            | ConditionReason::InstanceProfileResolutionFailed
            | ConditionReason::NotAllowed
            | ConditionReason::ClusterNotRegistered
            | ConditionReason::DependenciesNotReady
            | ConditionReason::ClusterCidrResolutionFailed
            | ConditionReason::InvalidKubeletConfiguration
            | ConditionReason::UnsupportedKubeletConfiguration
            | ConditionReason::TagValidationFailed
            | ConditionReason::UserDataSizeLimitExceeded
            | ConditionReason::CreateLaunchTemplateAuthCheckFailed
            | ConditionReason::CreateFleetAuthCheckFailed
            | ConditionReason::RunInstancesAuthCheckFailed
            | ConditionReason::ValidationIncomplete
            | ConditionReason::UnhealthyDependents
            | ConditionReason::UnsupportedFields => self.reason.as_str(),
        }
    }
}

/// What was seen of one part of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// It holds.
    Holds(T),
    /// It was seen not to hold.
    Refused {
        /// Why.
        reason: ConditionReason,
        /// A sentence with the remedy.
        message: String,
    },
    /// It couldn't be seen.
    Unseen {
        /// Why.
        reason: ConditionReason,
        /// A sentence.
        message: String,
        /// When it is looked at again.
        next_try: Timestamp,
    },
}

/// One observation of a class: every part of it, seen in the same pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassObservation {
    /// The class.
    pub name: NodeClassName,
    /// `metadata.generation` of its spec.
    pub generation: u64,
    /// Digest of its spec.
    pub spec_digest: String,
    /// Its subnets.
    pub subnets: Seen<Vec<ClassSubnet>>,
    /// Its security groups.
    pub security_groups: Seen<Vec<ResolvedSecurityGroup>>,
    /// Its images.
    pub images: Seen<Vec<ResolvedImage>>,
    /// Its nodes' identity.
    pub instance_profile: Seen<InstanceProfile>,
    /// Whether EC2 would take a launch; not asked where something above doesn't hold.
    pub validation: Seen<()>,
    /// Fields of its spec that nothing acts on.
    pub unsupported: Vec<String>,
}

/// A status, reason and message before it is dated.
struct Judgement {
    condition: ConditionType,
    status: ConditionStatus,
    reason: ConditionReason,
    message: String,
    next_try: Option<Timestamp>,
}

impl ClassStatus {
    /// The status that follows from an observation. What isn't seen keeps what was known before, so that a throttled
    /// EC2 doesn't take a class's subnets away; its condition is Unknown all the same. The revision is the next one;
    /// a condition keeps its time where its status stays.
    #[must_use]
    pub fn observed(observation: ClassObservation, previous: Option<&Self>, now: Timestamp) -> Self {
        let judgements = judge(&observation);
        let conditions = judgements
            .into_iter()
            .map(|judgement| dated(judgement, observation.generation, previous, now))
            .collect();
        let ClassObservation { name, generation, spec_digest, subnets, security_groups, images, .. } =
            observation;
        // What was resolved from another spec says nothing about this one.
        let known = previous.filter(|previous| previous.spec_digest == spec_digest);
        let mut status = Self {
            name,
            revision: previous.map_or(1, |previous| previous.revision.saturating_add(1)),
            generation,
            subnets: kept(subnets, known.map(|k| &k.subnets)).unwrap_or_default(),
            security_groups: kept(security_groups, known.map(|k| &k.security_groups)).unwrap_or_default(),
            images: kept(images, known.map(|k| &k.images)).unwrap_or_default(),
            instance_profile: kept(
                observation.instance_profile,
                known.and_then(|k| k.instance_profile.as_ref()),
            ),
            spec_digest,
            conditions,
            resolved_at: now,
        };
        status.subnets.sort_by(|a, b| b.free_addresses.cmp(&a.free_addresses).then_with(|| a.id.cmp(&b.id)));
        status.security_groups.sort();
        status.images.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        status
    }

    /// One of its conditions.
    #[must_use]
    pub fn condition(&self, condition: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|found| found.condition == condition)
    }

    /// Whether launches may be made from it: `Ready` is True.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.condition(ConditionType::Ready).is_some_and(|ready| ready.status == ConditionStatus::True)
    }

    /// The first condition that keeps it from being ready.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Condition> {
        DEPENDENTS
            .iter()
            .filter_map(|condition| self.condition(*condition))
            .find(|condition| condition.status != ConditionStatus::True)
    }

    /// Whether the other says the same but for its revision and times of looking.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        let strip = |status: &Self| {
            let mut status = Self { revision: 0, resolved_at: Timestamp::UNIX_EPOCH, ..status.clone() };
            for condition in &mut status.conditions {
                condition.next_try = None;
            }
            status
        };
        strip(self) == strip(other)
    }

    /// When it is to be looked at again, at the latest; nothing where all conditions are settled.
    #[must_use]
    pub fn next_try(&self) -> Option<Timestamp> {
        self.conditions.iter().filter_map(|condition| condition.next_try).min()
    }
}

/// What `Ready` depends on, in the order in which an obstacle is named.
const DEPENDENTS: [ConditionType; 5] = [
    ConditionType::SubnetsReady,
    ConditionType::SecurityGroupsReady,
    ConditionType::AmisReady,
    ConditionType::InstanceProfileReady,
    ConditionType::ValidationSucceeded,
];

fn kept<T: Clone>(seen: Seen<T>, known: Option<&T>) -> Option<T> {
    match seen {
        Seen::Holds(value) => Some(value),
        Seen::Refused { .. } => None,
        Seen::Unseen { .. } => known.cloned(),
    }
}

fn judge(observation: &ClassObservation) -> Vec<Judgement> {
    let mut judgements = vec![
        judge_part(ConditionType::AmisReady, &observation.images),
        judge_part(ConditionType::SubnetsReady, &observation.subnets),
        judge_part(ConditionType::SecurityGroupsReady, &observation.security_groups),
        judge_part(ConditionType::InstanceProfileReady, &observation.instance_profile),
    ];
    let below =
        conjunction(ConditionType::ValidationSucceeded, ConditionReason::DependenciesNotReady, &judgements);
    judgements.push(
        below.unwrap_or_else(|| judge_part(ConditionType::ValidationSucceeded, &observation.validation)),
    );
    let below = conjunction(ConditionType::Ready, ConditionReason::UnhealthyDependents, &judgements);
    judgements.push(below.unwrap_or_else(|| holds(ConditionType::Ready)));
    if !observation.unsupported.is_empty() {
        judgements.push(Judgement {
            condition: ConditionType::Unsupported,
            status: ConditionStatus::True,
            reason: ConditionReason::UnsupportedFields,
            message: format!("accepted and not acted on: `{}`", observation.unsupported.join("`, `")),
            next_try: None,
        });
    }
    judgements
}

fn holds(condition: ConditionType) -> Judgement {
    Judgement {
        condition,
        status: ConditionStatus::True,
        reason: ConditionReason::Holds,
        message: String::new(),
        next_try: None,
    }
}

fn judge_part<T>(condition: ConditionType, seen: &Seen<T>) -> Judgement {
    match seen {
        Seen::Holds(_) => holds(condition),
        Seen::Refused { reason, message } => Judgement {
            condition,
            status: ConditionStatus::False,
            reason: *reason,
            message: message.clone(),
            next_try: None,
        },
        Seen::Unseen { reason, message, next_try } => Judgement {
            condition,
            status: ConditionStatus::Unknown,
            reason: *reason,
            message: message.clone(),
            next_try: Some(*next_try),
        },
    }
}

/// What follows where not all of them hold: False if one is False, else Unknown until the first is looked at again.
fn conjunction(condition: ConditionType, reason: ConditionReason, of: &[Judgement]) -> Option<Judgement> {
    let not_true: Vec<&Judgement> = of.iter().filter(|below| below.status != ConditionStatus::True).collect();
    if not_true.is_empty() {
        return None;
    }
    let refused = not_true.iter().any(|below| below.status == ConditionStatus::False);
    let names: Vec<String> = not_true
        .iter()
        .map(|below| format!("`{}`={}", below.condition.as_str(), below.status.as_str()))
        .collect();
    Some(Judgement {
        condition,
        status: if refused { ConditionStatus::False } else { ConditionStatus::Unknown },
        reason,
        message: names.join(", "),
        next_try: not_true.iter().filter_map(|below| below.next_try).min(),
    })
}

fn dated(judgement: Judgement, generation: u64, previous: Option<&ClassStatus>, now: Timestamp) -> Condition {
    let Judgement { condition, status, reason, message, next_try } = judgement;
    let before = previous.and_then(|previous| previous.condition(condition));
    let since = before.filter(|before| before.status == status).map_or(now, |before| before.since);
    Condition { condition, status, reason, message, since, observed_generation: generation, next_try }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn subnet(name: &str, free_addresses: u32) -> ClassSubnet {
        ClassSubnet {
            id: SubnetId::parse(name).unwrap(),
            zone: Zone::parse("us-east-1a").unwrap(),
            zone_id: ZoneId::parse("use1-az1").unwrap(),
            free_addresses,
        }
    }

    fn observation() -> ClassObservation {
        ClassObservation {
            name: NodeClassName::parse("default").unwrap(),
            generation: 3,
            spec_digest: "abc".to_owned(),
            subnets: Seen::Holds(vec![subnet("subnet-b", 5), subnet("subnet-a", 5), subnet("subnet-c", 9)]),
            security_groups: Seen::Holds(vec![]),
            images: Seen::Holds(vec![]),
            instance_profile: Seen::Holds(InstanceProfile::Name("nodes".to_owned())),
            validation: Seen::Holds(()),
            unsupported: vec![],
        }
    }

    fn unseen<T>() -> Seen<T> {
        let reason = ConditionReason::SubnetResolutionFailed;
        Seen::Unseen { reason, message: "throttled".to_owned(), next_try: at(60) }
    }

    fn check(observation: ClassObservation, expected: &[&str]) {
        let status = ClassStatus::observed(observation, None, at(0));
        let lines: Vec<String> = status
            .conditions
            .iter()
            .map(|c| format!("{} {} {}", c.condition.as_str(), c.status.as_str(), c.reason_text()))
            .collect();
        assert_eq!(lines, expected);
        for condition in &status.conditions {
            assert!(
                condition.status != ConditionStatus::Unknown || condition.next_try.is_some(),
                "{condition:?}"
            );
        }
    }

    #[test]
    fn all_conditions_come_from_one_observation() {
        check(
            observation(),
            &[
                "AMIsReady True AMIsReady",
                "SubnetsReady True SubnetsReady",
                "SecurityGroupsReady True SecurityGroupsReady",
                "InstanceProfileReady True InstanceProfileReady",
                "ValidationSucceeded True ValidationSucceeded",
                "Ready True Ready",
            ],
        );
        let refused = Seen::Refused {
            reason: ConditionReason::AmiNotFound,
            message: "no image is available".to_owned(),
        };
        check(
            ClassObservation {
                images: refused,
                subnets: unseen(),
                unsupported: vec!["spec.context".to_owned()],
                ..observation()
            },
            &[
                "AMIsReady False AMINotFound",
                "SubnetsReady Unknown SubnetResolutionFailed",
                "SecurityGroupsReady True SecurityGroupsReady",
                "InstanceProfileReady True InstanceProfileReady",
                "ValidationSucceeded False DependenciesNotReady",
                "Ready False UnhealthyDependents",
                "tenon.dev/Unsupported True UnsupportedFields",
            ],
        );
    }

    #[test]
    fn what_isnt_seen_keeps_what_was_known_of_the_same_spec() {
        let first = ClassStatus::observed(observation(), None, at(0));
        let ids: Vec<&str> = first.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
        assert_eq!(ids, ["subnet-c", "subnet-a", "subnet-b"]);
        let second = ClassStatus::observed(
            ClassObservation { subnets: unseen(), ..observation() },
            Some(&first),
            at(9),
        );
        assert_eq!((second.subnets.len(), second.ready(), second.revision), (3, false, 2));
        assert_eq!(second.obstacle().unwrap().condition, ConditionType::SubnetsReady);
        assert_eq!(second.condition(ConditionType::AmisReady).unwrap().since, at(0));
        assert_eq!(second.condition(ConditionType::Ready).unwrap().since, at(9));
        let changed = ClassObservation { subnets: unseen(), spec_digest: "def".to_owned(), ..observation() };
        assert_eq!(ClassStatus::observed(changed, Some(&first), at(9)).subnets, []);
    }

    #[test]
    fn looking_again_and_seeing_the_same_is_no_change() {
        let first = ClassStatus::observed(observation(), None, at(0));
        assert!(first.same_as(&ClassStatus::observed(observation(), Some(&first), at(60))));
        let other = ClassObservation { subnets: unseen(), ..observation() };
        assert!(!first.same_as(&ClassStatus::observed(other, Some(&first), at(60))));
    }
}
