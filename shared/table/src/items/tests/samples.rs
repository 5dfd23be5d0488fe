//! One item of each other kind, and the values that samples share.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::Timestamp;
use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord};
use tenon_domain::catalog::{CapacityType, HeldOffering, LearnedMemory, LearnedRecord};
use tenon_domain::class_status::ConditionStatus;
use tenon_domain::evidence::{CatalogPart, ErrorKind, PartOrigin};
use tenon_domain::id::{ClaimName, ClusterName, Region};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::pool_status::{PoolCondition, PoolConditionType, PoolStatus};
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::{
    Allowances, ClusterSettings, FeatureGate, GateName, Gates, Permission, Registry,
};
use tenon_domain::report::Shown;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::unavailable::{Mark, Probe, UnavailableKey};
use tenon_domain::wake::FunctionName;

use super::super::*;
use super::claim_samples::instance;

pub(super) fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

pub(super) fn cluster() -> ClusterName {
    ClusterName::parse("prod").unwrap()
}

pub(super) fn region() -> Region {
    Region::parse("us-east-1").unwrap()
}

pub(super) fn name(text: &str) -> ClaimName {
    ClaimName::parse(text).unwrap()
}

pub(super) fn strings(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub(super) fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn requests() -> ResourceList {
    ResourceList::new()
        .with(ResourceName::CPU, Quantity::parse("3600m").unwrap())
        .with(ResourceName::MEMORY, Quantity::parse("6000Mi").unwrap())
}

pub(super) fn registry_entry() -> Registry {
    Registry {
        installation: "tenon".parse().unwrap(),
        cluster: cluster(),
        endpoint: "https://example.eks.amazonaws.com".into(),
        certificate_authority: "LS0t".into(),
        kubernetes_version: "1.33".into(),
        service_cidr: "10.100.0.0/16".into(),
        settings: ClusterSettings {
            default_spread: vec!["topology.kubernetes.io/zone=1:DoNotSchedule".parse().unwrap()],
            spot_request_tags: FeatureGate::Enabled,
            disruption_budget: Some(tenon_domain::budget::BudgetNodes::Percent(10)),
            ..ClusterSettings::default()
        },
        gates: GateName::ALL
            .into_iter()
            .fold(Gates::default(), |gates, gate| gates.with(gate, FeatureGate::Enabled)),
        agent_queue: "https://sqs.us-east-1.amazonaws.com/1/agent-prod".into(),
        agent_role: "arn:aws:iam::1:role/agent-prod".into(),
        launch_role: Some("arn:aws:iam::1:role/tenon/tenon/us-east-1/launch-prod".into()),
        allowed: Allowances {
            node_roles: tags(&[("nodes", "tenon-us-east-1-prod-nodes"), ("team", "team")]),
            instance_profiles: strings(&["nodes"]),
            subnet_tags: tags(&[("karpenter.sh/discovery", "prod")]),
            security_group_tags: tags(&[("karpenter.sh/discovery", "*")]),
            image_owners: strings(&["amazon", "self"]),
            snapshot_owners: strings(&["111122223333"]),
            snapshot_tags: tags(&[("team", "*")]),
            max_nodes: Some(100),
            max_vcpus: Some(400),
            families: ["c7*", "m7g"].map(|pattern| pattern.parse().unwrap()).into(),
            public_addresses: Permission::Denied,
            imds_v1: Permission::Denied,
            user_data: Permission::Denied,
        },
    }
}

pub(super) fn pool_status() -> PoolStatus {
    PoolStatus {
        name: "default".parse().unwrap(),
        revision: 9,
        generation: 2,
        nodes: 3,
        resources: requests(),
        conditions: vec![PoolCondition {
            condition: PoolConditionType::NodeClassReady,
            status: ConditionStatus::False,
            reason: "NodeClassNotReady".into(),
            message: "EC2NodeClass `linux` isn't ready".into(),
            since: at("00:00:00"),
        }],
    }
}

pub(super) fn mark() -> Mark {
    Mark {
        key: UnavailableKey::parse("offering#spot#use1-az1#m5.large").unwrap(),
        revision: 3,
        code: "InsufficientInstanceCapacity".into(),
        message: None,
        count: 2,
        since: at("00:00:00"),
        asked_at: at("00:01:30"),
        until: at("00:03:30"),
        from_vcpus: None,
        probe: None,
        seen_by: cluster(),
    }
}

pub(super) fn probed_quota() -> Mark {
    let probe = Probe {
        cluster: "staging".parse().unwrap(),
        launch: "launch-7".parse().unwrap(),
        at: at("00:04:00"),
        until: at("00:07:00"),
    };
    Mark {
        key: UnavailableKey::parse("quota#on-demand#m5").unwrap(),
        code: "VcpuLimitExceeded".into(),
        message: None,
        from_vcpus: Some(48),
        probe: Some(probe),
        ..mark()
    }
}

pub(super) fn learned() -> LearnedRecord {
    LearnedRecord {
        instance_type: "m5.large".parse().unwrap(),
        image: "ami-0abc".parse().unwrap(),
        revision: 2,
        memory: LearnedMemory(8_011_382_784),
        seen_at: at("00:00:00"),
        cluster: Some(cluster()),
    }
}

pub(super) fn boot() -> BootRecord {
    let failure = BootFailure {
        fault: BootFault::LaunchFailed,
        code: Some("Client.InternalError".into()),
        message: "Client.InternalError: Client error on launch".into(),
        instance: instance().id,
        at: at("00:00:09"),
        form: BootForm { spec_digest: "v2-12ab".into(), refresh: Some("1".into()) },
    };
    BootRecord {
        cluster: cluster(),
        class: "default".parse().unwrap(),
        image: "ami-0abc".parse().unwrap(),
        revision: 2,
        joined_at: Some(at("00:00:00")),
        failure: Some(failure),
    }
}

pub(super) fn trial() -> Trial {
    Trial { function: FunctionName::Provisioner, begun: 2, at: at("00:00:01"), expires_at: at("01:00:00") }
}

pub(super) fn seen_by_provisioner() -> SeenRecord {
    SeenRecord {
        function: FunctionName::Provisioner,
        generations: Generations {
            snapshot: 7,
            revision: 12,
            steps: 30,
            catalog: BTreeMap::from([(CatalogPart::SpotPrices, 4)]),
            registry: Some("34cd".into()),
        },
        deadline: Some(at("00:01:00")),
        wake_at: Some(at("00:40:00")),
        at: at("00:00:01"),
        refusals: Some("12ab".into()),
        told_at: Some(at("00:00:01")),
        offerings: vec![HeldOffering {
            instance_type: "m5.large".parse().unwrap(),
            zone: "us-east-1a".parse().unwrap(),
            capacity_type: CapacityType::Spot,
            price: Some(UsdPerHour::parse("0.0353").unwrap()),
            available: false,
        }],
        offerings_at: None,
    }
}

pub(super) fn told() -> ToldFindings {
    let finding = ToldFinding {
        identity: "0a1b2c3d".into(),
        kind: SubjectKind::Pod,
        names: ["web/a", "web/b"].map(str::to_owned).into(),
        decision: Decision::Refused,
        reason: "NoOffering".into(),
        message: "no node for 2 pods (`web/a`, `web/b`): no instance type is offered".into(),
        shown: Shown::Event,
        since: at("00:00:00"),
        told_at: at("00:00:01"),
        next_try: Some(at("00:03:00")),
    };
    let resting =
        RestingFinding { identity: "4e5f6a7b".into(), since: at("00:00:00"), told_at: at("00:00:00") };
    ToldFindings { function: FunctionName::Provisioner, findings: vec![finding], resting: vec![resting] }
}

pub(super) fn catalog_meta() -> CatalogMeta {
    let part = PartMeta {
        generation: 4,
        refreshed_at: Some(at("00:00:00")),
        count: 851,
        items: 1,
        digest: "12ab".into(),
        packed_until: Some(at("00:20:00")),
        origin: PartOrigin::Answered,
        currency: Some(Currency::Usd),
        last_error: Some("RequestLimitExceeded".into()),
        last_error_kind: Some(ErrorKind::Throttled),
        failing_since: Some(at("00:10:00")),
    };
    let shipped = PartMeta {
        generation: 1,
        refreshed_at: Some(at("00:00:00")),
        origin: PartOrigin::Shipped { as_of: "2026-11-01".parse().unwrap(), region: region() },
        currency: Some(Currency::Usd),
        ..PartMeta::default()
    };
    let parts = [(CatalogPart::SpotPrices, part), (CatalogPart::OnDemandPrices, shipped)];
    CatalogMeta { revision: 6, parts: BTreeMap::from(parts) }
}

pub(super) fn type_record() -> TypeRecord {
    let price = |text| UsdPerHour::parse(text).unwrap();
    TypeRecord {
        name: "m5.large".parse().unwrap(),
        labels: tags(&[("karpenter.k8s.aws/instance-family", "m5")]),
        capacity: requests(),
        zones: vec!["us-east-1a".into()],
        currency: Currency::Usd,
        on_demand: Some(price("0.096")),
        on_demand_of: None,
        spot: BTreeMap::from([("us-east-1a".into(), price("0.031"))]),
    }
}

pub(super) fn template_record() -> TemplateItem {
    TemplateItem {
        name: "tenon-prod-12ab".into(),
        class: "linux".parse().unwrap(),
        image: "ami-0abc".parse().unwrap(),
        created_at: at("00:00:00"),
        used_at: at("00:00:01"),
        request: r#"{"v":1}"#.into(),
        made_at: Some(at("00:00:01")),
    }
}

pub(super) fn leaving_templates() -> LeavingTemplates {
    LeavingTemplates { revision: 2, since: BTreeMap::from([("tenon-prod-34cd".into(), at("00:00:01"))]) }
}

pub(super) fn journal_record() -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Claim, name: "default-3k9x2".into() };
    JournalRecord::new(subject, at("00:00:01"), "provisioner", Decision::Planned, "planned for 2 pods")
        .detail("launch", "launch-7")
        .evidence("snapshot", 7)
}
