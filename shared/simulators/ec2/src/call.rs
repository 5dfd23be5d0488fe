//! The calls that the twin counts, throttles, denies and fails, by EC2's names.

tenon_domain::words! {
    /// A call.
    pub enum Call {
        /// DescribeInstanceTypes.
        DescribeInstanceTypes,
        /// DescribeInstanceTypeOfferings.
        DescribeInstanceTypeOfferings,
        /// DescribeAvailabilityZones.
        DescribeAvailabilityZones,
        /// DescribeSpotPriceHistory.
        DescribeSpotPriceHistory,
        /// DescribeImages.
        DescribeImages,
        /// DescribeSubnets.
        DescribeSubnets,
        /// DescribeSecurityGroups.
        DescribeSecurityGroups,
        /// DescribeSnapshots.
        DescribeSnapshots,
        /// DescribeCapacityReservations.
        DescribeCapacityReservations,
        /// DescribePlacementGroups.
        DescribePlacementGroups,
        /// CreateLaunchTemplate.
        CreateLaunchTemplate,
        /// DescribeLaunchTemplates.
        DescribeLaunchTemplates,
        /// DeleteLaunchTemplate.
        DeleteLaunchTemplate,
        /// CreateFleet, dry runs among it.
        CreateFleet,
        /// RunInstances; only dry runs.
        RunInstances,
        /// DescribeInstances.
        DescribeInstances,
        /// DescribeInstanceStatus.
        DescribeInstanceStatus,
        /// GetConsoleOutput.
        GetConsoleOutput,
        /// TerminateInstances.
        TerminateInstances,
        /// CreateTags.
        CreateTags,
        /// The Pricing API's GetProducts.
        GetProducts,
        /// ARC's GetManagedResource.
        GetManagedResource,
        /// Systems Manager's GetParameters.
        GetParameters,
        /// IAM's GetInstanceProfile.
        GetInstanceProfile,
        /// STS's DecodeAuthorizationMessage.
        DecodeAuthorizationMessage,
        /// STS's AssumeRole.
        AssumeRole,
    }
}
