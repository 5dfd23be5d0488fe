//! What EC2 answers to a launch: a part of it, an error, or nothing.

use super::*;

#[test]
fn what_ec2_gives_in_part_is_launched_and_the_rest_planned_anew() {
    let cluster = cluster(6);
    for zone in ["us-east-1a", "us-east-1b"] {
        for name in ["m6g.large", "m5.large", "m5.xlarge"] {
            let pool = CapacityPool {
                capacity_type: TargetCapacityType::OnDemand,
                instance_type: InstanceType::parse(name).unwrap(),
                zone: Zone::parse(zone).unwrap(),
            };
            cluster.world.ec2.set_capacity(pool, Some(1));
        }
    }
    wake(&cluster);
    let launched = phases(&cluster, ClaimPhase::Launched);
    assert!((3..=6).contains(&launched), "{launched}");
    check_settled(&cluster, launched);
}

#[test]
fn a_lost_answer_is_replayed_under_its_token() {
    for effect in [FaultEffect::AnswerLost, FaultEffect::RequestLost] {
        let cluster = cluster(1);
        fault(&cluster, Call::CreateFleet, effect);
        wake(&cluster);
        assert_eq!(phases(&cluster, ClaimPhase::Launched), 0);
        let retried = cluster
            .world
            .signals
            .take()
            .into_iter()
            .any(|rung| matches!(rung, RungBell::Wake { function: FunctionName::Provisioner, .. }));
        assert!(retried);
        advance(&cluster, SignedDuration::from_secs(30));
        wake(&cluster);
        let launched = phases(&cluster, ClaimPhase::Launched);
        assert!(launched > 0);
        check_settled(&cluster, launched);
    }
}

#[test]
fn a_throttled_launch_is_put_off_and_sent_as_it_was() {
    let cluster = cluster(1);
    let refused = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    fault(&cluster, Call::CreateFleet, FaultEffect::Refused(refused));
    wake(&cluster);
    let before = cluster.launches().unwrap();
    assert!(matches!(before[0].state, LaunchState::Requested { attempts: 1, .. }), "{before:?}");
    wake(&cluster);
    assert_eq!(cluster.world.ec2.requests().len(), 0, "not before its time");
    advance(&cluster, SignedDuration::from_secs(6));
    wake(&cluster);
    check_settled(&cluster, 1);
    assert_eq!(cluster.world.ec2.requests()[0].client_token, before[0].token);
}

#[test]
fn after_the_tokens_time_instances_are_found_by_their_tag() {
    for (effect, expected) in [(FaultEffect::AnswerLost, 1), (FaultEffect::RequestLost, 1)] {
        let cluster = cluster(1);
        fault(&cluster, Call::CreateFleet, effect);
        wake(&cluster);
        advance(&cluster, SignedDuration::from_mins(11));
        wake(&cluster);
        assert_eq!(phases(&cluster, ClaimPhase::Launched), 0, "EC2 may not show it yet");
        advance(&cluster, SignedDuration::from_mins(2));
        wake(&cluster);
        check_settled(&cluster, expected);
    }
}

/// An on-demand launch can't be planned around spot.
#[test]
fn a_missing_role_of_spot_that_refuses_on_demand_launches_is_asked_about_once_a_minute() {
    let cluster = cluster(1);
    let code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    let refused = Ec2Error::from_code("CreateFleet", code, "no role");
    let (when, effect) = (FaultWhen::Next(100), FaultEffect::Refused(refused));
    cluster.world.ec2.inject(Fault { call: Call::CreateFleet, when, effect });
    for (seconds, expected) in [(0, 1), (1, 1), (67, 2)] {
        advance(&cluster, SignedDuration::from_secs(seconds));
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), expected, "after {seconds} s more");
    }
}

#[test]
fn a_refused_request_fails_with_the_peers_reason_and_isnt_repeated_at_once() {
    let cluster = cluster(1);
    cluster.world.ec2.deny(Call::CreateFleet, "no");
    wake(&cluster);
    let claims = cluster.claims().unwrap();
    let tenon_domain::claim::ClaimState::LaunchFailed { failure, .. } = &claims[0].state else {
        panic!("{claims:?}")
    };
    assert_eq!((failure.reason.as_str(), claims.len()), ("Unauthorized", 1));
    wake(&cluster);
    assert_eq!(cluster.claims().unwrap().len(), 1);
    cluster.world.ec2.allow(Call::CreateFleet);
    // A minute and the mark's jitter.
    advance(&cluster, SignedDuration::from_secs(68));
    wake(&cluster);
    check_settled(&cluster, 1);
}
