//! Where a server does otherwise than EC2, as far as the port shows it.

/// What a server does otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A list comes on one page, however long.
    OnePage,
    /// A fleet takes its first override, whatever it costs.
    FirstOverrideOnly,
    /// No pool runs dry: there are no capacity errors.
    NoCapacityErrors,
    /// A client token that was used launches again.
    NoClientTokens,
    /// Images are launched in every state, and on every architecture.
    EveryImageLaunches,
    /// What is wrong with one override refuses the whole fleet.
    ItemErrorsRefuseTheFleet,
    /// Instances of a fleet aren't in their template's security groups.
    NoFleetGroups,
    /// Instances of a fleet don't carry `aws:ec2:fleet-id`.
    NoFleetTag,
    /// Of several images by id, those that don't exist are left out without a word.
    MissingImagesAreSilent,
    /// Disabled images are told though they weren't asked for.
    DisabledAlwaysTold,
    /// Deleting a launch template that doesn't exist isn't `NotFound`.
    DeletingUnknownTemplatesIsInvalid,
    /// Tags are set on instances that don't exist.
    UnknownInstancesAreTagged,
    /// A terminated instance keeps its subnet and address.
    AddressesOutliveInstances,
    /// Every caller may do everything.
    NothingIsDenied,
    /// A dry run doesn't look at what the request names.
    DryRunsLookAtNothing,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::OnePage,
        Self::FirstOverrideOnly,
        Self::NoCapacityErrors,
        Self::NoClientTokens,
        Self::EveryImageLaunches,
        Self::ItemErrorsRefuseTheFleet,
        Self::NoFleetGroups,
        Self::NoFleetTag,
        Self::MissingImagesAreSilent,
        Self::DisabledAlwaysTold,
        Self::DeletingUnknownTemplatesIsInvalid,
        Self::UnknownInstancesAreTagged,
        Self::AddressesOutliveInstances,
        Self::NothingIsDenied,
        Self::DryRunsLookAtNothing,
    ];
}
