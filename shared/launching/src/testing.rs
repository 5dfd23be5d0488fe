//! Values for tests: a registered cluster, a class, types, claims and marks.

use std::collections::BTreeMap;

use tenon_domain::api::node_class::{InstanceProfile, MetadataOptions, NodeIdentity};
use tenon_domain::api::{Ec2NodeClass, ObjectMeta};
use tenon_domain::catalog::NodeSettings;
use tenon_domain::class_hash::SpecHash;
use tenon_domain::id::{ClusterName, InstallationId, NodeClassName};
use tenon_domain::registry::{Allowances, ClusterSettings, Gates, Registry};

pub(crate) fn registry(cluster: &str) -> Registry {
    Registry {
        installation: InstallationId::parse("tenon").unwrap(),
        cluster: ClusterName::parse(cluster).unwrap(),
        endpoint: format!("https://{cluster}.example"),
        certificate_authority: "Q0E=".to_owned(),
        kubernetes_version: "1.33".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        settings: ClusterSettings::default(),
        gates: Gates::default(),
        agent_queue: String::new(),
        agent_role: String::new(),
        launch_role: None,
        allowed: Allowances::default(),
    }
}

pub(crate) fn class(name: &str) -> Ec2NodeClass {
    let mut settings = NodeSettings::default();
    settings.kubelet.document = Some(r#"{"maxPods":42}"#.to_owned());
    settings.kubelet.max_pods = Some(42);
    Ec2NodeClass {
        meta: ObjectMeta { name: name.to_owned(), generation: 1, ..ObjectMeta::default() },
        name: NodeClassName::parse(name).unwrap(),
        subnet_selector: Vec::new(),
        security_group_selector: Vec::new(),
        ami_selector: Vec::new(),
        reservation_selector: Vec::new(),
        placement_group: None,
        settings,
        user_data: None,
        identity: NodeIdentity::InstanceProfile(InstanceProfile::Name("nodes".to_owned())),
        tags: BTreeMap::new(),
        metadata_options: MetadataOptions::default(),
        associate_public_ip: None,
        ip_prefix_count: None,
        detailed_monitoring: false,
        context: None,
        spec_hash: SpecHash::default(),
        status_subnets: Vec::new(),
        unsupported: Vec::new(),
        warnings: Vec::new(),
    }
}

pub(crate) fn status(name: &str) -> tenon_domain::class_status::ClassStatus {
    use tenon_domain::catalog::facts::Architecture;
    use tenon_domain::class_status::{
        ClassObservation, ClassStatus, ClassSubnet, ImageNotices, ImageVariant, ResolvedImage, Seen,
    };
    use tenon_domain::id::{ImageId, SubnetId, Zone, ZoneId};
    let at = jiff::Timestamp::from_second(1_767_225_600).unwrap();
    let subnet = |letter: &str, n: u32| ClassSubnet {
        id: SubnetId::parse(format!("subnet-{letter}{n}")).unwrap(),
        zone: Zone::parse(format!("us-east-1{letter}")).unwrap(),
        zone_id: ZoneId::parse(format!("use1-az-{letter}")).unwrap(),
        free_addresses: 100 * n,
        shifted: None,
    };
    let image = |id: &str, architecture| ResolvedImage {
        id: ImageId::parse(id).unwrap(),
        name: id.to_owned(),
        architecture,
        variant: ImageVariant::Any,
        boot_mode: None,
        created_at: at,
        own_snapshots: BTreeMap::new(),
    };
    let observation = ClassObservation {
        name: NodeClassName::parse(name).unwrap(),
        generation: 1,
        uid: None,
        spec_digest: "spec".to_owned(),
        hash: None,
        subnets: Seen::Holds(vec![subnet("a", 1), subnet("a", 2), subnet("b", 1)]),
        security_groups: Seen::Holds(Vec::new()),
        images: Seen::Holds(vec![
            image("ami-x86", Architecture::X86_64),
            image("ami-arm", Architecture::Arm64),
        ]),
        image_notices: ImageNotices::default(),
        instance_profile: Seen::Holds(InstanceProfile::Name("nodes".to_owned())),
        asked_profile: None,
        profile_seen: None,
        reservations: None,
        placement_group: None,
        shifts: None,
        validation: Seen::Holds(()),
        validation_note: None,
        unsupported: Vec::new(),
    };
    ClassStatus::observed(observation, None, at)
}

/// Options of five types, some of them with GPUs or of another architecture, by name; offerings don't matter here.
pub(crate) fn types() -> Vec<tenon_domain::catalog::InstanceTypeOption> {
    types_where(|name| ["g4dn.xlarge", "g6f.large", "m5.large", "m5.xlarge", "m6g.large"].contains(&name))
}

/// More types than a launch names, of eight families, by name.
pub(crate) fn many_types() -> Vec<tenon_domain::catalog::InstanceTypeOption> {
    let families = ["c5.", "c6i.", "c7i.", "m5.", "m6i.", "m7i.", "r5.", "r6i."];
    types_where(|name| families.iter().any(|family| name.starts_with(family)) && !name.contains("metal"))
}

/// Two types with one and with two EFA interfaces, by name.
pub(crate) fn efa_types() -> Vec<tenon_domain::catalog::InstanceTypeOption> {
    types_where(|name| ["c5n.18xlarge", "c6in.32xlarge"].contains(&name))
}

fn types_where(wanted: impl Fn(&str) -> bool) -> Vec<tenon_domain::catalog::InstanceTypeOption> {
    use std::sync::Arc;
    use tenon_domain::catalog::describe::facts;
    use tenon_domain::catalog::{InstanceTypeOption, NodeSettings, Surroundings};
    use tenon_domain::id::Region;
    use tenon_ec2::data::Ec2Data;
    let data = Ec2Data::get().unwrap();
    let region = Region::parse("us-east-1").unwrap();
    let infos = data.types.iter().filter(|(name, _)| wanted(name.as_str()));
    let option = |info| {
        let facts = Arc::new(facts(info, &data.limits).unwrap());
        let surroundings = Surroundings { region: &region, learned: None };
        InstanceTypeOption::new(facts, &NodeSettings::default(), surroundings, Vec::new())
    };
    infos.map(|(_, info)| option(info)).collect()
}

/// A planned claim with offerings written as `type zone-letter capacity-type price`: `-` is no price, and a trailing
/// `again` makes the offering a probe.
pub(crate) fn planned(name: &str, offerings: &[&str]) -> tenon_planning::provision::PlannedClaim {
    use tenon_domain::catalog::CapacityType;
    use tenon_domain::id::{ClaimName, InstanceType, NodePoolName, Zone, ZoneId};
    use tenon_domain::money::UsdPerHour;
    use tenon_domain::requirement::Requirements;
    use tenon_domain::resources::ResourceList;
    use tenon_planning::provision::{AskReason, PlannedClaim, UsableOffering};
    let offering = |text: &&str| {
        let words: Vec<&str> = text.split(' ').collect();
        UsableOffering {
            instance_type: InstanceType::parse(words[0]).unwrap(),
            zone: Zone::parse(format!("us-east-1{}", words[1])).unwrap(),
            zone_id: ZoneId::parse(format!("use1-az-{}", words[1])).unwrap(),
            capacity_type: CapacityType::parse(words[2]).unwrap(),
            reservation: None,
            price: (words[3] != "-").then(|| UsdPerHour::parse(words[3]).unwrap()),
            asked: if words.get(4) == Some(&"again") { AskReason::Probe } else { AskReason::Available },
        }
    };
    let offerings: Vec<UsableOffering> = offerings.iter().map(offering).collect();
    PlannedClaim {
        name: ClaimName::parse(name).unwrap(),
        pool: NodePoolName::parse("default").unwrap(),
        pool_hash: "1".parse().unwrap(),
        pool_fields: tenon_domain::class_hash::FieldDigests::default(),
        class: NodeClassName::parse("default").unwrap(),
        requirements: Requirements::new().into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        min_values: tenon_domain::claim::MinValuesState::AsWritten,
        terms: tenon_domain::claim::Terms {
            expire_after: None,
            termination_grace_period: None,
            load_balancer_deregistration: None,
        },
        instance_types: offerings.iter().map(|o| o.instance_type.clone()).collect::<Vec<_>>().into(),
        zones: offerings.iter().map(|o| o.zone.clone()).collect(),
        capacity_types: offerings.iter().map(|o| o.capacity_type).collect(),
        offerings: offerings.into_iter().collect(),
        pods: Vec::new(),
        requests: ResourceList::new(),
        price: None,
    }
}

/// A mark of a refusal at the epoch, due by now.
pub(crate) fn mark(key: &str) -> tenon_domain::unavailable::Mark {
    use jiff::Timestamp;
    use tenon_domain::unavailable::{Mark, UnavailableKey};
    Mark {
        key: UnavailableKey::parse(key).unwrap(),
        revision: 1,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: None,
        count: 1,
        since: Timestamp::UNIX_EPOCH,
        asked_at: Timestamp::UNIX_EPOCH,
        until: Timestamp::UNIX_EPOCH,
        from_vcpus: None,
        probe: None,
        seen_by: ClusterName::parse("prod").unwrap(),
    }
}
