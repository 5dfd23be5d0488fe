//! What a user of the twin would notice, through the port.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};

use tenon_domain::id::{
    ClientToken, ImageId, InstanceId, InstanceType, Region, ReservationId, SubnetId, Zone,
};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_domain::{SignedDuration, Timestamp};

use super::*;
use crate::classify::Class;
use crate::error::Ec2Error;
use crate::port::*;

/// The twin's answers are ready at the first poll.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the twin never waits"),
    }
}

struct World {
    twin: RegionTwin,
    millis: Arc<AtomicI64>,
    image: ImageId,
}

const START: i64 = 1_767_225_600_000;

impl World {
    fn new(change: impl FnOnce(&mut TwinConfig)) -> Self {
        let millis = Arc::new(AtomicI64::new(START));
        let read = Arc::clone(&millis);
        let clock: Clock =
            Arc::new(move || Timestamp::from_millisecond(read.load(Ordering::SeqCst)).unwrap());
        let mut config = TwinConfig::new(Region::parse("us-east-1").unwrap(), 1, clock);
        let types = ["m5.large", "m5.xlarge", "m6g.large", "c5.large", "g5.xlarge"].map(instance_type);
        config.types = TypeSelection::Only(BTreeSet::from(types));
        config.consistency_delay_max = SignedDuration::ZERO;
        change(&mut config);
        let twin = RegionTwin::new(config).unwrap();
        twin.add_network(&Tags::from([("kubernetes.io/cluster/c".to_owned(), "owned".to_owned())])).unwrap();
        let image = twin.add_image(NewImage::named("al2023-1", Architecture::X86_64));
        let template = CreateLaunchTemplate {
            name: "nodes".to_owned(),
            data: LaunchTemplateData { image: Some(image.clone()), ..LaunchTemplateData::default() },
            tags: Tags::new(),
        };
        now(twin.create_launch_template(&template)).unwrap();
        Self { twin, millis, image }
    }

    fn plain() -> Self {
        Self::new(|_| {})
    }

    fn pass(&self, duration: SignedDuration) -> Vec<TwinEvent> {
        self.millis.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
        self.twin.tick(Timestamp::from_millisecond(self.millis.load(Ordering::SeqCst)).unwrap())
    }

    fn launch(&self, request: &CreateFleetRequest) -> FleetResult {
        now(self.twin.create_fleet(request)).unwrap()
    }

    fn one(&self) -> InstanceId {
        self.launch(&fleet("one", 1, &[over("m5.large", "us-east-1a")])).instance_ids().remove(0)
    }

    fn state(&self, id: &InstanceId) -> &'static str {
        self.twin.instance(id).unwrap().instance.state.as_str()
    }
}

fn instance_type(name: &str) -> InstanceType {
    InstanceType::parse(name).unwrap()
}

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

/// The subnet that `add_network` makes in a zone: by the zone's last letter.
fn subnet(zone: &str) -> SubnetId {
    let n = zone.bytes().last().unwrap() - b'a' + 1;
    SubnetId::parse(format!("subnet-{n:017x}")).unwrap()
}

fn over(name: &str, zone: &str) -> FleetOverride {
    FleetOverride {
        instance_type: instance_type(name),
        subnet: Some(subnet(zone)),
        zone: None,
        image: None,
        priority: None,
    }
}

fn fleet(token: &str, count: u32, overrides: &[FleetOverride]) -> CreateFleetRequest {
    CreateFleetRequest {
        client_token: ClientToken::parse(token).unwrap(),
        target_capacity: count,
        capacity_type: TargetCapacityType::OnDemand,
        on_demand_allocation: OnDemandAllocation::LowestPrice,
        spot_allocation: SpotAllocation::PriceCapacityOptimized,
        launch_templates: vec![FleetLaunchTemplate {
            name: "nodes".to_owned(),
            version: "$Latest".to_owned(),
            overrides: overrides.to_vec(),
        }],
        tags: FleetTags {
            instance: Tags::from([("launch".to_owned(), token.to_owned())]),
            ..FleetTags::default()
        },
        context: None,
    }
}

fn spot(mut request: CreateFleetRequest) -> CreateFleetRequest {
    request.capacity_type = TargetCapacityType::Spot;
    request
}

fn pool(capacity_type: TargetCapacityType, name: &str, at: &str) -> Pool {
    Pool { capacity_type, instance_type: instance_type(name), zone: zone(at) }
}

fn types_of(result: &FleetResult) -> Vec<String> {
    result.instances.iter().map(|i| format!("{}x{}", i.ids.len(), i.instance_type)).collect()
}

fn codes_of(result: &FleetResult) -> Vec<&str> {
    result.errors.iter().map(|e| e.code.as_str()).collect()
}

fn words(events: &[TwinEvent]) -> Vec<String> {
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    let state = |e: &TwinEvent| text(&e.json["detail"]["state"]) + &text(&e.json["detail"]["State"]);
    events.iter().map(|e| format!("{}: {}", text(&e.json["detail-type"]), state(e))).collect()
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

#[test]
fn an_instance_lives_from_pending_to_gone_and_tells_of_it() {
    let world = World::plain();
    let id = world.one();
    assert_eq!(world.state(&id), "pending");
    let mut events = world.pass(MINUTE);
    assert_eq!(world.state(&id), "running");
    let changes = now(world.twin.terminate_instances(std::slice::from_ref(&id))).unwrap();
    assert_eq!(
        (changes[0].previous, changes[0].current),
        (InstanceState::Running, InstanceState::ShuttingDown)
    );
    events.extend(world.pass(MINUTE));
    assert_eq!(world.state(&id), "terminated");
    let of = "EC2 Instance State-change Notification: ";
    assert_eq!(
        words(&events),
        ["pending", "running", "shutting-down", "terminated"].map(|s| format!("{of}{s}"))
    );
    let by_id = InstanceFilter { ids: vec![id], ..InstanceFilter::default() };
    assert_eq!(now(world.twin.describe_instances(&by_id, None)).unwrap().items.len(), 1);
    world.pass(SignedDuration::from_hours(1));
    let error = now(world.twin.describe_instances(&by_id, None)).unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert_eq!(world.twin.instances().len(), 1);
}

#[test]
fn an_instance_has_what_a_node_needs() {
    let world = World::plain();
    let id = world.one();
    let instance =
        now(world.twin.describe_instances(&InstanceFilter::default(), None)).unwrap().items.remove(0);
    assert_eq!(instance.provider_id().to_string(), format!("aws:///us-east-1a/{id}"));
    assert_eq!(instance.private_dns_name, "ip-10-0-0-4.ec2.internal");
    assert_eq!(instance.zone_id.as_ref().unwrap().as_str(), "use1-az2");
    assert_eq!(instance.tags["launch"], "one");
    assert_eq!(instance.image, world.image);
    let west = World::new(|c| c.region = Region::parse("eu-west-1").unwrap());
    west.launch(&fleet("west", 1, &[over("m5.large", "eu-west-1a")]));
    assert_eq!(west.twin.instances()[0].instance.private_dns_name, "ip-10-0-0-4.eu-west-1.compute.internal");
}

#[test]
fn the_cheapest_override_comes_first_and_others_fill_up() {
    let world = World::plain();
    let overrides =
        [over("m5.xlarge", "us-east-1a"), over("m5.large", "us-east-1a"), over("m5.large", "us-east-1b")];
    assert_eq!(types_of(&world.launch(&fleet("a", 3, &overrides))), ["3xm5.large"]);
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1a"), Some(1));
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1b"), Some(0));
    let result = world.launch(&fleet("b", 3, &overrides));
    assert_eq!(types_of(&result), ["1xm5.large", "2xm5.xlarge"]);
    assert_eq!(codes_of(&result), ["InsufficientInstanceCapacity", "InsufficientInstanceCapacity"]);
    assert_eq!(result.errors[0].class(), Class::InsufficientCapacity);
}

#[test]
fn a_fleet_can_give_less_than_asked_and_a_pool_gets_back_what_ends() {
    let world = World::plain();
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1a"), Some(1));
    let only = [over("m5.large", "us-east-1a")];
    let first = world.launch(&fleet("a", 2, &only));
    assert_eq!((types_of(&first), codes_of(&first).len()), (vec!["1xm5.large".to_owned()], 1));
    assert!(world.launch(&fleet("b", 1, &only)).instances.is_empty());
    now(world.twin.terminate_instances(&first.instance_ids())).unwrap();
    assert!(world.launch(&fleet("c", 1, &only)).instances.is_empty());
    world.pass(MINUTE);
    assert_eq!(types_of(&world.launch(&fleet("d", 1, &only))), ["1xm5.large"]);
}

#[test]
fn priorities_and_spare_capacity_order_overrides() {
    let world = World::plain();
    let first = FleetOverride { priority: Some(1), ..over("m5.xlarge", "us-east-1a") };
    let overrides = [over("m5.large", "us-east-1a"), first.clone()];
    let mut request = fleet("a", 1, &overrides);
    request.on_demand_allocation = OnDemandAllocation::Prioritized;
    assert_eq!(types_of(&world.launch(&request)), ["1xm5.xlarge"]);
    let mut request = spot(fleet("b", 2, &overrides));
    assert_eq!(types_of(&world.launch(&request)), ["2xm5.large"]);
    world.twin.set_capacity(pool(TargetCapacityType::Spot, "m5.large", "us-east-1a"), Some(1));
    request.client_token = ClientToken::parse("c").unwrap();
    assert_eq!(types_of(&world.launch(&request)), ["2xm5.xlarge"]);
    request.client_token = ClientToken::parse("d").unwrap();
    request.spot_allocation = SpotAllocation::LowestPrice;
    assert_eq!(types_of(&world.launch(&request)), ["1xm5.large", "1xm5.xlarge"]);
}

#[test]
fn overrides_that_cannot_be_launched_say_why() {
    let world = World::plain();
    let pending = world.twin.create_image(NewImage::named("al2023-2", Architecture::X86_64));
    let with =
        |image: &str, o: FleetOverride| FleetOverride { image: Some(ImageId::parse(image).unwrap()), ..o };
    let m5 = || over("m5.large", "us-east-1a");
    for (token, from, code, class) in [
        ("1", with("ami-none", m5()), "InvalidAMIID.NotFound", Class::ImageUnavailable),
        ("2", with(pending.as_str(), m5()), "InvalidAMIID.Unavailable", Class::ImageUnavailable),
        ("3", over("m6g.large", "us-east-1a"), "InvalidParameterValue", Class::Invalid),
        ("4", over("m5.large", "us-east-1z"), "InvalidSubnetID.NotFound", Class::NotFound),
        ("5", over("g5.xlarge", "us-east-1e"), "InvalidFleetConfiguration", Class::Unsupported),
        (
            "6",
            FleetOverride { zone: Some(zone("us-east-1b")), ..m5() },
            "InvalidParameterCombination",
            Class::Invalid,
        ),
        ("7", over("m9.large", "us-east-1a"), "InvalidParameterValue", Class::Invalid),
    ] {
        let result = world.launch(&fleet(token, 1, &[from]));
        assert_eq!(codes_of(&result), [code], "{token}");
        assert_eq!(result.errors[0].class(), class, "{token}");
        assert!(result.instances.is_empty());
    }
    assert!(world.twin.launches().is_empty());
    let named = &world.twin.requests()[1].images;
    assert!(named.contains(&(pending, Some(ImageState::Pending))));
}

#[test]
fn quotas_addresses_and_failing_pools_are_item_errors() {
    let world = World::plain();
    let only = [over("m5.large", "us-east-1a")];
    let quota = |capacity_type| Quota { capacity_type, family: QuotaFamily::Standard };
    world.twin.set_quota(quota(TargetCapacityType::OnDemand), Some(3));
    world.twin.set_quota(quota(TargetCapacityType::Spot), Some(0));
    let result = world.launch(&fleet("a", 2, &only));
    assert_eq!(
        (types_of(&result), codes_of(&result)),
        (vec!["1xm5.large".to_owned()], vec!["VcpuLimitExceeded"])
    );
    assert_eq!(codes_of(&world.launch(&spot(fleet("b", 1, &only)))), ["MaxSpotInstanceCountExceeded"]);
    world.twin.set_quota(quota(TargetCapacityType::OnDemand), None);
    world.twin.set_free_addresses(&subnet("us-east-1a"), 1).unwrap();
    let result = world.launch(&fleet("c", 2, &only));
    assert_eq!(codes_of(&result), ["InsufficientFreeAddressesInSubnet"]);
    assert_eq!(types_of(&result), ["1xm5.large"]);
    let seen = now(world.twin.describe_subnets(&ResourceFilter::default())).unwrap();
    assert_eq!((seen[0].available_addresses, seen[1].available_addresses), (0, 8187));
    let other = pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1b");
    world.twin.fail_pool(other, Some(("UnfulfillableCapacity".to_owned(), "no".to_owned())));
    assert_eq!(
        codes_of(&world.launch(&fleet("d", 1, &[over("m5.large", "us-east-1b")]))),
        ["UnfulfillableCapacity"]
    );
}

#[test]
fn a_fleet_that_names_nothing_launchable_is_refused_whole() {
    let world = World::plain();
    let class = |request: &CreateFleetRequest| now(world.twin.create_fleet(request)).unwrap_err().class();
    let only = [over("m5.large", "us-east-1a")];
    assert_eq!(class(&fleet("a", 0, &only)), Class::Invalid);
    assert_eq!(class(&fleet("b", 1, &[])), Class::Invalid);
    let mut request = fleet("c", 1, &only);
    request.launch_templates[0].name = "gone".to_owned();
    assert_eq!(class(&request), Class::TemplateMissing);
    request.launch_templates[0] =
        FleetLaunchTemplate { version: "7".to_owned(), ..fleet("x", 1, &only).launch_templates[0].clone() };
    assert_eq!(class(&request), Class::TemplateMissing);
    assert!(matches!(world.twin.requests()[0].outcome, RequestOutcome::Refused(_)));
}

#[test]
fn a_token_answers_the_same_until_it_expires() {
    let world = World::plain();
    let request = fleet("a", 2, &[over("m5.large", "us-east-1a")]);
    let first = world.launch(&request);
    world.pass(SignedDuration::from_hours(23));
    assert_eq!(world.launch(&request), first);
    let other = fleet("a", 3, &[over("m5.large", "us-east-1a")]);
    assert_eq!(now(world.twin.create_fleet(&other)).unwrap_err().class(), Class::TokenMismatch);
    assert_eq!(world.twin.launches().len(), 2);
    assert_eq!(world.twin.requests()[1].outcome, RequestOutcome::Replayed);
    world.pass(SignedDuration::from_hours(1));
    assert_ne!(world.launch(&request), first);
    assert_eq!(world.twin.launches().len(), 4);
}

#[test]
fn a_lost_answer_leaves_its_effect_and_a_replay_finds_it() {
    let world = World::plain();
    let lost = |effect| Fault { call: Call::CreateFleet, when: FaultWhen::Nth(1), effect };
    let request = fleet("a", 1, &[over("m5.large", "us-east-1a")]);
    world.twin.inject(lost(FaultEffect::RequestLost));
    assert!(matches!(now(world.twin.create_fleet(&request)), Err(Ec2Error::NoAnswer { .. })));
    assert!(world.twin.launches().is_empty());
    world.twin.inject(lost(FaultEffect::AnswerLost));
    assert!(matches!(now(world.twin.create_fleet(&request)), Err(Ec2Error::NoAnswer { .. })));
    assert_eq!(world.twin.launches().len(), 1);
    assert_eq!(world.launch(&request).instance_ids(), [world.twin.launches()[0].instance.clone()]);
    let refused = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    world.twin.inject(lost(FaultEffect::Refused(refused.clone())));
    assert_eq!(now(world.twin.create_fleet(&request)), Err(refused));
    assert_eq!(world.twin.calls()[&Call::CreateFleet].made, 4);
}

#[test]
fn dry_runs_launch_nothing_and_tell_rights_as_their_outcome() {
    let world = World::plain();
    let request = fleet("a", 1, &[over("m5.large", "us-east-1a")]);
    let probe = RunInstancesProbe {
        launch_template: "nodes".to_owned(),
        version: "$Default".to_owned(),
        with: over("m5.large", "us-east-1a"),
        tags: FleetTags::default(),
    };
    assert_eq!(now(world.twin.dry_run_create_fleet(&request)), Ok(DryRunOutcome::WouldSucceed));
    assert_eq!(now(world.twin.dry_run_run_instances(&probe)), Ok(DryRunOutcome::WouldSucceed));
    world.twin.deny(Call::RunInstances, "an explicit deny in a service control policy");
    let outcome = now(world.twin.dry_run_run_instances(&probe)).unwrap();
    let DryRunOutcome::Unauthorized { action, decoded, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(action, "RunInstances");
    assert_eq!(decoded.as_deref(), Some("an explicit deny in a service control policy"));
    // The real launch still works: the policy lets fleets through.
    world.launch(&request);
    world.twin.deny(Call::CreateFleet, "no");
    assert_eq!(now(world.twin.create_fleet(&request)).unwrap_err().class(), Class::Unauthorized);
    world.twin.allow(Call::CreateFleet);
    assert_eq!(world.twin.launches().len(), 1);
    let wrong = RunInstancesProbe { with: over("m6g.large", "us-east-1a"), ..probe };
    world.twin.allow(Call::RunInstances);
    assert_eq!(now(world.twin.dry_run_run_instances(&wrong)).unwrap_err().class(), Class::Invalid);
}

#[test]
fn an_image_becomes_available_or_fails_and_its_owner_hears_of_it() {
    let world = World::plain();
    let make = |name: &str, change: &dyn Fn(&mut NewImage)| {
        let mut image = NewImage { delay: Some(MINUTE), ..NewImage::named(name, Architecture::X86_64) };
        change(&mut image);
        world.twin.create_image(image)
    };
    let good = make("good", &|_| {});
    let bad = make("bad", &|i| i.outcome = ImageOutcome::Failed("snapshot lost".to_owned()));
    let shared = make("shared", &|i| i.owner = Some("999988887777".to_owned()));
    let by_name = ImageFilter { names: vec!["good".to_owned()], ..ImageFilter::default() };
    let seen = |filter: &ImageFilter| now(world.twin.describe_images(filter, None)).unwrap().items;
    assert_eq!(seen(&by_name)[0].state, ImageState::Pending);
    let events = world.pass(MINUTE);
    assert_eq!(words(&events), ["EC2 AMI State Change: available", "EC2 AMI State Change: failed"]);
    assert_eq!(events[1].json["detail"]["ErrorMessage"], "snapshot lost");
    assert_eq!(seen(&by_name)[0].state, ImageState::Available);
    assert_eq!(world.twin.image_state(&bad), Some(ImageState::Failed));
    assert_eq!(world.twin.image_state(&shared), Some(ImageState::Available));
    let own = ImageFilter { owners: vec!["self".to_owned()], ..ImageFilter::default() };
    assert_eq!(seen(&own).len(), 3);
    world.twin.disable_image(&good).unwrap();
    assert_eq!(seen(&by_name)[0].state, ImageState::Disabled);
    assert!(seen(&ImageFilter { disabled: DisabledImages::Omit, ..by_name.clone() }).is_empty());
    world.twin.enable_image(&good).unwrap();
    world.twin.deregister_image(&good).unwrap();
    assert!(seen(&by_name).is_empty());
    assert_eq!(
        world.twin.enable_image(&good).unwrap_err().to_string(),
        format!("image `{good}` is deregistered and can't become available")
    );
    let by_id = ImageFilter { ids: vec![good.clone()], ..ImageFilter::default() };
    let error = now(world.twin.describe_images(&by_id, None)).unwrap_err();
    let Ec2Error::NotFound { ids, .. } = error else { panic!("{error:?}") };
    assert_eq!(ids, [good.as_str()]);
    assert_eq!(
        words(&world.pass(MINUTE)),
        ["disabled", "available", "deregistered"].map(|s| format!("EC2 AMI State Change: {s}"))
    );
}

#[test]
fn a_spot_instance_is_warned_and_taken_two_minutes_later() {
    let world = World::plain();
    let on_demand = world.one();
    assert!(world.twin.interrupt_spot(&on_demand).is_err());
    let id = world.launch(&spot(fleet("s", 1, &[over("m5.large", "us-east-1a")]))).instance_ids().remove(0);
    world.pass(MINUTE);
    world.twin.recommend_rebalance(&id).unwrap();
    world.twin.interrupt_spot(&id).unwrap();
    let events = world.pass(SignedDuration::from_secs(119));
    assert_eq!(
        words(&events),
        ["EC2 Instance Rebalance Recommendation: ", "EC2 Spot Instance Interruption Warning: "]
    );
    assert_eq!(events[1].json["detail"]["instance-action"], "terminate");
    assert_eq!(world.state(&id), "running");
    world.pass(SignedDuration::from_secs(1));
    assert_eq!(world.state(&id), "shutting-down");
    let reason = world.twin.instance(&id).unwrap().instance.state_reason.clone().unwrap();
    assert_eq!(reason.code, "Server.SpotInstanceTermination");
}

#[test]
fn health_events_and_stops_come_from_outside() {
    let world = World::plain();
    let id = world.one();
    world.pass(MINUTE);
    let health = HealthEvent {
        event_type_code: "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED".to_owned(),
        event_type_category: "scheduledChange".to_owned(),
        starts_at: Timestamp::from_millisecond(START).unwrap(),
        instances: vec![id.clone()],
    };
    world.twin.announce(&health).unwrap();
    world.twin.push_instance(&id, InstanceState::Stopping).unwrap();
    world.pass(MINUTE);
    assert_eq!(world.state(&id), "stopped");
    world.twin.push_instance(&id, InstanceState::Pending).unwrap();
    world.pass(MINUTE);
    assert_eq!(world.state(&id), "running");
    world.twin.push_instance(&id, InstanceState::ShuttingDown).unwrap();
    assert!(world.twin.announce(&health).is_err());
}

#[test]
fn a_new_instance_and_its_tags_may_be_seen_late_but_not_later_than_promised() {
    let late = SignedDuration::from_secs(30);
    let world = World::new(|c| c.consistency_delay_max = late);
    world.launch(&fleet("a", 50, &[over("m5.large", "us-east-1a")]));
    let seen =
        |filter: &InstanceFilter| now(world.twin.describe_instances(filter, None)).unwrap().items.len();
    let tagged = InstanceFilter { tags: vec![TagFilter::equals("launch", "a")], ..InstanceFilter::default() };
    assert!(seen(&InstanceFilter::default()) < 10);
    world.pass(SignedDuration::from_secs(15));
    let (some, some_tagged) = (seen(&InstanceFilter::default()), seen(&tagged));
    assert!(0 < some_tagged && some_tagged < some && some < 50, "{some_tagged} {some}");
    world.pass(SignedDuration::from_secs(15));
    assert_eq!(seen(&tagged), 50);
}

#[test]
fn what_is_not_visible_yet_cannot_be_named() {
    let world = World::new(|c| c.consistency_delay_max = MINUTE);
    let id = world.one();
    let error = now(world.twin.terminate_instances(std::slice::from_ref(&id))).unwrap_err();
    let Ec2Error::NotFound { ids, .. } = error else { panic!("{error:?}") };
    assert_eq!(ids, [id.as_str()]);
    world.pass(MINUTE);
    let tags = Tags::from([("Name".to_owned(), "n".to_owned())]);
    now(world.twin.create_tags(std::slice::from_ref(&id), &tags)).unwrap();
    world.pass(MINUTE);
    let named = InstanceFilter { tags: vec![TagFilter::equals("Name", "n")], ..InstanceFilter::default() };
    assert_eq!(now(world.twin.describe_instances(&named, None)).unwrap().items[0].id, id);
}

#[test]
fn calls_are_throttled_by_ec2_s_buckets_and_counted() {
    let world = World::plain();
    let describe = || now(world.twin.describe_subnets(&ResourceFilter::default()));
    let answered = (0..120).filter(|_| describe().is_ok()).count();
    assert_eq!(answered, 100);
    assert_eq!(describe().unwrap_err(), Ec2Error::Throttled { action: "DescribeSubnets".to_owned() });
    world.pass(SignedDuration::from_secs(1));
    assert_eq!((0..30).filter(|_| describe().is_ok()).count(), 20);
    assert_eq!(world.twin.calls()[&Call::DescribeSubnets], CallCount { made: 151, throttled: 31 });
    let free = World::new(|c| c.throttling = Throttling::Off);
    assert!((0..500).all(|_| now(free.twin.describe_subnets(&ResourceFilter::default())).is_ok()));
}

#[test]
fn the_whole_catalogue_comes_in_pages() {
    let world = World::new(|c| c.types = TypeSelection::All);
    let mut types = Vec::new();
    let mut page = None;
    loop {
        let next = now(world.twin.describe_instance_types(page)).unwrap();
        assert!(next.items.len() <= 100);
        types.extend(next.items);
        page = next.next;
        if page.is_none() {
            break;
        }
    }
    assert_eq!(types.len(), 1375);
    assert!(types.windows(2).all(|w| w[0].instance_type < w[1].instance_type));
    let prices = now(world.twin.on_demand_prices(Some(PageToken("page-1200".to_owned())))).unwrap();
    assert!(!prices.items.is_empty());
    let wrong = now(world.twin.describe_instance_types(Some(PageToken("x".to_owned())))).unwrap_err();
    assert_eq!(wrong.class(), Class::Invalid);
}

#[test]
fn offerings_zones_and_prices_agree() {
    let world = World::plain();
    let by = |location| now(world.twin.describe_instance_type_offerings(location, None)).unwrap().items;
    let (names, ids) = (by(LocationType::AvailabilityZone), by(LocationType::AvailabilityZoneId));
    assert_eq!(names.len(), ids.len());
    assert!(ids.iter().all(|o| o.location.starts_with("use1-az")));
    assert_eq!(now(world.twin.describe_availability_zones()).unwrap().len(), 6);
    let spot = now(world.twin.describe_spot_price_history(None)).unwrap().items;
    assert_eq!(spot.len(), names.len());
    let on_demand = now(world.twin.on_demand_prices(None)).unwrap().items;
    let price = |t: &InstanceType| on_demand.iter().find(|p| p.instance_type == *t).unwrap().price;
    assert!(spot.iter().all(|p| p.price < price(&p.instance_type)));
}

#[test]
fn templates_are_made_found_and_deleted_by_name() {
    let world = World::plain();
    let again = CreateLaunchTemplate {
        name: "nodes".to_owned(),
        data: LaunchTemplateData::default(),
        tags: Tags::new(),
    };
    assert_eq!(now(world.twin.create_launch_template(&again)).unwrap_err().class(), Class::AlreadyExists);
    let by_name = |name: &str| LaunchTemplateFilter { names: vec![name.to_owned()], tags: Vec::new() };
    assert_eq!(
        now(world.twin.describe_launch_templates(&by_name("nodes"), None)).unwrap().items[0].version,
        1
    );
    let missing = now(world.twin.describe_launch_templates(&by_name("none"), None)).unwrap_err();
    assert_eq!(missing.class(), Class::TemplateMissing);
    let data = LaunchTemplateData { user_data: Some("A".repeat(21_848)), ..LaunchTemplateData::default() };
    let large = CreateLaunchTemplate { name: "large".to_owned(), data, tags: Tags::new() };
    assert_eq!(now(world.twin.create_launch_template(&large)).unwrap_err().class(), Class::Invalid);
    now(world.twin.delete_launch_template("nodes")).unwrap();
    assert!(now(world.twin.delete_launch_template("nodes")).is_err());
}

#[test]
fn groups_and_subnets_are_found_by_id_name_and_tag() {
    let world = World::plain();
    let tag = TagFilter::equals("kubernetes.io/cluster/c", "owned");
    let by_tag = ResourceFilter { tags: vec![tag], ..ResourceFilter::default() };
    assert_eq!(now(world.twin.describe_subnets(&by_tag)).unwrap().len(), 6);
    let by_name = ResourceFilter { names: vec!["node*".to_owned()], ..ResourceFilter::default() };
    assert_eq!(now(world.twin.describe_security_groups(&by_name)).unwrap().len(), 1);
    let by_id = ResourceFilter { ids: vec!["sg-9".to_owned()], ..ResourceFilter::default() };
    assert_eq!(now(world.twin.describe_security_groups(&by_id)).unwrap_err().class(), Class::NotFound);
}

#[test]
fn one_seed_is_one_history_and_another_seed_is_another() {
    let history = |seed| {
        let world = World::new(|c| {
            c.seed = seed;
            c.consistency_delay_max = SignedDuration::from_secs(10);
        });
        world.launch(&spot(fleet("a", 5, &[over("m5.large", "us-east-1a"), over("c5.large", "us-east-1b")])));
        format!("{:?} {:?}", world.pass(MINUTE), world.twin.instances())
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn the_next_due_moment_is_known_and_time_moves_nothing_before_it() {
    let world = World::plain();
    assert_eq!(world.twin.next_due(), None);
    let id = world.one();
    let due = world.twin.next_due().unwrap().as_millisecond();
    world.millis.store(due - 1, Ordering::SeqCst);
    assert_eq!(world.state(&id), "pending");
    world.millis.store(due, Ordering::SeqCst);
    assert_eq!(world.state(&id), "running");
}

#[test]
fn small_pages_and_shared_handles_work_through_the_port() {
    async fn count(ec2: impl Ec2) -> usize {
        let (mut seen, mut page) = (0, None);
        loop {
            let next = ec2.describe_instances(&InstanceFilter::default(), page).await.unwrap();
            seen += next.items.len();
            page = next.next;
            if page.is_none() {
                return seen;
            }
        }
    }
    let world = World::new(|c| c.page_size_max = 2);
    world.launch(&fleet("a", 5, &[over("m5.large", "us-east-1a")]));
    assert_eq!(now(count(&world.twin)), 5);
    assert_eq!(now(count(Arc::new(world.twin.clone()))), 5);
}

fn reserve(id: &str, match_criteria: MatchCriteria, instances: u32) -> CapacityReservation {
    CapacityReservation {
        id: ReservationId::parse(id).unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: instance_type("m5.large"),
        zone: zone("us-east-1a"),
        match_criteria,
        kind: ReservationKind::Default,
        ends_at: None,
        available: instances,
        tags: Tags::from([("team".to_owned(), id.to_owned())]),
    }
}

impl World {
    /// A fleet from a template that says this of reservations.
    fn launch_with(&self, name: &str, says: ReservationPreference, count: u32) -> FleetResult {
        let data = LaunchTemplateData {
            image: Some(self.image.clone()),
            reservations: Some(says),
            ..LaunchTemplateData::default()
        };
        let template = CreateLaunchTemplate { name: name.to_owned(), data, tags: Tags::new() };
        now(self.twin.create_launch_template(&template)).unwrap();
        let mut request = fleet(name, count, &[over("m5.large", "us-east-1a")]);
        request.launch_templates[0].name = name.to_owned();
        self.launch(&request)
    }

    /// How much room each reservation has, as EC2 says.
    fn room(&self) -> Vec<(String, u32)> {
        let all = CapacityReservationFilter::default();
        let found = now(self.twin.describe_capacity_reservations(&all)).unwrap();
        found.into_iter().map(|one| (one.id.to_string(), one.available)).collect()
    }
}

fn of_reservation(world: &World, result: &FleetResult) -> Vec<Option<String>> {
    let of = |id| world.twin.instance(&id).unwrap().instance.reservation.as_ref().map(ToString::to_string);
    result.instance_ids().into_iter().map(of).collect()
}

#[test]
fn a_targeted_reservation_takes_who_names_it_until_it_is_full() {
    let world = World::plain();
    world.twin.add_reservation(reserve("cr-1", MatchCriteria::Targeted, 2)).unwrap();
    // The pool is dry: what is reserved isn't taken from it.
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1a"), Some(0));
    let only = || ReservationPreference::Only(ReservationId::parse("cr-1").unwrap());
    let result = world.launch_with("first", only(), 3);
    assert_eq!(of_reservation(&world, &result), vec![Some("cr-1".to_owned()); 2]);
    assert_eq!(codes_of(&result), ["ReservationCapacityExceeded"]);
    assert_eq!(world.room(), [("cr-1".to_owned(), 0)]);
    now(world.twin.terminate_instances(&result.instance_ids())).unwrap();
    world.pass(MINUTE);
    assert_eq!(world.room(), [("cr-1".to_owned(), 2)]);
    assert!(world.launch(&fleet("pool", 1, &[over("m5.large", "us-east-1a")])).instances.is_empty());
    let ended = ReservationId::parse("cr-1").unwrap();
    world.twin.end_reservation(&ended).unwrap();
    assert_eq!(codes_of(&world.launch_with("second", only(), 1)), ["ReservationCapacityExceeded"]);
}

#[test]
fn an_open_reservation_takes_who_says_nothing_and_not_who_asks_for_none() {
    let world = World::plain();
    world.twin.add_reservation(reserve("cr-1", MatchCriteria::Open, 1)).unwrap();
    let none = world.launch_with("none", ReservationPreference::None, 1);
    assert_eq!(of_reservation(&world, &none), [None]);
    let plain = world.launch(&fleet("plain", 2, &[over("m5.large", "us-east-1a")]));
    let mut taken = of_reservation(&world, &plain);
    taken.sort();
    assert_eq!(taken, [None, Some("cr-1".to_owned())]);
    world.twin.end_reservation(&ReservationId::parse("cr-1").unwrap()).unwrap();
    assert_eq!(of_reservation(&world, &plain), [None, None]);
}

#[test]
fn reservations_are_found_by_id_tag_and_criteria() {
    let world = World::plain();
    world.twin.add_reservation(reserve("cr-1", MatchCriteria::Open, 1)).unwrap();
    world.twin.add_reservation(reserve("cr-2", MatchCriteria::Targeted, 1)).unwrap();
    let found = |filter: CapacityReservationFilter| {
        let found = now(world.twin.describe_capacity_reservations(&filter)).unwrap();
        found.into_iter().map(|one| one.id.to_string()).collect::<Vec<_>>()
    };
    let any = CapacityReservationFilter::default;
    assert_eq!(found(any()), ["cr-1", "cr-2"]);
    assert_eq!(found(CapacityReservationFilter { ids: vec!["cr-2".to_owned()], ..any() }), ["cr-2"]);
    let criteria = Some(MatchCriteria::Open);
    assert_eq!(found(CapacityReservationFilter { match_criteria: criteria, ..any() }), ["cr-1"]);
    let tags = vec![TagFilter::equals("team", "cr-2")];
    assert_eq!(found(CapacityReservationFilter { tags, ..any() }), ["cr-2"]);
    assert_eq!(found(CapacityReservationFilter { owner: Some("9".to_owned()), ..any() }), [""; 0]);
    let unknown = CapacityReservationFilter { ids: vec!["cr-9".to_owned()], ..any() };
    let error = now(world.twin.describe_capacity_reservations(&unknown)).unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
}
