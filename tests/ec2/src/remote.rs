//! Servers behind the adapter: EC2's wire protocol at an endpoint.
//!
//! The SDK itself creates moto's world, because the port can't create VPCs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};
use aws_types::SdkConfig;
use tenon_aws::{
    AwsAuthorizationMessages, AwsEc2, AwsInstanceProfiles, AwsParameters, AwsPricing, AwsZonalShift,
};
use tenon_domain::id::{ClusterName, ImageId, SubnetId, Zone};
use tenon_ec2::Ec2Account;
use tenon_ec2::port::ImageState;
use tenon_twin::{Call, CapacityPool, RegionTwin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::difference::Difference;
use crate::server::{Server, ServerWorld, WORLD_TAG};
use crate::twin::TwinServer;

/// The variable that names the endpoint.
pub(crate) const ENDPOINT: &str = "TENON_EC2_ENDPOINT";

/// All adapters.
type AdapterAccount = Ec2Account<
    AwsEc2,
    AwsPricing,
    AwsZonalShift,
    AwsParameters,
    AwsInstanceProfiles,
    AwsAuthorizationMessages,
>;

/// moto, through the adapters.
#[derive(Debug)]
pub struct MotoServer {
    account: AdapterAccount,
    world: ServerWorld,
}

impl MotoServer {
    /// moto at the environment's endpoint, with a new world.
    ///
    /// # Panics If the variable isn't set, or the server doesn't create the world.
    pub async fn new() -> Self {
        let config = config(&endpoint(), "test", "test");
        let world = moto_world(&config).await;
        Self { account: account(&config), world }
    }

    /// The EC2 adapter of a user whose policy denies one action. From now on the server looks at everybody's rights, so
    /// no other test may run beside this one.
    ///
    /// # Panics If the server doesn't make the user.
    pub async fn denied(&self, action: &str) -> AwsEc2 {
        let endpoint = endpoint();
        let client = aws_sdk_iam::Client::new(&config(&endpoint, "test", "test"));
        let user = format!("user-{}", self.world.name);
        let policy = format!(
            r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": "*", "Resource": "*"}},
            {{"Effect": "Deny", "Action": "{action}", "Resource": "*"}}]}}"#
        );
        client.create_user().user_name(&user).send().await.expect("a user");
        let put = client.put_user_policy().user_name(&user).policy_name("denied").policy_document(policy);
        put.send().await.expect("a policy");
        let key = client.create_access_key().user_name(&user).send().await.expect("a key");
        let key = key.access_key.expect("a key has an id");
        look_at_rights(&endpoint).await;
        AwsEc2::new(&config(&endpoint, key.access_key_id(), key.secret_access_key()))
    }
}

/// moto's own switch: after no further call it looks at rights.
async fn look_at_rights(endpoint: &str) {
    let address = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    let request =
        "POST /moto-api/reset-auth HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\n0";
    stream.write_all(request.as_bytes()).await.expect("the server takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the server answers");
    assert!(answer.contains(" 200 "), "{answer}");
}

/// The region twin on the wire, through the adapters.
#[derive(Debug)]
pub struct WireServer {
    account: AdapterAccount,
    served: TwinServer,
}

impl WireServer {
    /// A new twin, served on a free port of this machine as long as the runtime lives.
    ///
    /// # Panics If no port can be bound.
    pub async fn new() -> Self {
        let served = TwinServer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound port"));
        tokio::spawn(tenon_twin_wire::serve(served.twin().clone(), listener));
        Self { account: account(&config(&endpoint, "test", "test")), served }
    }

    /// The twin's prices, through the adapter.
    #[must_use]
    pub fn pricing(&self) -> &AwsPricing {
        &self.account.pricing
    }

    /// The twin's zonal shifts, through the adapter.
    #[must_use]
    pub fn zonal_shift(&self) -> &AwsZonalShift {
        &self.account.zonal_shift
    }

    /// The twin behind the wire.
    #[must_use]
    pub fn twin(&self) -> &RegionTwin {
        self.served.twin()
    }
}

fn endpoint() -> String {
    std::env::var(ENDPOINT).unwrap_or_else(|_| {
        panic!(
            "`{ENDPOINT}` isn't set: run `tests/servers/moto -- cargo test -p tenon-ec2-tests -- --ignored`"
        )
    })
}

fn account(config: &SdkConfig) -> AdapterAccount {
    Ec2Account {
        ec2: AwsEc2::new(config),
        pricing: AwsPricing::new(config, "us-east-1".parse().unwrap()),
        zonal_shift: AwsZonalShift::new(config),
        parameters: AwsParameters::new(config),
        instance_profiles: AwsInstanceProfiles::new(config),
        authorization_messages: AwsAuthorizationMessages::new(config),
    }
}

/// The SDK's configuration for a server, with the key of a user. Servers that don't look at rights take any.
fn config(endpoint: &str, key_id: &str, secret: &str) -> SdkConfig {
    let credentials = Credentials::new(key_id, secret, None, None, "tests");
    let http = aws_smithy_http_client::Builder::new().build_http();
    SdkConfig::builder()
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(http)
        .endpoint_url(endpoint)
        .behavior_version(BehaviorVersion::v2026_01_12())
        .build()
}

/// A name that no other test has, in this run and in others on the same server.
fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst))
}

/// A VPC with two subnets and a group; the images are those of `tests/servers/moto-images.json`.
async fn moto_world(config: &SdkConfig) -> ServerWorld {
    let client = Client::new(config);
    let name = new_name();
    let tagged = |of: ResourceType| {
        let tag = Tag::builder().key(WORLD_TAG).value(&name).build();
        TagSpecification::builder().resource_type(of).tags(tag).build()
    };
    let vpc = client.create_vpc().cidr_block("10.0.0.0/16").send().await.expect("a VPC");
    let vpc = vpc.vpc.and_then(|vpc| vpc.vpc_id).expect("a VPC has an id");
    let mut subnets: Vec<(SubnetId, Zone)> = Vec::new();
    for (n, zone) in ["us-east-1a", "us-east-1b"].into_iter().enumerate() {
        let made = client
            .create_subnet()
            .vpc_id(&vpc)
            .cidr_block(format!("10.0.{n}.0/24"))
            .availability_zone(zone)
            .tag_specifications(tagged(ResourceType::Subnet))
            .send()
            .await
            .expect("a subnet");
        let id = made.subnet.and_then(|subnet| subnet.subnet_id).expect("a subnet has an id");
        subnets.push((id.parse().unwrap(), zone.parse().unwrap()));
    }
    let group = client
        .create_security_group()
        .group_name(format!("nodes-{name}"))
        .description("nodes")
        .vpc_id(&vpc)
        .tag_specifications(tagged(ResourceType::SecurityGroup))
        .send()
        .await
        .expect("a security group");
    let id = |text: &str| text.parse::<ImageId>().unwrap();
    let made = ServerWorld {
        name,
        images: BTreeMap::from([
            (ImageState::Available, id("ami-00000000000000001")),
            (ImageState::Pending, id("ami-0000000000000000a")),
            (ImageState::Failed, id("ami-0000000000000000b")),
            (ImageState::Disabled, id("ami-0000000000000000c")),
            (ImageState::Invalid, id("ami-0000000000000000d")),
        ]),
        arm_image: id("ami-00000000000000002"),
        owner: "111122223333".to_owned(),
        subnets,
        group: group.group_id.expect("a group has an id").parse().unwrap(),
        parameter_arn: String::new(),
    };
    add_profiles(config, &made).await;
    ServerWorld { parameter_arn: add_parameter(config, &made).await, ..made }
}

/// The world's parameter, with its ARN as the answer.
async fn add_parameter(config: &SdkConfig, world: &ServerWorld) -> String {
    let client = aws_sdk_ssm::Client::new(config);
    for value in ["ami-1", "ami-2"] {
        client
            .put_parameter()
            .name(world.parameter())
            .value(value)
            .r#type(aws_sdk_ssm::types::ParameterType::String)
            .overwrite(true)
            .send()
            .await
            .expect("a parameter");
    }
    let found = client.get_parameter().name(world.parameter()).send().await.expect("the parameter");
    found.parameter.and_then(|parameter| parameter.arn).expect("a parameter has an ARN")
}

/// The world's instance profiles, with and without a role.
async fn add_profiles(config: &SdkConfig, world: &ServerWorld) {
    let client = aws_sdk_iam::Client::new(config);
    for name in [world.profile(), world.profile_without_role()] {
        client.create_instance_profile().instance_profile_name(name).send().await.expect("a profile");
    }
    let trust = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}"#;
    let role = client.create_role().role_name(world.profile()).assume_role_policy_document(trust);
    role.send().await.expect("a role");
    let with_role = client
        .add_role_to_instance_profile()
        .instance_profile_name(world.profile())
        .role_name(world.profile());
    with_role.send().await.expect("a profile takes a role");
}

impl Server for MotoServer {
    type Ec2 = AwsEc2;

    fn ec2(&self) -> &AwsEc2 {
        &self.account.ec2
    }

    type Beside = AdapterAccount;

    fn beside(&self) -> &AdapterAccount {
        &self.account
    }

    fn world(&self) -> &ServerWorld {
        &self.world
    }

    fn differs(&self, difference: Difference) -> bool {
        Difference::ALL.contains(&difference)
    }

    fn exhaust(&self, _: CapacityPool) {}

    fn deny(&self, _: Call) {}

    fn launch_role(&self, _: &ClusterName) -> Option<String> {
        None
    }

    fn pass(&self, _: i64) {}
}

impl Server for WireServer {
    type Ec2 = AwsEc2;

    fn ec2(&self) -> &AwsEc2 {
        &self.account.ec2
    }

    type Beside = AdapterAccount;

    fn beside(&self) -> &AdapterAccount {
        &self.account
    }

    fn world(&self) -> &ServerWorld {
        self.served.world()
    }

    fn differs(&self, difference: Difference) -> bool {
        self.served.differs(difference)
    }

    fn exhaust(&self, pool: CapacityPool) {
        self.served.exhaust(pool);
    }

    fn deny(&self, call: Call) {
        self.served.deny(call);
    }

    fn launch_role(&self, cluster: &ClusterName) -> Option<String> {
        self.served.launch_role(cluster)
    }

    fn pass(&self, seconds: i64) {
        self.served.pass(seconds);
    }
}
