//! The calls that the twin counts, throttles, denies and fails, by EC2's names.

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// TerminateInstances.
    TerminateInstances,
    /// CreateTags.
    CreateTags,
    /// The Pricing API's GetProducts.
    GetProducts,
    /// ARC's GetManagedResource.
    GetManagedResource,
}

impl Call {
    /// EC2's name of the call.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DescribeInstanceTypes => "DescribeInstanceTypes",
            Self::DescribeInstanceTypeOfferings => "DescribeInstanceTypeOfferings",
            Self::DescribeAvailabilityZones => "DescribeAvailabilityZones",
            Self::DescribeSpotPriceHistory => "DescribeSpotPriceHistory",
            Self::DescribeImages => "DescribeImages",
            Self::DescribeSubnets => "DescribeSubnets",
            Self::DescribeSecurityGroups => "DescribeSecurityGroups",
            Self::DescribeSnapshots => "DescribeSnapshots",
            Self::DescribeCapacityReservations => "DescribeCapacityReservations",
            Self::CreateLaunchTemplate => "CreateLaunchTemplate",
            Self::DescribeLaunchTemplates => "DescribeLaunchTemplates",
            Self::DeleteLaunchTemplate => "DeleteLaunchTemplate",
            Self::CreateFleet => "CreateFleet",
            Self::RunInstances => "RunInstances",
            Self::DescribeInstances => "DescribeInstances",
            Self::TerminateInstances => "TerminateInstances",
            Self::CreateTags => "CreateTags",
            Self::GetProducts => "GetProducts",
            Self::GetManagedResource => "GetManagedResource",
        }
    }
}
