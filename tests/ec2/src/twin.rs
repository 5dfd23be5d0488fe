//! The region twin as a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tenon_domain::id::ClusterName;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::{ImageArchitecture, ImageState, SecurityGroup, Subnet, Tags};
use tenon_twin::{
    Call, CapacityPool, ImageOutcome, NewImage, RegionTwin, TwinClock, TwinConfig, UnknownProfiles,
};

use crate::difference::Difference;
use crate::server::{IMAGES_TAG, Server, ServerWorld, WORLD_TAG};

/// The twin, with its world. It behaves like EC2.
#[derive(Debug)]
pub struct TwinServer {
    twin: RegionTwin,
    seconds: Arc<AtomicI64>,
    world: ServerWorld,
}

impl TwinServer {
    /// An unused twin of us-east-1. Its changes are visible at once.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a world is made, not assumed")]
    pub fn new() -> Self {
        let seconds = Arc::new(AtomicI64::new(1_767_225_600));
        let clock: TwinClock = Arc::new({
            let seconds = Arc::clone(&seconds);
            move || Timestamp::from_second(seconds.load(Ordering::SeqCst)).unwrap()
        });
        let config = TwinConfig {
            consistency_delay_max: SignedDuration::ZERO,
            unknown_profiles: UnknownProfiles::Missing,
            ..TwinConfig::new("us-east-1".parse().unwrap(), 1, clock)
        };
        let account = config.account.clone();
        let twin = RegionTwin::new(config).unwrap();
        let world = world(&twin, account);
        Self { twin, seconds, world }
    }

    /// The twin itself.
    #[must_use]
    pub fn twin(&self) -> &RegionTwin {
        &self.twin
    }
}

fn image(name: &str, architecture: ImageArchitecture) -> NewImage {
    let (key, value) = IMAGES_TAG;
    let tags = Tags::from([(key.to_owned(), value.to_owned())]);
    NewImage { tags, ..NewImage::named(name, architecture) }
}

fn world(twin: &RegionTwin, owner: String) -> ServerWorld {
    let x86 = |state: ImageState| image(&format!("edges-x86-{}", state.as_str()), ImageArchitecture::X86_64);
    let disabled = twin.add_image(x86(ImageState::Disabled));
    twin.disable_image(&disabled).unwrap();
    let images = BTreeMap::from([
        (ImageState::Available, twin.add_image(x86(ImageState::Available))),
        (
            ImageState::Pending,
            twin.create_image(NewImage {
                delay: Some(SignedDuration::from_hours(24)),
                ..x86(ImageState::Pending)
            }),
        ),
        (
            ImageState::Failed,
            twin.create_image(NewImage {
                delay: Some(SignedDuration::ZERO),
                outcome: ImageOutcome::Failed("it did".to_owned()),
                ..x86(ImageState::Failed)
            }),
        ),
        (ImageState::Disabled, disabled),
    ]);
    let arm_image = twin.add_image(image("edges-arm-available", ImageArchitecture::Arm64));
    let name = "twin".to_owned();
    let tags = Tags::from([(WORLD_TAG.to_owned(), name.clone())]);
    let vpc = "vpc-00000000000000001".to_owned();
    let region = "us-east-1".parse().unwrap();
    let zones = &Ec2Data::get().unwrap().region(&region).unwrap().zones;
    let subnets = zones.iter().take(2).enumerate().map(|(n, zone)| {
        let subnet = Subnet {
            id: format!("subnet-{n:017x}").parse().unwrap(),
            vpc: vpc.clone(),
            zone: zone.name.clone(),
            zone_id: zone.id.clone(),
            cidr: format!("10.0.{n}.0/24"),
            available_addresses: 0,
            tags: tags.clone(),
        };
        twin.add_subnet(subnet.clone()).unwrap();
        (subnet.id, subnet.zone)
    });
    let subnets = subnets.collect();
    let group = SecurityGroup {
        id: "sg-00000000000000001".parse().unwrap(),
        name: format!("nodes-{name}"),
        vpc: vpc.clone(),
        tags: tags.clone(),
    };
    twin.add_security_group(group.clone());
    let parameter_arn = twin.parameter_arn(&format!("/{name}/ami"));
    let made = ServerWorld { name, images, arm_image, owner, subnets, group: group.id, parameter_arn };
    twin.put_parameter(&made.parameter(), "ami-1");
    twin.put_parameter(&made.parameter(), "ami-2");
    twin.add_instance_profile(&made.profile(), &made.profile());
    twin.create_instance_profile(&made.profile_without_role()).unwrap();
    // The class of a line names the role `nodes`.
    twin.add_instance_profile("nodes", "nodes");
    made
}

impl Server for TwinServer {
    type Ec2 = RegionTwin;

    fn ec2(&self) -> &RegionTwin {
        &self.twin
    }

    type Beside = RegionTwin;

    fn beside(&self) -> &RegionTwin {
        &self.twin
    }

    fn world(&self) -> &ServerWorld {
        &self.world
    }

    fn differs(&self, _: Difference) -> bool {
        false
    }

    fn exhaust(&self, pool: CapacityPool) {
        self.twin.set_capacity(pool, Some(0));
    }

    fn deny(&self, call: Call) {
        self.twin.deny(call, "denied by the test");
    }

    fn launch_role(&self, cluster: &ClusterName) -> Option<String> {
        let arn = format!("arn:aws:iam::{}:role/tenon/us-east-1/tenon-{cluster}-launch", self.world.owner);
        self.twin.add_launch_role(&arn, cluster);
        Some(arn)
    }

    fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}
