//! One item of each kind that a claim has: itself in each phase, its launch, its command.

use std::collections::BTreeMap;

use tenon_domain::SignedDuration;
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{
    AnnouncementKind, Claim, ClaimPhase, ClaimState, CommandRole, InstanceAnnouncement, LaunchFailure,
    LaunchedInstance, MinValuesState, RemovalReason, Terms,
};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{CommandId, NamespacedName, NodeName, Uid};
use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::placement::Tenancy;
use tenon_domain::unavailable::RequestDigest;

use super::super::*;
use super::samples::{at, name, requests};

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
        class_fields: None,
        pool_fields: None,
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
        storage: Some(21_474_836_480),
        lacked: None,
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
        drifted_to: Some("3k9x2".into()),
        candidates: vec![name("default-3k9x2")],
        replacements: vec![name("default-bbbbb")],
        state,
        created_at: at("00:00:00"),
    }
}
