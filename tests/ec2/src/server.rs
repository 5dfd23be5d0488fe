//! The tests' requirements on a server: the port, a world of its own, and the controls that some servers have.

use std::collections::BTreeMap;

use tenon_domain::id::{ClusterName, ImageId, SecurityGroupId, SubnetId, Zone};
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, FleetLaunchTemplate, FleetOverride, FleetTags, ImageState,
    LaunchTemplateData, OnDemandAllocation, SpotAllocation, TagFilter, Tags, TargetCapacityType,
};
use tenon_ec2::{AuthorizationMessages, Ec2, InstanceProfiles, LaunchRights, Parameters};
use tenon_twin::{Call, CapacityPool};

use crate::difference::Difference;

/// The tag of images that are in every world.
pub(crate) const IMAGES_TAG: (&str, &str) = ("tenon.dev/test", "ec2");
/// The tag of one world's resources.
pub(crate) const WORLD_TAG: &str = "example.com/world";

/// A server with a world.
pub trait Server {
    /// The port.
    type Ec2: Ec2 + LaunchRights;
    /// The port.
    fn ec2(&self) -> &Self::Ec2;
    /// The ports beside it that every server has.
    type Beside: Parameters + InstanceProfiles + AuthorizationMessages;
    /// The ports beside it.
    fn beside(&self) -> &Self::Beside;
    /// The world.
    fn world(&self) -> &ServerWorld;
    /// Whether the server does otherwise than EC2.
    fn differs(&self, difference: Difference) -> bool;
    /// Takes all capacity of a pool away, if there is any to take.
    fn exhaust(&self, pool: CapacityPool);
    /// Denies a call, where the server knows of rights.
    fn deny(&self, call: Call);
    /// The ARN of a new launch role of a cluster, where the server knows of rights. From then on nobody launches by other
    /// rights.
    fn launch_role(&self, cluster: &ClusterName) -> Option<String>;
    /// Lets so many seconds pass, where the server's time isn't the real one.
    fn pass(&self, seconds: i64);
}

/// A test's world at its beginning. Only the images are shared with other tests.
#[derive(Debug, Clone)]
pub struct ServerWorld {
    /// Its name, unlike any other's.
    pub name: String,
    /// An x86_64 image in each state that the server can show.
    pub images: BTreeMap<ImageState, ImageId>,
    /// An available arm64 image.
    pub arm_image: ImageId,
    /// The account that owns the images.
    pub owner: String,
    /// Two subnets with their zones, by zone.
    pub subnets: Vec<(SubnetId, Zone)>,
    /// A security group of the name `nodes-<world>`.
    pub group: SecurityGroupId,
    /// The ARN of the parameter `/<world>/ami`, whose first value is `ami-1` and whose second is `ami-2`.
    pub parameter_arn: String,
}

impl ServerWorld {
    /// The tags of this world's resources.
    #[must_use]
    pub fn tags(&self) -> Tags {
        Tags::from([(WORLD_TAG.to_owned(), self.name.clone())])
    }

    /// The filter for this world's resources.
    #[must_use]
    pub fn filter(&self) -> TagFilter {
        TagFilter::equals(WORLD_TAG, &self.name)
    }

    /// The name of its parameter.
    #[must_use]
    pub fn parameter(&self) -> String {
        format!("/{}/ami", self.name)
    }

    /// Its instance profile, with the role of the same name.
    #[must_use]
    pub fn profile(&self) -> String {
        format!("nodes-{}", self.name)
    }

    /// Its instance profile without a role.
    #[must_use]
    pub fn profile_without_role(&self) -> String {
        format!("empty-{}", self.name)
    }

    /// Its image that can be launched.
    #[must_use]
    pub fn image(&self) -> ImageId {
        self.images[&ImageState::Available].clone()
    }

    /// A launch template in the world's group.
    #[must_use]
    pub fn template(&self) -> CreateLaunchTemplate {
        CreateLaunchTemplate {
            name: format!("edges-{}", self.name),
            data: LaunchTemplateData {
                security_groups: vec![self.group.clone()],
                user_data: Some("dXNlcg==".to_owned()),
                ..LaunchTemplateData::default()
            },
            tags: self.tags(),
        }
    }

    /// A way to launch a type in one of the world's subnets.
    #[must_use]
    pub fn launch(&self, instance_type: &str, subnet: usize) -> FleetOverride {
        let (subnet, zone) = &self.subnets[subnet];
        FleetOverride {
            instance_type: instance_type.parse().unwrap(),
            subnet: Some(subnet.clone()),
            zone: Some(zone.clone()),
            image: Some(self.image()),
            priority: None,
        }
    }

    /// A fleet of the world's template.
    #[must_use]
    pub fn fleet(
        &self,
        capacity_type: TargetCapacityType,
        target_capacity: u32,
        overrides: Vec<FleetOverride>,
    ) -> CreateFleetRequest {
        CreateFleetRequest {
            client_token: format!("token-{}", self.name).parse().unwrap(),
            target_capacity,
            capacity_type,
            on_demand_allocation: OnDemandAllocation::LowestPrice,
            spot_allocation: SpotAllocation::PriceCapacityOptimized,
            launch_templates: vec![FleetLaunchTemplate {
                name: self.template().name,
                version: "$Latest".to_owned(),
                overrides,
            }],
            tags: FleetTags { instance: self.tags(), volume: self.tags(), fleet: self.tags() },
            context: None,
        }
    }
}
