//! One item of each kind that an EC2NodeClass has: its status, the verdicts about its launches, its images.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use tenon_domain::catalog::facts::{Architecture, PlacementStrategy};
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, ClassSubnet, ConditionReason, ImageFault, ImageNotices, ImageRejection,
    ImageVariant, RefusedImage, RejectedImage, ResolvedImage, Seen as SeenPart, SeenReservations,
};
use tenon_domain::image::{
    BootMode, EnaSupport, ImageFacts, ImageRecord, ImageState, ImageVolume, RootDeviceType,
};
use tenon_domain::launch_verdict::{ClassVerdicts, JudgedRequest, LaunchVerdict, VerdictOutcome};
use tenon_domain::placement::ResolvedPlacementGroup;
use tenon_domain::registry::{FeatureGate, GateName, Gates};
use tenon_domain::reservation::{ClassReservation, MatchCriteria, ReservationKind, ReservedCapacity};
use tenon_domain::unavailable::RequestDigest;
use tenon_domain::zonal_shift::{ShiftEnd, ShiftedZone};

use super::super::*;
use super::samples::{at, strings, tags};

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
            own_snapshots: tags(&[("/dev/xvda", "snap-0abc")]),
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
