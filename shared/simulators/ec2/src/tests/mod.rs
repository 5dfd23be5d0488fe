//! The twin as its users see it, through the port.

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
use tenon_ec2::Ec2Error;
use tenon_ec2::ErrorClass;
use tenon_ec2::port::*;

mod fleets;
mod lists;
mod parameters;
mod placement;
mod profiles;
mod reservations;

/// The twin's answers are ready at the first poll.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the twin never waits"),
    }
}

struct TwinWorld {
    twin: RegionTwin,
    millis: Arc<AtomicI64>,
    image: ImageId,
}

const START: i64 = 1_767_225_600_000;

impl TwinWorld {
    fn new(change: impl FnOnce(&mut TwinConfig)) -> Self {
        let millis = Arc::new(AtomicI64::new(START));
        let read = Arc::clone(&millis);
        let clock: TwinClock =
            Arc::new(move || Timestamp::from_millisecond(read.load(Ordering::SeqCst)).unwrap());
        let mut config = TwinConfig::new(Region::parse("us-east-1").unwrap(), 1, clock);
        let types = ["m5.large", "m5.xlarge", "m6g.large", "c5.large", "g5.xlarge"].map(instance_type);
        config.types = TypeSelection::Only(BTreeSet::from(types));
        config.consistency_delay_max = SignedDuration::ZERO;
        change(&mut config);
        let twin = RegionTwin::new(config).unwrap();
        twin.add_network(&Tags::from([("kubernetes.io/cluster/c".to_owned(), "owned".to_owned())])).unwrap();
        let image = twin.add_image(NewImage::named("al2023-1", ImageArchitecture::X86_64));
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

fn pool(capacity_type: TargetCapacityType, name: &str, at: &str) -> CapacityPool {
    CapacityPool { capacity_type, instance_type: instance_type(name), zone: zone(at) }
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
    let world = TwinWorld::plain();
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
    assert_eq!(error.class(), ErrorClass::NotFound);
    assert_eq!(world.twin.instances().len(), 1);
}

#[test]
fn an_instance_has_what_a_node_needs() {
    let world = TwinWorld::plain();
    let id = world.one();
    let instance =
        now(world.twin.describe_instances(&InstanceFilter::default(), None)).unwrap().items.remove(0);
    assert_eq!(instance.provider_id().to_string(), format!("aws:///us-east-1a/{id}"));
    assert_eq!(instance.private_dns_name, "ip-10-0-0-4.ec2.internal");
    assert_eq!(instance.zone_id.as_ref().unwrap().as_str(), "use1-az2");
    assert_eq!(instance.tags["launch"], "one");
    assert_eq!(instance.image, world.image);
    let west = TwinWorld::new(|c| c.region = Region::parse("eu-west-1").unwrap());
    west.launch(&fleet("west", 1, &[over("m5.large", "eu-west-1a")]));
    assert_eq!(west.twin.instances()[0].instance.private_dns_name, "ip-10-0-0-4.eu-west-1.compute.internal");
}

#[test]
fn an_image_becomes_available_or_fails_and_its_owner_hears_of_it() {
    let world = TwinWorld::plain();
    let make = |name: &str, change: &dyn Fn(&mut NewImage)| {
        let mut image = NewImage { delay: Some(MINUTE), ..NewImage::named(name, ImageArchitecture::X86_64) };
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
    let world = TwinWorld::plain();
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
    let world = TwinWorld::plain();
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
    let world = TwinWorld::new(|c| c.consistency_delay_max = late);
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
    let world = TwinWorld::new(|c| c.consistency_delay_max = MINUTE);
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
    let world = TwinWorld::plain();
    let describe = || now(world.twin.describe_subnets(&ResourceFilter::default()));
    let answered = (0..120).filter(|_| describe().is_ok()).count();
    assert_eq!(answered, 100);
    assert_eq!(describe().unwrap_err(), Ec2Error::Throttled { action: "DescribeSubnets".to_owned() });
    world.pass(SignedDuration::from_secs(1));
    assert_eq!((0..30).filter(|_| describe().is_ok()).count(), 20);
    assert_eq!(world.twin.calls()[&Call::DescribeSubnets], CallCount { made: 151, throttled: 31 });
    let free = TwinWorld::new(|c| c.throttling = Throttling::Off);
    assert!((0..500).all(|_| now(free.twin.describe_subnets(&ResourceFilter::default())).is_ok()));
}

#[test]
fn one_seed_is_one_history_and_another_seed_is_another() {
    let history = |seed| {
        let world = TwinWorld::new(|c| {
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
    let world = TwinWorld::plain();
    assert_eq!(world.twin.next_due(), None);
    let id = world.one();
    // An immediate effect of a call is due at once, not with the next other change.
    assert_eq!(world.twin.next_due().unwrap().as_millisecond(), START);
    assert_eq!(words(&world.pass(SignedDuration::ZERO)).len(), 1);
    let due = world.twin.next_due().unwrap().as_millisecond();
    world.millis.store(due - 1, Ordering::SeqCst);
    assert_eq!(world.state(&id), "pending");
    world.millis.store(due, Ordering::SeqCst);
    assert_eq!(world.state(&id), "running");
}
