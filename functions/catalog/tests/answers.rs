//! Malformed and incomplete answers of EC2: decisions and announcements.
#![expect(clippy::indexing_slicing, reason = "helpers of integration tests aren't inside #[test] functions")]
#![expect(clippy::panic, reason = "helpers of an integration test aren't inside #[test] functions")]
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_catalog::CatalogFunction;
use tenon_catalog::plan::{Announcements, CatalogInput, CatalogPlan, Shipped, plan};
use tenon_catalog::read::{CatalogAnswer, read};
use tenon_domain::catalog::PartData;
use tenon_domain::evidence::{CatalogPart, ErrorKind, PartOrigin, Ready, RefreshFailure, Waiting, require};
use tenon_domain::id::{InstanceType, Region, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;
use tenon_domain::report::Report;
use tenon_domain::wake::WakeCause;
use tenon_ec2::Ec2Error;
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::{
    AvailabilityZone, InstanceTypeInfo, NO_PRICING_API, OnDemandPrice, SpotPrice, TypeOffering,
};
use tenon_harness::cluster::{Cluster, pod, pool};
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::block_on;
use tenon_provisioner::Provisioner;
use tenon_runtime::{Handler, WakeScope};
use tenon_snapshot::SeenPod;
use tenon_table::Write;
use tenon_table::items::packed::RefreshedPart;
use tenon_table::items::{
    self, CatalogCache, CatalogMeta, PartMeta, RefreshedParts, TypeRecord, keys, read_parts,
};
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen};

const DENIED: &str = "not authorized to perform `pricing:GetProducts`: decode EC2's message with `aws sts decode-authorization-message`";

/// A region before its first query to EC2, and a cluster in it.
struct Running {
    world: FunctionWorld,
    catalog: CatalogFunction,
    cluster: Cluster,
}

impl Running {
    fn new(config: &WorldConfig) -> Self {
        let world = FunctionWorld::new(config).unwrap();
        let cluster = Cluster::new(world.clone(), &[]).unwrap();
        cluster.put(Write::Delete { key: keys::catalog(&world.installation.region) }).unwrap();
        Self { world, catalog: CatalogFunction::default(), cluster }
    }

    fn wake(&self, causes: &[WakeCause]) {
        block_on(self.catalog.handle(&self.world, &WakeScope::Region, causes)).unwrap();
    }

    /// Runs the region's schedules, every ten minutes for so long.
    fn pass(&self, minutes: i64) {
        for _ in 0..minutes / 10 {
            self.world.clock.advance(SignedDuration::from_mins(10));
            self.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)]);
        }
    }

    fn refuse(&self, call: Call, when: FaultWhen, error: Ec2Error) {
        self.world.ec2.inject(Fault { call, when, effect: FaultEffect::Refused(error) });
    }

    fn deny_prices(&self) {
        let denied = Ec2Error::Unauthorized {
            action: "pricing:GetProducts".to_owned(),
            decoded: None,
            message: "no policy allows it".to_owned(),
        };
        self.refuse(Call::GetProducts, FaultWhen::Permille(1000), denied);
    }

    fn throttle_types(&self, when: FaultWhen) {
        let throttled = Ec2Error::Throttled { action: "DescribeInstanceTypes".to_owned() };
        self.refuse(Call::DescribeInstanceTypes, when, throttled);
    }

    fn meta(&self, part: CatalogPart) -> PartMeta {
        let key = keys::catalog(&self.world.installation.region);
        let meta: CatalogMeta = items::from_item(&key, &self.world.table.peek(&key).unwrap()).unwrap();
        meta.parts[&part].clone()
    }

    /// The announcements since the last call: kind, part, and the details besides a refresh or an age.
    fn said(&self) -> Vec<String> {
        let events = self.world.signals.take_events().into_iter();
        let events = events.filter(|(kind, _)| kind.starts_with("Catalog"));
        let line = |(kind, detail): (String, serde_json::Value)| {
            let mut line = format!("{kind} {}", detail["part"].as_str().unwrap());
            for field in ["errorKind", "ageSeconds", "origin", "asOf", "ofRegion", "failedSince"] {
                let value = detail.get(field).map(|value| format!(" {value}").replace('"', ""));
                line.push_str(&value.unwrap_or_default());
            }
            line
        };
        events.map(line).collect()
    }

    /// The same of one part.
    fn said_of(&self, part: &str) -> Vec<String> {
        self.said().into_iter().filter(|said| said.contains(part)).collect()
    }

    /// The planner's view of a part.
    fn ready(&self, part: CatalogPart) -> Result<Ready<Arc<PartData>>, Waiting> {
        let region = &self.world.installation.region;
        let parts = block_on(read_parts(&self.world.table, region, &[part], &CatalogCache::new())).unwrap();
        let found = parts.get(&part).map(|found| (Arc::clone(&found.data), found.refreshed_at));
        require(part, found, self.world.clock.now())
    }

    /// How many claims one more pod gets now, from a pool of one capacity type.
    fn claims_for_a_pod(&mut self, capacity_type: &str) -> usize {
        let objects = &mut self.cluster.objects;
        let name = format!("web-{}", objects.pods.len());
        objects.node_pools = vec![Arc::new(pool(&[&["karpenter.sh/capacity-type", capacity_type]]))];
        objects.pods.push(Arc::new(SeenPod::read(&pod(&name, "1500m", None)).unwrap()));
        let before = self.cluster.claims().unwrap().len();
        self.cluster.report().unwrap();
        let scope = WakeScope::Cluster(self.cluster.name.clone());
        block_on(Provisioner::default().handle(&self.world, &scope, &[WakeCause::SnapshotChanged])).unwrap();
        self.cluster.claims().unwrap().len() - before
    }
}

fn described() -> Vec<InstanceTypeInfo> {
    let types = Ec2Data::get().unwrap().types.values();
    types.map(|info| InstanceTypeInfo::clone(info)).collect()
}

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(hours * 3600).unwrap()
}

/// A query of the types some hours after a complete one.
fn look(types: Vec<InstanceTypeInfo>, hours: i64) -> (CatalogPlan, Announcements) {
    look_after(types, hours, None)
}

/// The same after a failure of this kind.
fn look_after(
    types: Vec<InstanceTypeInfo>,
    hours: i64,
    last_error_kind: Option<ErrorKind>,
) -> (CatalogPlan, Announcements) {
    let limits = &Ec2Data::get().unwrap().limits;
    let (known, _) = read(&CatalogAnswer::InstanceTypes(described()), limits).unwrap();
    let known = RefreshedPart { data: Arc::new(known), generation: 1, refreshed_at: at(0) };
    let meta = PartMeta { generation: 1, refreshed_at: Some(at(0)), last_error_kind, ..PartMeta::default() };
    plan(&CatalogInput {
        now: at(hours),
        meta: CatalogMeta { revision: 1, parts: BTreeMap::from([(CatalogPart::InstanceTypes, meta)]) },
        before: RefreshedParts::from([(CatalogPart::InstanceTypes, known)]),
        broken: BTreeSet::new(),
        answers: BTreeMap::from([(CatalogPart::InstanceTypes, Ok(CatalogAnswer::InstanceTypes(types)))]),
        limits,
        shipped: None,
    })
}

fn names(plan: &CatalogPlan) -> Vec<&InstanceType> {
    let taken = &plan.refreshed[&CatalogPart::InstanceTypes];
    let PartData::InstanceTypes(types) = taken else { panic!("{taken:?}") };
    types.keys().collect()
}

#[test]
fn a_list_that_ends_after_its_first_page_is_not_believed() {
    let all = described();
    let (plan, report) = look(all[..100].to_vec(), 6);
    assert_eq!((plan.refreshed.len(), report.stale.len()), (0, 0));
    assert_eq!(
        plan.failed[&CatalogPart::InstanceTypes].message,
        format!(
            "keeping the last `instance-types` until it is 84 hours old: EC2's answer has 100 entries, the last one {}, so \
             it may be incomplete",
            all.len()
        )
    );
    let (plan, _) = look_after(all[..100].to_vec(), 84, Some(ErrorKind::Shrunk));
    assert_eq!(names(&plan).len(), 100, "EC2 goes on saying so");
    // The first answer after half a week without any.
    let (plan, _) = look_after(all[..100].to_vec(), 84, Some(ErrorKind::Throttled));
    assert_eq!(plan.failed[&CatalogPart::InstanceTypes].kind, ErrorKind::Shrunk);
}

#[test]
fn a_type_that_nobody_knows_is_taken_and_one_without_its_memory_is_left_out_by_name() {
    let mut types = described();
    let first = types[0].clone();
    types.push(InstanceTypeInfo { instance_type: Some("q1.large".to_owned()), ..first.clone() });
    types.push(InstanceTypeInfo { instance_type: Some("q1.xlarge".to_owned()), memory_info: None, ..first });
    let (plan, report) = look(types, 6);
    let known = |name: &str| names(&plan).iter().any(|found| found.as_str() == name);
    assert!(known("q1.large") && known("m5.large") && !known("q1.xlarge"));
    let left_out = &report.left_out[&CatalogPart::InstanceTypes];
    assert_eq!(left_out.len(), 1);
    assert_eq!(left_out[0].instance_type, "q1.xlarge");
    assert!(left_out[0].reason.contains("has no `MemoryInfo.SizeInMiB`"), "{}", left_out[0].reason);
    assert!(plan.failed.is_empty());
    let (mut told, mut findings) = (Report::default(), Vec::new());
    report.tell(&mut told);
    told.deliver(&mut findings);
    let messages: Vec<String> = findings.iter().map(|finding| finding.message("catalog")).collect();
    assert!(messages[0].starts_with("leaving instance types out of "), "{messages:?}");
    assert!(messages[0].contains("`q1.xlarge`"), "{messages:?}");
}

#[test]
fn a_list_that_is_cut_in_the_middle_is_nothing_and_the_next_look_has_it() {
    let whole = WorldConfig { types: Vec::new(), zones: Vec::new(), ..WorldConfig::default() };
    let mut running = Running::new(&whole);
    // The third page of the very first look.
    running.throttle_types(FaultWhen::Nth(3));
    running.wake(&[WakeCause::Sweep]);
    assert_eq!(running.said_of("instance-types"), [""; 0]);
    let part = running.meta(CatalogPart::InstanceTypes);
    assert_eq!((part.generation, part.last_error_kind), (0, Some(ErrorKind::Throttled)));
    assert_eq!(running.claims_for_a_pod("on-demand"), 0, "two pages are no catalogue");
    running.pass(10);
    assert_eq!(running.said_of("instance-types"), ["Catalog Refreshed instance-types 2026-01-01T00:00:00Z"]);
    let whole = Ec2Data::get().unwrap().region(&running.world.installation.region).unwrap().types.len();
    assert_eq!(running.meta(CatalogPart::InstanceTypes).count, whole as u64);
    assert!(running.claims_for_a_pod("on-demand") > 0, "for the pod that waited too");
}

#[test]
fn without_access_to_prices_the_shipped_ones_stand_in_and_people_are_told_once() {
    let mut running = Running::new(&WorldConfig::default());
    running.deny_prices();
    running.wake(&[WakeCause::Sweep]);
    assert_eq!(
        running.said(),
        [
            "Catalog Refreshed instance-types",
            "Catalog Refreshed offerings",
            "Catalog Refreshed on-demand-prices shipped 2026-11-01 us-east-1",
            "Catalog Stale on-demand-prices Denied null shipped 2026-11-01 us-east-1",
            "Catalog Refreshed spot-prices",
        ]
    );
    let prices = running.meta(CatalogPart::OnDemandPrices);
    assert!(matches!(prices.origin, PartOrigin::Shipped { .. }), "{prices:?}");
    assert_eq!((prices.generation, prices.last_error.as_deref()), (1, Some(DENIED)));
    assert_eq!(running.claims_for_a_pod("on-demand"), 1);
    running.pass(60);
    running.world.clock.advance(SignedDuration::from_hours(24));
    running.pass(10);
    assert_eq!(running.said_of("on-demand"), [""; 0]);
    let age = running.ready(CatalogPart::OnDemandPrices).unwrap().as_of();
    assert_eq!(age, running.world.clock.now(), "shipped prices never count as stale");
    running.world.ec2.clear_faults();
    running.pass(10);
    let expected = "Catalog Refreshed on-demand-prices 2026-01-01T00:00:00Z";
    assert_eq!(running.said_of("on-demand"), [expected], "the list of three types isn't held for torn");
    let prices = running.meta(CatalogPart::OnDemandPrices);
    assert_eq!((prices.origin, prices.count, prices.failing_since), (PartOrigin::Answered, 3, None));
}

#[test]
fn prices_that_aws_gave_are_kept_when_access_is_lost_and_people_are_told_while_it_is() {
    let running = Running::new(&WorldConfig::default());
    running.wake(&[WakeCause::Sweep]);
    running.deny_prices();
    running.world.clock.advance(SignedDuration::from_hours(12));
    running.said();
    running.wake(&[WakeCause::Refresh(CatalogPart::OnDemandPrices)]);
    assert_eq!(running.said_of("on-demand"), ["Catalog Stale on-demand-prices Denied 43200"]);
    running.pass(10);
    assert_eq!(running.said_of("on-demand"), ["Catalog Stale on-demand-prices Denied 43800"]);
    let prices = running.meta(CatalogPart::OnDemandPrices);
    assert_eq!((prices.origin, prices.generation, prices.count), (PartOrigin::Answered, 1, 3));
    // A month later they would support no plan.
    running.world.clock.advance(CatalogPart::OnDemandPrices.stale_after());
    running.wake(&[WakeCause::Sweep]);
    let said = running.said_of("on-demand-prices");
    assert_eq!(said[0], "Catalog Refreshed on-demand-prices shipped 2026-11-01 us-east-1");
    assert!(said[1].starts_with("Catalog Stale on-demand-prices Denied 263"), "{said:?}");
    assert!(running.ready(CatalogPart::OnDemandPrices).is_ok());
}

#[test]
fn where_there_is_no_pricing_api_it_is_asked_by_its_schedule_only() {
    let running = Running::new(&WorldConfig::default());
    let nobody = Ec2Error::Invalid {
        action: "GetProducts".to_owned(),
        code: NO_PRICING_API.to_owned(),
        message: "the partition of region `us-gov-west-1` has no Pricing API".to_owned(),
    };
    running.refuse(Call::GetProducts, FaultWhen::Permille(1000), nobody);
    running.wake(&[WakeCause::Sweep]);
    assert!(
        running
            .said()
            .contains(&"Catalog Stale on-demand-prices NoApi null shipped 2026-11-01 us-east-1".to_owned())
    );
    running.pass(11 * 60);
    assert_eq!(running.said_of("on-demand"), [""; 0]);
    assert_eq!(running.world.ec2.calls()[&Call::GetProducts].made, 1);
    running.wake(&[WakeCause::Refresh(CatalogPart::OnDemandPrices)]);
    assert_eq!(running.world.ec2.calls()[&Call::GetProducts].made, 2);
}

/// Prices of us-east-1 are dollars: they are borrowed by regions with dollars, and not beside spot prices in yuan.
#[test]
fn prices_are_borrowed_in_their_own_currency_only() {
    let data = Ec2Data::get().unwrap();
    let failure = RefreshFailure { kind: ErrorKind::Denied, message: DENIED.to_owned() };
    for (region, stands_in) in [("us-gov-west-1", true), ("eu-west-1", true), ("cn-north-1", false)] {
        let (plan, report) = plan(&CatalogInput {
            now: at(1),
            meta: CatalogMeta::default(),
            before: RefreshedParts::new(),
            broken: BTreeSet::new(),
            answers: BTreeMap::from([(CatalogPart::OnDemandPrices, Err(failure.clone()))]),
            limits: &data.limits,
            shipped: Shipped::of(data, &Region::parse(region).unwrap()),
        });
        let found = plan.stand_ins.get(&CatalogPart::OnDemandPrices);
        assert_eq!(found.map(|found| found.data.count()), stands_in.then_some(1367), "{region}");
        assert_eq!((plan.failed.len(), report.stale.len()), (1, 1), "{region}: people are told at once");
    }
}

#[test]
fn an_hour_of_throttled_types_changes_nothing_and_is_known_to_have_been() {
    let mut running = Running::new(&WorldConfig::default());
    running.wake(&[WakeCause::Sweep]);
    let first = running.meta(CatalogPart::InstanceTypes);
    running.said();
    running.throttle_types(FaultWhen::Next(7));
    running.world.clock.advance(SignedDuration::from_hours(6));
    running.wake(&[WakeCause::Refresh(CatalogPart::InstanceTypes)]);
    let began = running.world.clock.now();
    for _ in 0..6 {
        running.pass(10);
        let part = running.meta(CatalogPart::InstanceTypes);
        assert_eq!((part.generation, part.refreshed_at), (1, first.refreshed_at));
        assert_eq!((part.failing_since, part.last_error_kind), (Some(began), Some(ErrorKind::Throttled)));
        assert_eq!(part.last_error.as_deref(), Some("`DescribeInstanceTypes` was throttled by EC2"));
        assert!(running.ready(CatalogPart::InstanceTypes).is_ok(), "planners go on with what is known");
    }
    assert_eq!(running.said_of("instance-types"), [""; 0]);
    assert_eq!(running.claims_for_a_pod("spot"), 1);
    running.pass(10);
    let part = running.meta(CatalogPart::InstanceTypes);
    assert_eq!((part.refreshed_at, part.failing_since), (Some(running.world.clock.now()), None));
    // Only the availability is new.
    assert_eq!(part.generation, 1);
    assert_eq!(running.said_of("instance-types"), [format!("Catalog Refreshed instance-types {began}")]);
}

#[test]
fn a_region_that_never_heard_of_its_types_says_so_and_recovers_at_the_first_answer() {
    let mut running = Running::new(&WorldConfig::default());
    running.throttle_types(FaultWhen::Next(7));
    running.wake(&[WakeCause::Sweep]);
    running.said();
    running.pass(60);
    assert_eq!(running.said_of("instance-types"), ["Catalog Stale instance-types Throttled null"; 6]);
    let waiting = running.ready(CatalogPart::InstanceTypes).unwrap_err();
    assert_eq!(waiting, Waiting::CatalogNotHydrated { part: CatalogPart::InstanceTypes });
    assert_eq!(running.claims_for_a_pod("on-demand"), 0);
    running.pass(10);
    assert_eq!(running.said_of("instance-types"), ["Catalog Refreshed instance-types 2026-01-01T00:00:00Z"]);
    assert!(running.claims_for_a_pod("on-demand") > 0);
}

/// A missing right doesn't come back by itself: the first failure is announced, and known types stay.
#[test]
fn types_that_may_not_be_asked_for_are_told_at_once() {
    let mut running = Running::new(&WorldConfig::default());
    running.wake(&[WakeCause::Sweep]);
    running.said();
    running.world.ec2.deny(Call::DescribeInstanceTypes, "no policy allows it");
    running.world.clock.advance(SignedDuration::from_hours(6));
    running.wake(&[WakeCause::Refresh(CatalogPart::InstanceTypes)]);
    assert_eq!(running.said_of("instance-types"), ["Catalog Stale instance-types Denied 21600"]);
    assert_eq!(running.meta(CatalogPart::InstanceTypes).last_error_kind, Some(ErrorKind::Denied));
    assert_eq!(running.claims_for_a_pod("on-demand"), 1);
}

#[test]
fn a_mac_is_in_the_table_for_people_and_in_no_plan() {
    let types = ["mac2.metal"].map(str::to_owned).to_vec();
    let mut running = Running::new(&WorldConfig { types, ..WorldConfig::default() });
    running.wake(&[WakeCause::Sweep]);
    let key =
        keys::instance_type(&running.world.installation.region, &InstanceType::parse("mac2.metal").unwrap());
    let record: TypeRecord = items::from_item(&key, &running.world.table.peek(&key).unwrap()).unwrap();
    assert_eq!(record.labels["kubernetes.io/arch"], "[arm64_mac]");
    assert_eq!(running.claims_for_a_pod("on-demand"), 0);
}

#[test]
fn a_region_with_one_zone_is_a_region() {
    let zones = vec!["us-east-1a".to_owned()];
    let mut running = Running::new(&WorldConfig { zones, ..WorldConfig::default() });
    running.wake(&[WakeCause::Sweep]);
    let all = CatalogPart::ALL.map(|part| format!("Catalog Refreshed {part}"));
    assert_eq!(running.said(), all);
    let ready = running.ready(CatalogPart::Offerings).unwrap();
    let PartData::Offerings(offerings) = ready.as_ref() else { panic!() };
    assert_eq!(offerings.zones.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["us-east-1a"]);
    assert_eq!(offerings.offered.values().map(|zones| zones.len()).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!((running.claims_for_a_pod("spot"), running.claims_for_a_pod("on-demand")), (1, 1));
}

/// Names of local zones have letters and digits that names of others don't.
#[test]
fn a_local_zone_that_the_account_may_use_is_a_zone() {
    let zone = |name: &str, id: &str| AvailabilityZone {
        name: Zone::parse(name).unwrap(),
        id: ZoneId::parse(id).unwrap(),
    };
    let offering = |location: &str| TypeOffering {
        instance_type: InstanceType::parse("c5d.2xlarge").unwrap(),
        location: location.to_owned(),
    };
    let answer = CatalogAnswer::Offerings(
        ["us-east-1a", "us-east-1-bos-1a", "us-east-1-chi-2a"].map(offering).to_vec(),
        vec![zone("us-east-1a", "use1-az2"), zone("us-east-1-bos-1a", "use1-bos1-az1")],
    );
    let (data, left_out) = read(&answer, &Ec2Data::get().unwrap().limits).unwrap();
    let PartData::Offerings(offerings) = data else { panic!() };
    let zones = offerings.offered.values().flatten().map(|zone| offerings.zones[zone].as_str());
    assert_eq!(zones.collect::<Vec<_>>(), ["use1-bos1-az1", "use1-az2"]);
    assert_eq!(left_out[0].reason, "this account can't use zone `us-east-1-chi-2a`");
}

#[test]
fn types_that_are_offered_without_a_price_are_named_and_not_taken_for_free() {
    let types = ["m5.large", "r9g.large"].map(str::to_owned).to_vec();
    let running = Running::new(&WorldConfig { types, ..WorldConfig::default() });
    running.wake(&[WakeCause::Sweep]);
    for (kind, detail) in running.world.signals.take_events() {
        let currency = match detail["part"].as_str().unwrap() {
            "on-demand-prices" | "spot-prices" => serde_json::json!("USD"),
            _ => serde_json::Value::Null,
        };
        assert_eq!(detail["currency"], currency);
        let expected = match detail["part"].as_str().unwrap() {
            "on-demand-prices" | "spot-prices" => serde_json::json!({"count": 1, "types": ["r9g.large"]}),
            _ => serde_json::Value::Null,
        };
        assert_eq!((kind.as_str(), &detail["unpriced"]), ("Catalog Refreshed", &expected), "{detail}");
    }
    let ready = running.ready(CatalogPart::OnDemandPrices).unwrap();
    let PartData::OnDemandPrices(prices) = ready.as_ref() else { panic!() };
    assert_eq!(prices.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["m5.large"]);
}

/// No node is a Mac, and a type without spot needs no spot price.
#[test]
fn a_price_is_missed_only_where_a_node_would_be_paid_by_it() {
    let name = |text: &str| InstanceType::parse(text).unwrap();
    let described = described();
    let m5 = described.iter().find(|info| info.instance_type.as_deref() == Some("m5.large")).unwrap();
    let bought = |name: &str, classes: &[&str], architecture: &str| {
        let mut info = InstanceTypeInfo { instance_type: Some(name.to_owned()), ..m5.clone() };
        info.supported_usage_classes = Some(classes.iter().map(|class| (*class).to_owned()).collect());
        info.processor_info.as_mut().unwrap().supported_architectures = Some(vec![architecture.to_owned()]);
        info
    };
    let types = vec![
        bought("m5.large", &["on-demand", "spot"], "x86_64"),
        bought("q1.large", &["on-demand", "spot"], "x86_64"),
        bought("q2.large", &["on-demand"], "x86_64"),
        bought("q3.metal", &["on-demand", "spot"], "arm64_mac"),
    ];
    let zone = Zone::parse("us-east-1a").unwrap();
    let offered = |text: &str| TypeOffering { instance_type: name(text), location: zone.to_string() };
    let offered = ["m5.large", "q1.large", "q2.large", "q3.metal"].map(offered).to_vec();
    let zones = vec![AvailabilityZone { name: zone.clone(), id: ZoneId::parse("use1-az2").unwrap() }];
    let (instance_type, price) = (name("m5.large"), UsdPerHour::parse("0.1").unwrap());
    let on_demand = vec![OnDemandPrice { instance_type: instance_type.clone(), price }];
    let spot = vec![SpotPrice { instance_type, zone, price, since: at(0) }];
    let (_, report) = plan(&CatalogInput {
        now: at(1),
        meta: CatalogMeta::default(),
        before: RefreshedParts::new(),
        broken: BTreeSet::new(),
        answers: BTreeMap::from([
            (CatalogPart::InstanceTypes, Ok(CatalogAnswer::InstanceTypes(types))),
            (CatalogPart::Offerings, Ok(CatalogAnswer::Offerings(offered, zones))),
            (CatalogPart::OnDemandPrices, Ok(CatalogAnswer::OnDemandPrices(on_demand))),
            (CatalogPart::SpotPrices, Ok(CatalogAnswer::SpotPrices(spot))),
        ]),
        limits: &Ec2Data::get().unwrap().limits,
        shipped: None,
    });
    let missed = BTreeMap::from([
        (CatalogPart::OnDemandPrices, BTreeSet::from([name("q1.large"), name("q2.large")])),
        (CatalogPart::SpotPrices, BTreeSet::from([name("q1.large")])),
    ]);
    assert_eq!(report.unpriced, missed);
}
