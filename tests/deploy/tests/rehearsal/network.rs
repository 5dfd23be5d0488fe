//! The account before the stacks: a VPC with the cluster's tags. Images are made later.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};

use crate::account::REGION;
use crate::cluster::CLUSTER;

/// The tag by which classes find subnets and groups.
pub(crate) const DISCOVERY: &str = "karpenter.sh/discovery";

/// Makes the network.
pub(crate) async fn make_network(ec2: &Client) {
    let tagged = |of: ResourceType| {
        let tag = Tag::builder().key(DISCOVERY).value(CLUSTER).build();
        TagSpecification::builder().resource_type(of).tags(tag).build()
    };
    let vpc = ec2.create_vpc().cidr_block("10.0.0.0/16").send().await.expect("a VPC");
    let vpc = vpc.vpc.and_then(|vpc| vpc.vpc_id).expect("a VPC has an id");
    for (n, zone) in ["us-east-1a", "us-east-1b"].into_iter().enumerate() {
        let subnet = ec2.create_subnet().vpc_id(&vpc).cidr_block(format!("10.0.{n}.0/24"));
        let subnet = subnet.availability_zone(zone).tag_specifications(tagged(ResourceType::Subnet));
        subnet.send().await.expect("a subnet");
    }
    let group = ec2.create_security_group().group_name("nodes").description("nodes").vpc_id(&vpc);
    let group = group.tag_specifications(tagged(ResourceType::SecurityGroup));
    group.send().await.expect("a security group");
}

/// Makes a subnet and a security group without tags; their ids. Its zone is named: the server draws one otherwise, and
/// one of us-east-1's, as EC2's, offers old types alone.
pub(crate) async fn make_untagged_network(ec2: &Client) -> (String, String) {
    let vpc = ec2.create_vpc().cidr_block("10.1.0.0/16").send().await.expect("a VPC");
    let vpc = vpc.vpc.and_then(|vpc| vpc.vpc_id).expect("a VPC has an id");
    let subnet = ec2.create_subnet().vpc_id(&vpc).cidr_block("10.1.0.0/24").availability_zone("us-east-1a");
    let subnet = subnet.send().await.expect("a subnet");
    let group = ec2.create_security_group().group_name("second").description("second").vpc_id(vpc);
    let group = group.send().await.expect("a security group");
    let subnet = subnet.subnet.and_then(|subnet| subnet.subnet_id).expect("a subnet has an id");
    (subnet, group.group_id.expect("a security group has an id"))
}

/// An image of `tests/servers/moto-images.json`. moto's own images have no architecture, copies have.
const SOURCE: &str = "ami-00000000000000001";

/// Makes an image; its id.
pub(crate) async fn make_image(ec2: &Client, name: &str) -> String {
    let image = ec2.copy_image().name(name).source_image_id(SOURCE).source_region(REGION).send().await;
    image.expect("an image").image_id.expect("an image has an id")
}
