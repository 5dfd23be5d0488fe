//! Differences of a server from EC2, as the port shows them.

tenon_domain::words! {
    /// A difference of a server.
    pub enum Difference {
        /// A list comes on one page, however long.
        OnePage,
        /// A fleet uses its first override, at any price.
        FirstOverrideOnly,
        /// No pool runs dry: there are no capacity errors.
        NoCapacityErrors,
        /// A used client token launches again.
        NoClientTokens,
        /// Images are launched in every state, and on every architecture.
        EveryImageLaunches,
        /// A problem of one override refuses the whole fleet.
        ItemErrorsRefuseTheFleet,
        /// Instances of a fleet aren't in their template's security groups.
        NoFleetGroups,
        /// Instances of a fleet don't carry `aws:ec2:fleet-id`.
        NoFleetTag,
        /// Among several images by id, unknown ones are skipped silently.
        MissingImagesAreSilent,
        /// Disabled images are returned even if they aren't requested.
        DisabledAlwaysTold,
        /// Deleting a launch template that doesn't exist isn't `NotFound`.
        DeletingUnknownTemplatesIsInvalid,
        /// Tags are set on instances that don't exist.
        UnknownInstancesAreTagged,
        /// A terminated instance keeps its subnet and address.
        AddressesOutliveInstances,
        /// Every caller may do everything.
        NothingIsDenied,
        /// A dry run doesn't check the resources of the request.
        DryRunsLookAtNothing,
    }
}
