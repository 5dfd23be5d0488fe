//! The kinds of `tenon get` and `tenon why`.

tenon_domain::words! {
    /// What `tenon get` lists. The command line has its word.
    #[derive(clap::ValueEnum)]
    pub(crate) enum GetKind {
        /// NodeClaims
        Claims = "claims",
        /// Nodes, as the agent reported them
        Nodes = "nodes",
        /// NodePools
        Pools = "pools",
        /// EC2NodeClasses, as resolved
        Classes = "classes",
        /// Images
        Images = "images",
        /// Instance types
        Types = "types",
        /// Capacity that EC2 refused
        Unavailable = "unavailable",
        /// Memory that kubelets reported, by type, image and cluster
        Learned = "learned",
        /// Disruption commands that replace nodes
        Rollouts = "rollouts",
        /// Parts of the catalogue
        Catalog = "catalog",
        /// Decisions of today
        Events = "events",
    }
}

impl GetKind {
    /// `kind` of the list's document.
    pub(crate) const fn list_kind(self) -> &'static str {
        match self {
            Self::Claims => "NodeClaimList",
            Self::Nodes => "NodeList",
            Self::Pools => "NodePoolList",
            Self::Classes => "EC2NodeClassList",
            Self::Images => "ImageList",
            Self::Types => "InstanceTypeList",
            Self::Unavailable => "UnavailableList",
            Self::Learned => "LearnedList",
            Self::Rollouts => "RolloutList",
            Self::Catalog => "CatalogPartList",
            Self::Events => "EventList",
        }
    }

    /// Whether the list is a cluster's, so that `--cluster` is needed if there are several.
    pub(crate) const fn belongs_to(self) -> BelongsTo {
        match self {
            Self::Claims | Self::Nodes | Self::Pools | Self::Classes | Self::Rollouts | Self::Events => {
                BelongsTo::Cluster
            }
            Self::Images | Self::Types | Self::Unavailable | Self::Learned | Self::Catalog => {
                BelongsTo::Region
            }
        }
    }

    /// The attribute that `NAME` must equal.
    pub(crate) const fn name_attribute(self) -> &'static str {
        match self {
            Self::Claims | Self::Nodes | Self::Pools | Self::Classes | Self::Types | Self::Events => "name",
            Self::Images | Self::Rollouts => "id",
            Self::Unavailable => "what",
            Self::Learned => "instance_type",
            Self::Catalog => "part",
        }
    }
}

/// The owner of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BelongsTo {
    /// The region's: all clusters share them.
    Region,
    /// One cluster's.
    Cluster,
}

tenon_domain::words! {
    /// The subjects of `tenon why`. The command line has its word.
    #[derive(clap::ValueEnum)]
    pub(crate) enum StoryOf {
        /// A NodeClaim
        Claim = "claim",
        /// A Node: the decisions about its NodeClaim
        Node = "node",
        /// A pod, `[NAMESPACE/]NAME`: decisions about it and about the NodeClaims launched for it
        Pod = "pod",
        /// An EC2NodeClass
        Class = "class",
        /// An image
        Image = "image",
    }
}

impl StoryOf {
    /// The owner of the decisions. An image is the region's, though clusters also record decisions about it.
    pub(crate) const fn belongs_to(self) -> BelongsTo {
        match self {
            Self::Claim | Self::Node | Self::Pod | Self::Class => BelongsTo::Cluster,
            Self::Image => BelongsTo::Region,
        }
    }
}
