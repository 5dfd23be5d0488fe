//! Conditions of a class: types, statuses and reasons as stable words.
//!
//! It doesn't decide when a condition holds. Source of types and reasons: aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass_status.go`.

use jiff::Timestamp;

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

            /// Parses the word.
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
        /// Its capacity reservations are known; only with the gate `ReservedCapacity` on.
        CapacityReservationsReady => "CapacityReservationsReady",
        /// EC2 would take a launch from it.
        ValidationSucceeded => "ValidationSucceeded",
        /// All that it depends on holds.
        Ready => "Ready",
        /// Parts of its spec are accepted and not acted on.
        Unsupported => "tenon.dev/Unsupported",
        /// None of its zones is shifted; only with the cluster's setting `zonal_shift` Enabled.
        ZonesInService => "tenon.dev/ZonesInService",
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
        /// It holds; shown as the condition's own type, as with the peer.
        Holds => "Holds",
        /// Nothing matches the selector, or nothing of it is available.
        AmiNotFound => "AMINotFound",
        /// The alias names nothing for this version of Kubernetes.
        UnsupportedAlias => "UnsupportedAlias",
        /// The query to EC2 or SSM for images failed.
        AmiResolutionFailed => "AMIResolutionFailed",
        /// No subnet matches.
        SubnetsNotFound => "SubnetsNotFound",
        /// The query to EC2 for subnets failed.
        SubnetResolutionFailed => "SubnetResolutionFailed",
        /// No security group matches.
        SecurityGroupsNotFound => "SecurityGroupsNotFound",
        /// The query to EC2 for security groups failed.
        SecurityGroupResolutionFailed => "SecurityGroupResolutionFailed",
        /// There is no such instance profile.
        InstanceProfileNotFound => "InstanceProfileNotFound",
        /// The instance profile couldn't be looked up.
        InstanceProfileResolutionFailed => "InstanceProfileResolutionFailed",
        /// A snapshot that the class names doesn't exist.
        SnapshotNotFound => "SnapshotNotFound",
        /// The query to EC2 for capacity reservations failed.
        CapacityReservationResolutionFailed => "CapacityReservationResolutionFailed",
        /// The class uses a resource that the cluster's registry entry doesn't allow.
        NotAllowed => "NotAllowed",
        /// The cluster isn't in the registry.
        ClusterNotRegistered => "ClusterNotRegistered",
        /// A condition that it depends on is False or Unknown.
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
        /// EC2 refuses launches because of the class's spec.
        LaunchRefused => "LaunchRefused",
        /// The query to EC2 for the class's snapshots failed.
        ValidationIncomplete => "ValidationIncomplete",
        /// One of the conditions below it isn't True.
        UnhealthyDependents => "UnhealthyDependents",
        /// Fields of the spec aren't acted on.
        UnsupportedFields => "UnsupportedFields",
        /// The cluster is shifted away from a zone.
        ZonalShiftActive => "ZonalShiftActive",
        /// The query to ARC for the cluster's shifts failed, or ARC doesn't know the cluster.
        ZonalShiftResolutionFailed => "ZonalShiftResolutionFailed",
    }
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
    /// The generation of the observed spec.
    pub observed_generation: u64,
    /// The time of the next observation; an Unknown status always has one.
    pub next_try: Option<Timestamp>,
}

impl ConditionType {
    /// The reason of a condition that holds: its own type, as with the peer. Tenon's own types lose their domain,
    /// because a reason has no `/` (`metav1.Condition`).
    #[must_use]
    pub fn reason_of_true(self) -> &'static str {
        let condition = self.as_str();
        condition.split_once('/').map_or(condition, |(_domain, name)| name)
    }
}

impl Condition {
    /// The reason as the object's status shows it: the type's own name where the condition holds.
    #[must_use]
    pub fn reason_text(&self) -> &'static str {
        match self.reason {
            ConditionReason::Holds => self.condition.reason_of_true(),
            ConditionReason::AmiNotFound
            | ConditionReason::UnsupportedAlias
            | ConditionReason::AmiResolutionFailed
            | ConditionReason::SubnetsNotFound
            | ConditionReason::SubnetResolutionFailed
            | ConditionReason::SecurityGroupsNotFound
            | ConditionReason::SecurityGroupResolutionFailed
            | ConditionReason::InstanceProfileNotFound
            | ConditionReason::InstanceProfileResolutionFailed
            | ConditionReason::SnapshotNotFound
            | ConditionReason::CapacityReservationResolutionFailed
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
            | ConditionReason::LaunchRefused
            | ConditionReason::ValidationIncomplete
            | ConditionReason::UnhealthyDependents
            | ConditionReason::UnsupportedFields
            | ConditionReason::ZonalShiftActive
            | ConditionReason::ZonalShiftResolutionFailed => self.reason.as_str(),
        }
    }
}
