//! The kinds of `tenon get` and `tenon why`.

/// What `tenon get` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum GetKind {
    /// NodeClaims
    Claims,
    /// Nodes, as the agent reported them
    Nodes,
    /// NodePools
    Pools,
    /// EC2NodeClasses, as resolved
    Classes,
    /// Images
    Images,
    /// Instance types
    Types,
    /// Capacity that EC2 refused
    Unavailable,
    /// Memory that kubelets reported, by type, image and cluster
    Learned,
    /// Disruption commands that replace nodes
    Rollouts,
    /// Parts of the catalogue
    Catalog,
    /// Decisions of today
    Events,
}

impl GetKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 11] = [
        Self::Claims,
        Self::Nodes,
        Self::Pools,
        Self::Classes,
        Self::Images,
        Self::Types,
        Self::Unavailable,
        Self::Learned,
        Self::Rollouts,
        Self::Catalog,
        Self::Events,
    ];

    /// Its name on the command line.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::Nodes => "nodes",
            Self::Pools => "pools",
            Self::Classes => "classes",
            Self::Images => "images",
            Self::Types => "types",
            Self::Unavailable => "unavailable",
            Self::Learned => "learned",
            Self::Rollouts => "rollouts",
            Self::Catalog => "catalog",
            Self::Events => "events",
        }
    }

    /// The kind of that name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

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

/// The subjects of `tenon why`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum StoryOf {
    /// A NodeClaim
    Claim,
    /// A Node: the decisions about its NodeClaim
    Node,
    /// A pod, `[NAMESPACE/]NAME`: decisions about it and about the NodeClaims launched for it
    Pod,
    /// An EC2NodeClass
    Class,
    /// An image
    Image,
}

impl StoryOf {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::Claim, Self::Node, Self::Pod, Self::Class, Self::Image];

    /// The owner of the decisions. An image is the region's, though clusters also record decisions about it.
    pub(crate) const fn belongs_to(self) -> BelongsTo {
        match self {
            Self::Claim | Self::Node | Self::Pod | Self::Class => BelongsTo::Cluster,
            Self::Image => BelongsTo::Region,
        }
    }

    /// Its name on the command line.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Class => "class",
            Self::Image => "image",
        }
    }

    /// The one of that name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.as_str() == text)
    }
}
