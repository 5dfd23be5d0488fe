//! Answers of EC2 that aren't what they should be: what is decided, and what is said.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of an integration test aren't inside #[test] functions"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_catalog::Catalog;
use tenon_catalog::plan::{Input, Plan, Report, plan};
use tenon_catalog::read::{Answer, read};
use tenon_cloud::Ec2Error;
use tenon_cloud::data::Ec2Data;
use tenon_cloud::port::InstanceTypeInfo;
use tenon_cloud::twin::{Call, Fault, FaultEffect, FaultWhen};
use tenon_domain::catalog::PartData;
use tenon_domain::evidence::{CatalogPart, Ready, Waiting, require};
use tenon_domain::id::InstanceType;
use tenon_domain::wake::Cause;
use tenon_entrypoint::testing::{World, WorldConfig};
use tenon_entrypoint::{Handler, Scope};
use tenon_table::block_on;
use tenon_table::items::packed::Part;
use tenon_table::items::{self, CatalogCache, CatalogMeta, PartMeta, Parts, keys, read_parts};

struct Running {
    world: World,
    catalog: Catalog,
}

impl Running {
    fn new(config: &WorldConfig) -> Self {
        Self { world: World::new(config).unwrap(), catalog: Catalog::default() }
    }

    fn wake(&self, causes: &[Cause]) {
        block_on(self.catalog.handle(&self.world, &Scope::Region, causes)).unwrap();
    }

    /// The region's schedules, every ten minutes for so long.
    fn pass(&self, minutes: i64) {
        for _ in 0..minutes / 10 {
            self.world.clock.advance(SignedDuration::from_mins(10));
            self.wake(&[Cause::Refresh(CatalogPart::SpotPrices)]);
        }
    }

    fn refuse(&self, call: Call, when: FaultWhen, error: Ec2Error) {
        self.world.ec2.inject(Fault { call, when, effect: FaultEffect::Refused(error) });
    }

    fn meta(&self, part: CatalogPart) -> PartMeta {
        let key = keys::catalog(&self.world.installation.region);
        let meta: CatalogMeta = items::from_item(&key, &self.world.table.peek(&key).unwrap()).unwrap();
        meta.parts[&part].clone()
    }

    /// What was said since the last time: kind, part, and for stale ones the age and the error.
    fn said(&self) -> Vec<String> {
        let events = self.world.signals.take_events().into_iter();
        let line = |(kind, detail): (String, serde_json::Value)| {
            let part = detail["part"].as_str().unwrap().to_owned();
            match detail.get("error") {
                Some(error) => format!("{kind} {part} {} {error}", detail["ageSeconds"]),
                None => format!("{kind} {part}"),
            }
        };
        events.map(|(kind, detail)| line((kind.to_string(), detail))).collect()
    }

    /// What a planner gets of a part now.
    fn ready(&self, part: CatalogPart) -> Result<Ready<Arc<PartData>>, Waiting> {
        let region = &self.world.installation.region;
        let parts = block_on(read_parts(&self.world.table, region, &[part], &CatalogCache::new())).unwrap();
        let found = parts.get(&part).map(|found| (Arc::clone(&found.data), found.refreshed_at));
        require(part, found, self.world.clock.now())
    }
}

fn described() -> Vec<InstanceTypeInfo> {
    let types = Ec2Data::get().unwrap().types.values();
    types.filter(|info| info.is_for_nodes()).map(|info| InstanceTypeInfo::clone(info)).collect()
}

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(hours * 3600).unwrap()
}

/// A look at the types some hours after all of them were known.
fn look(types: Vec<InstanceTypeInfo>, hours: i64) -> (Plan, Report) {
    let limits = &Ec2Data::get().unwrap().limits;
    let (known, _) = read(&Answer::InstanceTypes(described()), limits).unwrap();
    let known = Part { data: Arc::new(known), generation: 1, refreshed_at: at(0) };
    let meta = PartMeta { generation: 1, refreshed_at: Some(at(0)), ..PartMeta::default() };
    plan(&Input {
        now: at(hours),
        meta: CatalogMeta { revision: 1, parts: BTreeMap::from([(CatalogPart::InstanceTypes, meta)]) },
        before: Parts::from([(CatalogPart::InstanceTypes, known)]),
        answers: BTreeMap::from([(CatalogPart::InstanceTypes, Ok(Answer::InstanceTypes(types)))]),
        limits,
    })
}

fn names(plan: &Plan) -> Vec<&InstanceType> {
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
            "EC2 answered with 100 entries for `instance-types` where there were {}, as a list that breaks off would: \
             the last good answer is kept until it is 84 hours old",
            all.len()
        )
    );
    let (plan, _) = look(all[..100].to_vec(), 84);
    assert_eq!(names(&plan).len(), 100, "EC2 goes on saying so");
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
}

#[test]
fn without_access_to_prices_the_rest_arrives_and_people_are_told() {
    let running = Running::new(&WorldConfig::default());
    let denied = Ec2Error::Unauthorized {
        action: "pricing:GetProducts".to_owned(),
        decoded: None,
        message: "no policy allows it".to_owned(),
    };
    running.refuse(Call::GetProducts, FaultWhen::Permille(1000), denied);
    running.wake(&[Cause::Sweep]);
    let arrived =
        ["instance-types", "offerings", "spot-prices"].map(|part| format!("Catalog Refreshed {part}"));
    assert_eq!(running.said(), arrived);
    let prices = running.meta(CatalogPart::OnDemandPrices);
    assert_eq!((prices.generation, prices.refreshed_at), (0, None));
    let error = "not authorized to perform `pricing:GetProducts`: decode EC2's message with `aws sts decode-authorization-message`";
    assert_eq!(prices.last_error.as_deref(), Some(error));
    let waiting = running.ready(CatalogPart::OnDemandPrices).unwrap_err();
    assert_eq!(waiting, Waiting::CatalogNotHydrated { part: CatalogPart::OnDemandPrices });
    assert!(running.ready(CatalogPart::SpotPrices).is_ok(), "who needs no on-demand prices doesn't wait");
    running.pass(10);
    let said = running.said();
    assert!(said.contains(&format!("Catalog Stale on-demand-prices null \"{error}\"")), "{said:?}");
}

#[test]
fn an_hour_of_throttled_types_changes_nothing_and_is_known_to_have_been() {
    let running = Running::new(&WorldConfig::default());
    running.wake(&[Cause::Sweep]);
    let first = running.meta(CatalogPart::InstanceTypes);
    running.said();
    let throttled = Ec2Error::Throttled { action: "DescribeInstanceTypes".to_owned() };
    running.refuse(Call::DescribeInstanceTypes, FaultWhen::Next(7), throttled);
    running.world.clock.advance(SignedDuration::from_hours(6));
    running.wake(&[Cause::Refresh(CatalogPart::InstanceTypes)]);
    let began = running.world.clock.now();
    for _ in 0..6 {
        running.pass(10);
        let part = running.meta(CatalogPart::InstanceTypes);
        assert_eq!((part.generation, part.refreshed_at), (1, first.refreshed_at));
        assert_eq!(part.failing_since, Some(began));
        assert_eq!(part.last_error.as_deref(), Some("`DescribeInstanceTypes` was throttled by EC2"));
        assert!(running.ready(CatalogPart::InstanceTypes).is_ok(), "planners go on with what is known");
    }
    let said = running.said();
    assert!(said.iter().all(|said| !said.contains("instance-types")), "{said:?}");
    running.pass(10);
    let part = running.meta(CatalogPart::InstanceTypes);
    assert_eq!((part.refreshed_at, part.failing_since), (Some(running.world.clock.now()), None));
}

#[test]
fn a_region_that_never_heard_of_its_types_says_so_and_recovers_at_the_first_answer() {
    let running = Running::new(&WorldConfig::default());
    let throttled = Ec2Error::Throttled { action: "DescribeInstanceTypes".to_owned() };
    running.refuse(Call::DescribeInstanceTypes, FaultWhen::Next(7), throttled);
    running.wake(&[Cause::Sweep]);
    running.said();
    running.pass(60);
    let stale = "Catalog Stale instance-types null \"`DescribeInstanceTypes` was throttled by EC2\"";
    let said: Vec<_> = running.said().into_iter().filter(|said| said.contains("instance-types")).collect();
    assert_eq!(said, [stale; 6]);
    let waiting = running.ready(CatalogPart::InstanceTypes).unwrap_err();
    assert_eq!(waiting, Waiting::CatalogNotHydrated { part: CatalogPart::InstanceTypes });
    running.pass(10);
    assert!(running.said().contains(&"Catalog Refreshed instance-types".to_owned()));
    assert!(running.ready(CatalogPart::InstanceTypes).is_ok());
}

#[test]
fn a_region_with_one_zone_is_a_region() {
    let zones = vec!["us-east-1a".to_owned()];
    let running = Running::new(&WorldConfig { zones, ..WorldConfig::default() });
    running.wake(&[Cause::Sweep]);
    let all = CatalogPart::ALL.map(|part| format!("Catalog Refreshed {part}"));
    assert_eq!(running.said(), all);
    let ready = running.ready(CatalogPart::Offerings).unwrap();
    let PartData::Offerings(offerings) = ready.as_ref() else { panic!() };
    assert_eq!(offerings.zones.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["us-east-1a"]);
    assert_eq!(offerings.offered.values().map(|zones| zones.len()).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn types_that_are_offered_without_a_price_are_named_and_not_taken_for_free() {
    let types = ["m5.large", "r9g.large"].map(str::to_owned).to_vec();
    let running = Running::new(&WorldConfig { types, ..WorldConfig::default() });
    running.wake(&[Cause::Sweep]);
    for (kind, detail) in running.world.signals.take_events() {
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
