//! How long 15,000 messages of EC2 and AWS Health take until what follows is committed, in the shape of the peer's own
//! benchmark: a third of them scheduled changes, a third spot interruptions, a third state changes.
//!
//! Source: aws/karpenter-provider-aws `pkg/controllers/interruption/interruption_benchmark_test.go`. There EC2 and Kubernetes
//! are fakes, and the queue is real; here EC2 is the twin, the table is a server, and batches are as Lambda makes them.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchedInstance};
use tenon_domain::id::{ClientToken, ClusterName};
use tenon_domain::tags;
use tenon_domain::unavailable::OfferingKey;
use tenon_dynamodb::DynamoTable;
use tenon_ec2::Ec2;
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, FleetLaunchTemplate, FleetOverride, FleetTags,
    ImageArchitecture, InstanceState, LaunchTemplateData, OnDemandAllocation, SpotAllocation, Tags,
    TargetCapacityType,
};
use tenon_harness::claims::{claim, claim_name, instance, instance_id, node_name};
use tenon_harness::{EPOCH, FunctionWorld, Over, WorldConfig};
use tenon_interruption::Interruption;
use tenon_lifecycle::Lifecycle;
use tenon_runtime::Handler;
use tenon_runtime::batch::{Message, Shares, handle_batch};
use tenon_table::items::{InstanceOwner, from_item, keys, put};
use tenon_table::{Consistency, Table, content_commit};
use tenon_twin::NewImage;

#[path = "dynamodb/server.rs"]
mod server;

const OF_EACH: usize = 5_000;
/// Invocations at the same time: as many as `lifecycle` may have, and as the peer has.
const INVOCATIONS: usize = 10;
const TYPES: [&str; 12] = [
    "m5.large",
    "m5.xlarge",
    "m6i.large",
    "m6i.xlarge",
    "m6a.large",
    "m6a.xlarge",
    "c5.large",
    "c5.xlarge",
    "c6i.large",
    "c6i.xlarge",
    "r5.large",
    "r5.xlarge",
];

fn cluster(name: &str) -> ClusterName {
    name.parse().expect("a name")
}

/// The n-th spot instance: offerings differ, as those of a large cluster do.
fn spot(n: usize) -> LaunchedInstance {
    let instance_type = TYPES[n % TYPES.len()].parse().expect("a type");
    LaunchedInstance { capacity_type: CapacityType::Spot, instance_type, ..instance(n) }
}

fn offering(held: &LaunchedInstance, n: usize) -> OfferingKey {
    let zone_id = format!("use1-az{}", 1 + n / TYPES.len() % 3).parse().expect("a zone");
    OfferingKey { capacity_type: held.capacity_type, zone_id, instance_type: held.instance_type.clone() }
}

/// Claims of a cluster, each with an initialised Node of one of the instances.
async fn make_claims(table: &DynamoTable, cluster: &ClusterName, instances: &[LaunchedInstance]) {
    let writes = instances.iter().enumerate().flat_map(|(n, held)| {
        let made =
            claim(n, ClaimState::Initialized { instance: held.clone(), node: node_name(n), at: EPOCH });
        let (instance, name, offering) = (held.id.clone(), made.name.clone(), Some(offering(held, n)));
        let owner = InstanceOwner { instance, cluster: cluster.clone(), claim: name, offering };
        [put(keys::claim(cluster, &made.name), &made), put(keys::instance(&held.id), &owner)]
    });
    for writes in writes.collect::<Vec<_>>().chunks(100) {
        table.commit(&content_commit(Vec::new(), writes.to_vec())).await.expect("the table takes claims");
    }
}

/// Instances of the twin that shut down.
async fn shutting_down(world: &FunctionWorld, count: usize) -> Vec<LaunchedInstance> {
    world.ec2.add_network(&Tags::new()).expect("a network");
    let image = world.ec2.add_image(NewImage::named("al2023-1", ImageArchitecture::X86_64));
    let data = LaunchTemplateData { image: Some(image.clone()), ..LaunchTemplateData::default() };
    let template = CreateLaunchTemplate { name: "nodes".to_owned(), data, tags: Tags::new() };
    world.ec2.create_launch_template(&template).await.expect("a launch template");
    let tags = [(tags::INSTALLATION, "tenon"), (tags::CLUSTER, "stopping"), (tags::LAUNCH, "launch-1")];
    let tags: Tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let mut made = Vec::new();
    while made.len() < count {
        let launch_template = FleetLaunchTemplate {
            name: "nodes".to_owned(),
            version: "$Latest".to_owned(),
            overrides: vec![FleetOverride {
                instance_type: "m5.large".parse().expect("a type"),
                subnet: Some("subnet-00000000000000001".parse().expect("a subnet")),
                zone: None,
                image: None,
                priority: None,
            }],
        };
        let request = CreateFleetRequest {
            client_token: ClientToken::parse(format!("token-{}", made.len())).expect("a token"),
            target_capacity: 500,
            capacity_type: TargetCapacityType::OnDemand,
            on_demand_allocation: OnDemandAllocation::LowestPrice,
            spot_allocation: SpotAllocation::PriceCapacityOptimized,
            launch_templates: vec![launch_template],
            context: None,
            tags: FleetTags { instance: tags.clone(), ..FleetTags::default() },
        };
        let answer = world.ec2.create_fleet(&request).await.expect("a fleet");
        made.extend(answer.instance_ids());
    }
    for id in &made {
        world.ec2.push_instance(id, InstanceState::ShuttingDown).expect("it runs");
    }
    let made = made.into_iter().enumerate();
    made.map(|(n, id)| LaunchedInstance { id, image: image.clone(), ..instance(n) }).collect()
}

fn message(n: usize, source: &str, detail_type: &str, detail: &Value) -> Message {
    let body = json!({"version": "0", "id": n.to_string(), "detail-type": detail_type, "source": source,
        "account": "123456789012", "time": "2026-01-01T00:00:00Z", "region": "us-east-1", "resources": [],
        "detail": detail});
    Message { id: n.to_string(), body: body.to_string(), received: 1 }
}

/// Hands messages to a function in batches, several at the same time, and again those that come back. Returns the time that it
/// took, and how many came back.
async fn handled<H: Handler>(
    function: &H,
    ports: &Over<DynamoTable>,
    messages: Vec<Message>,
    batch: usize,
) -> (Duration, usize) {
    let (begun, back, shares) = (Instant::now(), Cell::new(0), Shares::default());
    let mut left = messages;
    while !left.is_empty() {
        let batches = futures::stream::iter(left.chunks(batch));
        let failures =
            batches.map(|batch| handle_batch(function, &shares, ports, batch)).buffer_unordered(INVOCATIONS);
        let failed: Vec<String> =
            failures.flat_map(futures::stream::iter).map(|failure| failure.message_id).collect().await;
        back.set(back.get() + failed.len());
        left.retain(|message| failed.contains(&message.id));
    }
    (begun.elapsed(), back.get())
}

/// The claims of a cluster that are in these phases.
async fn count(table: &DynamoTable, cluster: &ClusterName, of: usize, phases: &[ClaimPhase]) -> usize {
    let keys: Vec<_> = (0..of).map(|n| keys::claim(cluster, &claim_name(n))).collect();
    let mut found = 0;
    for keys in keys.chunks(100) {
        let items = table.batch_get(keys, Consistency::Strong).await.expect("claims are read");
        let claims = items.iter().map(|(key, item)| from_item::<Claim>(key, item).expect("a claim"));
        found += claims.filter(|claim| phases.contains(&claim.phase())).count();
    }
    found
}

#[test]
#[ignore = "tests/servers/dynamodb-local -- cargo test --workspace --test messages -- --ignored --nocapture"]
fn fifteen_thousand_messages_are_acted_on() {
    server::runtime().block_on(async {
        let table = server::fresh_table().await;
        let world = FunctionWorld::new(&WorldConfig::default()).expect("a world");
        let (warned, stopping) = (cluster("warned"), cluster("stopping"));
        let spot: Vec<_> = (0..2 * OF_EACH).map(spot).collect();
        make_claims(&table, &warned, &spot).await;
        let ended = shutting_down(&world, OF_EACH).await;
        make_claims(&table, &stopping, &ended).await;
        let warnings = (0..2 * OF_EACH).map(|n| {
            let id = instance_id(n);
            if n < OF_EACH {
                let detail = json!({"instance-id": id.as_str(), "instance-action": "terminate"});
                message(n, "aws.ec2", "EC2 Spot Instance Interruption Warning", &detail)
            } else {
                let detail = json!({"service": "EC2", "eventTypeCategory": "scheduledChange",
                    "affectedEntities": [{"entityValue": id.as_str()}]});
                message(n, "aws.health", "AWS Health Event", &detail)
            }
        });
        let states = ended.iter().enumerate().map(|(n, held)| {
            let detail = json!({"instance-id": held.id.as_str(), "state": "shutting-down"});
            message(n, "aws.ec2", "EC2 Instance State-change Notification", &detail)
        });
        let ports = Over::of(&world, table.clone());
        let (interruption, lifecycle) = (Interruption::new(), Lifecycle::new());
        let begun = Instant::now();
        let (of_warnings, of_states) = futures::join!(
            handled(&interruption, &ports, warnings.collect(), 10),
            handled(&lifecycle, &ports, states.collect(), 100),
        );
        println!(
            "{} messages: {:.1?}; warnings {:.1?}, {} came back; state changes {:.1?}, {} came back",
            3 * OF_EACH,
            begun.elapsed(),
            of_warnings.0,
            of_warnings.1,
            of_states.0,
            of_states.1
        );
        assert_eq!(count(&table, &warned, 2 * OF_EACH, &[ClaimPhase::Draining]).await, 2 * OF_EACH);
        let going =
            [ClaimPhase::Draining, ClaimPhase::Drained, ClaimPhase::Terminating, ClaimPhase::Terminated];
        assert_eq!(count(&table, &stopping, OF_EACH, &going).await, OF_EACH);
    });
}
