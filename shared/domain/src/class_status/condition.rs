//! Conditions of a class: types, statuses and reasons as stable words.
//!
//! It doesn't decide when a condition holds. Source of types and reasons: aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass_status.go`.

use jiff::Timestamp;

crate::words! {
    /// A condition of a node class.
    pub enum ConditionType {
        /// It has images.
        AmisReady = "AMIsReady",
        /// It has subnets.
        SubnetsReady,
        /// It has security groups.
        SecurityGroupsReady,
        /// Its nodes have an identity.
        InstanceProfileReady,
        /// Its capacity reservations are known; only with the gate `ReservedCapacity` on.
        CapacityReservationsReady,
        /// Its placement group is known; only if it selects one.
        PlacementGroupReady,
        /// EC2 would take a launch from it.
        ValidationSucceeded,
        /// All that it depends on holds.
        Ready,
        /// Parts of its spec are accepted and not acted on.
        Unsupported = "tenon.dev/Unsupported",
        /// None of its zones is shifted; only with the cluster's setting `zonal_shift` Enabled.
        ZonesInService = "tenon.dev/ZonesInService",
    }

    /// A condition's status.
    pub enum ConditionStatus else Unknown {
        /// It holds.
        True,
        /// It doesn't.
        False,
        /// It couldn't be seen.
        Unknown,
    }

    /// Why a condition has its status.
    pub enum ConditionReason {
        /// It holds; shown as the condition's own type, as with the peer.
        Holds,
        /// Nothing matches the selector, or nothing of it is available.
        AmiNotFound = "AMINotFound",
        /// Images match the selector, and the class accepts none of them.
        ImagesRejected,
        /// EC2 ended the image's instance before a Node joined, and there is no other image.
        LaunchFailed,
        /// No Node of the image's instance joined, and there is no other image.
        NeverJoined,
        /// The class's policy on images can't be read.
        ImagePolicyInvalid,
        /// The alias names nothing for this version of Kubernetes.
        UnsupportedAlias,
        /// The query to EC2 or SSM for images failed.
        AmiResolutionFailed = "AMIResolutionFailed",
        /// No subnet matches.
        SubnetsNotFound,
        /// The query to EC2 for subnets failed.
        SubnetResolutionFailed,
        /// No security group matches.
        SecurityGroupsNotFound,
        /// The query to EC2 for security groups failed.
        SecurityGroupResolutionFailed,
        /// There is no such instance profile.
        InstanceProfileNotFound,
        /// The instance profile has no role.
        InstanceProfileWithoutRole,
        /// The instance profile's role isn't the class's, or isn't allowed.
        InstanceProfileRoleNotAllowed,
        /// The instance profile, or its role, is so new that EC2 may not know it.
        InstanceProfileNotPropagated,
        /// IAM gives no answer about the instance profile: a launch decides.
        InstanceProfileNotChecked,
        /// A snapshot that the class names doesn't exist.
        SnapshotNotFound,
        /// The query to EC2 for capacity reservations failed.
        CapacityReservationResolutionFailed,
        /// No available placement group has the selected name or id.
        PlacementGroupNotFound,
        /// The query to EC2 for the placement group failed.
        PlacementGroupResolutionFailed,
        /// The class uses a resource that the cluster's registry entry doesn't allow.
        NotAllowed,
        /// The cluster isn't in the registry.
        ClusterNotRegistered,
        /// A condition that it depends on is False or Unknown.
        DependenciesNotReady,
        /// The services' CIDR isn't known.
        ClusterCidrResolutionFailed = "ClusterCIDRResolutionFailed",
        /// The kubelet's settings contradict each other.
        InvalidKubeletConfiguration,
        /// Kubelet settings are expressions.
        KubeletExpressionsDisabled,
        /// The AMI family doesn't take these kubelet settings.
        UnsupportedKubeletConfiguration,
        /// The class's tags are reserved or malformed.
        TagValidationFailed,
        /// The user data is larger than EC2 takes.
        UserDataSizeLimitExceeded,
        /// EC2 refuses CreateLaunchTemplate.
        CreateLaunchTemplateAuthCheckFailed,
        /// EC2 refuses CreateFleet.
        CreateFleetAuthCheckFailed,
        /// EC2 refuses RunInstances.
        RunInstancesAuthCheckFailed,
        /// EC2 refuses launches because of the class's spec.
        LaunchRefused,
        /// No dry run and no launch has shown yet whether EC2 allows launches.
        AwaitingValidation,
        /// The cluster's stack disables dry runs: the first launch shows whether EC2 allows launches.
        DryRunDisabled,
        /// The query to EC2 for the class's snapshots failed.
        ValidationIncomplete,
        /// One of the conditions below it isn't True.
        UnhealthyDependents,
        /// Fields of the spec aren't acted on.
        UnsupportedFields,
        /// The cluster is shifted away from a zone.
        ZonalShiftActive,
        /// The query to ARC for the cluster's shifts failed, or ARC doesn't know the cluster.
        ZonalShiftResolutionFailed,
    }
}

impl ConditionReason {
    /// The word that the table's item has for it. Releases that don't know a word can't read the item: a reason that not
    /// all of them know stands there as another one, with the exact one beside it.
    #[must_use]
    pub const fn known_to_all(self) -> Self {
        if matches!(self, Self::KubeletExpressionsDisabled) {
            Self::InvalidKubeletConfiguration
        } else {
            self
        }
    }

    /// What an unknown reason of a later release counts as: nothing but the status is sure, and no launch helps.
    #[must_use]
    pub const fn of_later_release(status: ConditionStatus) -> Self {
        match status {
            ConditionStatus::True => Self::Holds,
            ConditionStatus::False | ConditionStatus::Unknown => Self::UnhealthyDependents,
        }
    }

    /// Whether only a launch can change it: nothing else is against one.
    #[must_use]
    pub fn is_decided_by_launch(self) -> bool {
        [
            Self::LaunchRefused,
            Self::InstanceProfileNotChecked,
            Self::DependenciesNotReady,
            Self::AwaitingValidation,
            Self::CreateLaunchTemplateAuthCheckFailed,
            Self::CreateFleetAuthCheckFailed,
            Self::RunInstancesAuthCheckFailed,
        ]
        .contains(&self)
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
    /// A sentence; empty where it holds and nothing else is to be known.
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
        if self.reason == ConditionReason::Holds {
            self.condition.reason_of_true()
        } else {
            self.reason.as_str()
        }
    }
}
