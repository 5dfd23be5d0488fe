//! A whole end of a claim: an instance of the twin and an agent's snapshot, through the handler alone.

use std::sync::Arc;

use serde_json::json;
use tenon_domain::id::ClientToken;
use tenon_domain::tags;
use tenon_ec2::Ec2;
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, FleetLaunchTemplate, FleetOverride, FleetTags,
    LaunchTemplateData, OnDemandAllocation, SpotAllocation,
};
use tenon_snapshot::snapshot::{ClusterObjects, Encoder, Heartbeat, beat, read_manifest, write};
use tenon_table::Consistency;
use tenon_twin::NewImage;

use super::*;

/// An instance with our tags, of `launch-1`.
pub(super) fn launch_instance(world: &FunctionWorld) -> LaunchedInstance {
    world.ec2.add_network(&Tags::new()).unwrap();
    let image = world.ec2.add_image(NewImage::named("al2023-1", ImageArchitecture::X86_64));
    let data = LaunchTemplateData { image: Some(image.clone()), ..LaunchTemplateData::default() };
    let template = CreateLaunchTemplate { name: "nodes".to_owned(), data, tags: Tags::new() };
    block_on(world.ec2.create_launch_template(&template)).unwrap();
    let tags = [(tags::INSTALLATION, "tenon"), (tags::CLUSTER, "prod"), (tags::LAUNCH, "launch-1")];
    let tags: Tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let request = CreateFleetRequest {
        client_token: ClientToken::parse("token").unwrap(),
        target_capacity: 1,
        capacity_type: TargetCapacityType::OnDemand,
        on_demand_allocation: OnDemandAllocation::LowestPrice,
        spot_allocation: SpotAllocation::PriceCapacityOptimized,
        launch_templates: vec![FleetLaunchTemplate {
            name: "nodes".to_owned(),
            version: "$Latest".to_owned(),
            overrides: vec![FleetOverride {
                instance_type: "m5.large".parse().unwrap(),
                subnet: Some("subnet-00000000000000001".parse().unwrap()),
                zone: None,
                image: None,
                priority: None,
            }],
        }],
        context: None,
        tags: FleetTags { instance: tags, ..FleetTags::default() },
    };
    let id = block_on(world.ec2.create_fleet(&request)).unwrap().instance_ids().remove(0);
    LaunchedInstance { id, image, ..held(0) }
}

/// The agent reports these nodes now.
pub(super) fn report(world: &FunctionWorld, generation: u64, nodes: Vec<serde_json::Value>) {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "generation": 1},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        }}},
    });
    let nodes = nodes.into_iter().map(Arc::new).collect();
    let objects = ClusterObjects { nodes, node_pools: vec![Arc::new(pool)], ..ClusterObjects::default() };
    let (cluster, seen_at) = (cluster(), world.clock.now());
    let base = block_on(read_manifest(&world.table, &cluster, Consistency::Strong)).unwrap();
    let encoded = Encoder::default().encode(&objects, base.as_ref(), seen_at);
    block_on(write(&world.table, &cluster, &encoded, generation, base.as_ref())).unwrap();
    block_on(beat(&world.table, &cluster, Heartbeat { generation, seen_at })).unwrap();
}

pub(super) fn pass(world: &FunctionWorld, seconds: i64) {
    world.clock.advance(SignedDuration::from_secs(seconds));
    let _ = world.ec2.tick(world.clock.now());
}

fn settled_launch() -> Launch {
    with_launch(input(EPOCH, vec![], vec![]), settled()).launches.into_values().next().unwrap()
}

fn state(world: &FunctionWorld, instance: &InstanceId) -> &'static str {
    world.ec2.instance(instance).unwrap().instance.state.as_str()
}

#[test]
fn a_node_that_the_user_deletes_takes_its_instance_along() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let instance = launch_instance(&world);
    let of_claim =
        claim(0, ClaimState::Initialized { instance: instance.clone(), node: node_name(0), at: EPOCH });
    let owner =
        InstanceOwner { instance: instance.id.clone(), cluster: cluster(), claim: name(0), offering: None };
    commit(
        &world,
        vec![
            put(keys::claim(&cluster(), &name(0)), &of_claim),
            put(keys::instance(&instance.id), &owner),
            put(keys::launch(&cluster(), &settled_launch().id), &settled_launch()),
        ],
    );
    let lifecycle = Lifecycle::new();
    let provider_id = tenon_state::action::provider_id(&instance).to_string();
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-0", "deletionTimestamp": "2026-01-01T00:01:00Z",
            "labels": {"karpenter.sh/registered": "true"}},
        "spec": {"providerID": provider_id},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    pass(&world, 60);
    report(&world, 1, vec![node]);
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Draining);
    assert!(world.signals.take().contains(&RungBell::Agent(cluster())));
    assert_eq!(state(&world, &instance.id), "running");
    // The Node doesn't exist, so there is nothing to drain.
    pass(&world, 10);
    report(&world, 2, vec![]);
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Terminating);
    assert_ne!(state(&world, &instance.id), "running");
    for generation in 3..20 {
        pass(&world, 30);
        report(&world, generation, vec![]);
        sweep(&world, &lifecycle);
    }
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Terminated);
    // The action and the instance's item are deleted; claim and launch are kept for a while.
    assert_eq!(world.table.peek(&keys::action(&cluster(), &name(0))), None);
    assert_eq!(world.table.peek(&keys::instance(&instance.id)), None);
    for key in [keys::claim(&cluster(), &name(0)), keys::launch(&cluster(), &settled_launch().id)] {
        assert!(world.table.peek(&key).unwrap().contains_key("expires_at"), "{key}");
    }
    let told = world.signals.take_events();
    assert_eq!(told.iter().filter(|(kind, _)| kind == "NodeClaim Terminated").count(), 1);
}

#[test]
fn an_orphan_goes_and_an_instance_of_an_unknown_launch_halts_everything() {
    let check = |known: bool, expected: bool| {
        let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
        let instance = launch_instance(&world);
        if known {
            commit(&world, vec![put(keys::launch(&cluster(), &settled_launch().id), &settled_launch())]);
        }
        pass(&world, 600);
        report(&world, 1, vec![]);
        sweep(&world, &Lifecycle::new());
        assert_eq!(state(&world, &instance.id) != "running", expected);
        let halted = world.table.peek(&keys::halt(&cluster())).is_some();
        assert_eq!(halted, !expected);
        let told = world.signals.take_events();
        assert_eq!(told.iter().any(|(kind, _)| kind == "Termination Halted"), halted);
    };
    check(true, true);
    check(false, false);
}
