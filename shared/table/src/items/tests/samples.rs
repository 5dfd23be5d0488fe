//! One item of each kind.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord};
use tenon_domain::catalog::facts::{Architecture, PlacementStrategy};
use tenon_domain::catalog::{CapacityType, HeldOffering, LearnedMemory, LearnedRecord};
use tenon_domain::claim::{
    AnnouncementKind, Claim, ClaimPhase, ClaimState, CommandRole, InstanceAnnouncement, LaunchFailure,
    LaunchedInstance, MinValuesState, RemovalReason, Terms,
};
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, ClassSubnet, ConditionReason, ConditionStatus, ImageFault, ImageNotices,
    ImageRejection, ImageVariant, RefusedImage, RejectedImage, ResolvedImage, Seen as SeenPart,
    SeenReservations,
};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::evidence::{CatalogPart, ErrorKind, PartOrigin};
use tenon_domain::id::{ClaimName, ClusterName, CommandId, NamespacedName, NodeName, Region, Uid};
use tenon_domain::image::{
    BootMode, EnaSupport, ImageFacts, ImageRecord, ImageState, ImageVolume, RootDeviceType,
};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::launch_verdict::{ClassVerdicts, JudgedRequest, LaunchVerdict, VerdictOutcome};
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::placement::{ResolvedPlacementGroup, Tenancy};
use tenon_domain::pool_status::{PoolCondition, PoolConditionType, PoolStatus};
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::{
    Allowances, ClusterSettings, FeatureGate, GateName, Gates, Permission, Registry,
};
use tenon_domain::report::Shown;
use tenon_domain::reservation::{ClassReservation, MatchCriteria, ReservationKind, ReservedCapacity};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::unavailable::{Mark, Probe, RequestDigest, UnavailableKey};
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::{ShiftEnd, ShiftedZone};
use tenon_domain::{SignedDuration, Timestamp};

use super::super::*;

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

pub(super) fn instance() -> LaunchedInstance {
    LaunchedInstance {
        id: "i-0abc".parse().unwrap(),
        instance_type: "m5.large".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        subnet: Some("subnet-0123456789abcdef0".parse().unwrap()),
        reservation: None,
        placement: None,
        capacity_type: CapacityType::Spot,
        image: "ami-0abc".parse().unwrap(),
    }
}

pub(super) fn claim(state: ClaimState) -> Claim {
    Claim {
        name: name("default-3k9x2"),
        revision: 4,
        pool: "default".parse().unwrap(),
        class: "linux".parse().unwrap(),
        class_hash: Some("11148166120438674859".parse().unwrap()),
        pool_hash: Some("14695981039346656037".parse().unwrap()),
        security_groups: Some(["sg-1".parse().unwrap()].into()),
        launch: "launch-7".parse().unwrap(),
        created_at: at("00:00:00"),
        state,
        drift: None,
        consolidatable: None,
        announced: Some(InstanceAnnouncement {
            kind: AnnouncementKind::ScheduledChange,
            at: at("00:00:00"),
            starts_at: Some(at("12:00:00")),
        }),
        role: CommandRole::None,
        terms: Some(Terms {
            expire_after: Some(SignedDuration::from_hours(720)),
            termination_grace_period: Some(SignedDuration::from_mins(90)),
            load_balancer_deregistration: Some(SignedDuration::from_secs(90)),
        }),
        min_values: MinValuesState::AsWritten,
        tenancy: Tenancy::Default,
        labels: BTreeMap::new(),
        requests: requests(),
    }
}

/// A claim in every phase, with all that can be known in it.
pub(super) fn states() -> Vec<ClaimState> {
    let at = at("00:00:05.25");
    let node: NodeName = "ip-10-0-0-1.ec2.internal".parse().unwrap();
    let command: CommandId = "command-1".parse().unwrap();
    let reason = RemovalReason::SpotInterrupted;
    let failure = LaunchFailure { reason: "InsufficientCapacityError".into(), message: "no capacity".into() };
    let state = |phase| match phase {
        ClaimPhase::Planned => ClaimState::Planned,
        ClaimPhase::LaunchFailed => ClaimState::LaunchFailed { at, failure: failure.clone() },
        ClaimPhase::Launched => ClaimState::Launched { instance: instance(), at },
        ClaimPhase::Registered => ClaimState::Registered { instance: instance(), node: node.clone(), at },
        ClaimPhase::Initialized => ClaimState::Initialized { instance: instance(), node: node.clone(), at },
        ClaimPhase::Disrupting => {
            ClaimState::Disrupting { instance: instance(), node: node.clone(), command: command.clone(), at }
        }
        ClaimPhase::Draining => ClaimState::Draining {
            instance: instance(),
            node: Some(node.clone()),
            reason,
            at,
            deadline: Some(at),
        },
        ClaimPhase::Drained => ClaimState::Drained { instance: instance(), node: None, reason, at },
        ClaimPhase::Terminating => {
            ClaimState::Terminating { instance: instance(), node: Some(node.clone()), reason, at }
        }
        ClaimPhase::Terminated => ClaimState::Terminated { instance: None, node: None, reason, at },
    };
    ClaimPhase::ALL.into_iter().map(state).collect()
}

pub(super) fn launch() -> Launch {
    Launch {
        id: "launch-7".parse().unwrap(),
        revision: 1,
        pool: "default".parse().unwrap(),
        class: "linux".parse().unwrap(),
        token: "tenon-7".parse().unwrap(),
        made_from: RequestDigest::parse("3k9x2"),
        reservation: None,
        placement: None,
        request: "{\"v\":1}".into(),
        claims: vec![
            LaunchClaim {
                name: name("default-3k9x2"),
                pods: vec![Uid::parse("5d1c9f3a-58cc-4372-a567-0e02b2c3d479").unwrap()],
            },
            LaunchClaim { name: name("default-aaaaa"), pods: vec![] },
            LaunchClaim { name: name("default-bbbbb"), pods: vec![Uid::parse("5d1c").unwrap()] },
        ],
        cause: LaunchCause::PendingPods,
        created_at: at("00:00:00"),
        state: LaunchState::Requested { attempts: 2, not_before: at("00:00:10") },
    }
}

pub(super) fn launched_pods() -> LaunchedPods {
    let pod = |name: &str| NamespacedName { namespace: "shop".into(), name: name.into() };
    LaunchedPods {
        launch: "launch-7".parse().unwrap(),
        at: at("00:00:00"),
        claims: vec![
            ClaimPods { claim: name("default-3k9x2"), pods: vec![pod("web-1"), pod("web-2")] },
            ClaimPods { claim: name("default-bbbbb"), pods: vec![pod("db.0")] },
        ],
    }
}

pub(super) fn command(state: CommandState) -> Command {
    Command {
        id: "command-1".parse().unwrap(),
        revision: 2,
        pool: "default".parse().unwrap(),
        reason: RemovalReason::Drifted,
        candidates: vec![name("default-3k9x2")],
        replacements: vec![name("default-bbbbb")],
        state,
        created_at: at("00:00:00"),
    }
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

fn image_notices() -> ImageNotices {
    ImageNotices {
        rejected: vec![RejectedImage {
            id: "ami-0def".parse().unwrap(),
            name: "linux-2".into(),
            reasons: vec![ImageRejection {
                fault: ImageFault::TooYoung,
                message: "is younger than `2h`".into(),
            }],
        }],
        refused: vec![RefusedImage {
            id: "ami-0def".parse().unwrap(),
            message: "Not authorized for images: [ami-0def]".into(),
            times: 2,
            refresh: Some("1".into()),
            until: at("02:00:00"),
        }],
        message: "not taking newer image `ami-0def`: is younger than `2h`".into(),
        unreadable: None,
        next_try: Some(at("02:00:00")),
    }
}

pub(super) fn class_status() -> ClassStatus {
    let observation = ClassObservation {
        name: "linux".parse().unwrap(),
        generation: 3,
        uid: Some("0d1c2b3a-uid".parse().unwrap()),
        spec_digest: "12ab".into(),
        hash: Some("11148166120438674859".parse().unwrap()),
        subnets: SeenPart::Holds(vec![ClassSubnet {
            id: "subnet-0abc".parse().unwrap(),
            zone: "us-east-1a".parse().unwrap(),
            zone_id: "use1-az1".parse().unwrap(),
            free_addresses: 250,
            shifted: None,
        }]),
        security_groups: SeenPart::Holds(vec![ResolvedSecurityGroup {
            id: "sg-0abc".parse().unwrap(),
            name: "nodes".into(),
        }]),
        images: SeenPart::Holds(vec![ResolvedImage {
            id: "ami-0abc".parse().unwrap(),
            name: "linux-1".into(),
            architecture: Architecture::Arm64,
            variant: ImageVariant::Any,
            boot_mode: Some(BootMode::Uefi),
            created_at: at("00:00:00"),
        }]),
        image_notices: image_notices(),
        instance_profile: SeenPart::Holds(InstanceProfile::Name("nodes".into())),
        asked_profile: None,
        profile_seen: None,
        reservations: Some(SeenReservations {
            right: ReservedCapacity::behind(
                &Gates::default().with(GateName::ReservedCapacity, FeatureGate::Enabled),
            )
            .unwrap(),
            seen: SeenPart::Holds(vec![ClassReservation {
                id: "cr-0abc".parse().unwrap(),
                owner: "111122223333".into(),
                instance_type: "m5.large".parse().unwrap(),
                zone: "us-east-1a".parse().unwrap(),
                match_criteria: MatchCriteria::Targeted,
                kind: ReservationKind::Default,
                ends_at: Some(at("12:00:00")),
                available: 3,
            }]),
        }),
        placement_group: Some(SeenPart::Holds(ResolvedPlacementGroup {
            id: "pg-0abc".parse().unwrap(),
            name: "apart".into(),
            strategy: PlacementStrategy::Partition,
            partitions: Some(3),
        })),
        shifts: Some(SeenPart::Holds(BTreeSet::from([ShiftedZone {
            zone_id: "use1-az1".parse().unwrap(),
            end: ShiftEnd::At(at("06:00:00")),
        }]))),
        validation: SeenPart::Unseen {
            reason: ConditionReason::ValidationIncomplete,
            message: "EC2 throttled the dry run".into(),
            next_try: at("00:01:00"),
        },
        validation_note: None,
        unsupported: vec!["spec.context".into()],
    };
    ClassStatus::observed(observation, None, at("00:00:30"))
}

pub(super) fn verdicts() -> ClassVerdicts {
    let digest = RequestDigest::of(["linux"]);
    let request = JudgedRequest { digest: &digest, refresh: Some("1") };
    let reason = ConditionReason::RunInstancesAuthCheckFailed;
    let message = "EC2 denies `ec2:RunInstances`".into();
    let denied = VerdictOutcome::Denied { reason, message, image: Some("ami-0abc".parse().unwrap()) };
    let launched = LaunchVerdict::of_launch(None, request, &Architecture::X86_64, at("00:00:20"));
    let of = |answer| LaunchVerdict::of_dry_run(None, request, &Architecture::Arm64, answer, at("00:00:30"));
    let templates = BTreeSet::from(["tenon-prod-1".to_owned()]);
    let denied = LaunchVerdict { templates, ..of(denied) };
    ClassVerdicts::default().with(denied).with(launched.unwrap())
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

pub(super) fn image_record() -> ImageRecord {
    ImageRecord {
        revision: 2,
        id: "ami-0abc".parse().unwrap(),
        name: "linux-1".into(),
        state: ImageState::Pending,
        architecture: Some(Architecture::X86_64),
        created_at: Some(at("00:00:00")),
        owner: "111122223333".into(),
        owner_alias: Some("self".into()),
        tags: tags(&[("team", "images")]),
        deprecated_at: None,
        facts: ImageFacts {
            boot_mode: Some(BootMode::UefiPreferred),
            ena: Some(EnaSupport::Enabled),
            platform: None,
            root_device_type: Some(RootDeviceType::Ebs),
            root_device_name: Some("/dev/xvda".into()),
            volumes: BTreeMap::from([(
                "/dev/xvda".into(),
                ImageVolume { snapshot: Some("snap-0abc".into()), size_gib: Some(8), encrypted: Some(true) },
            )]),
        },
        first_seen_at: at("00:00:00"),
        seen_at: at("00:00:01"),
    }
}

pub(super) fn image_sweep() -> ImageSweep {
    ImageSweep { at: at("00:00:01"), queries: strings(&["12ab", "34cd"]) }
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
    };
    ToldFindings { function: FunctionName::Provisioner, findings: vec![finding] }
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
