//! Launches and dry runs by the cluster's launch role, and what is told where it can't be had.

use tenon_domain::claim::ClaimState;
use tenon_domain::registry::Registry;
use tenon_ec2::port::{LaunchRole, Tags};
use tenon_ec2::{Ec2 as _, LaunchRights as _};
use tenon_harness::cluster::LAUNCH_ROLE;

use super::*;

/// The cluster's entry with this launch role.
fn with_role(cluster: &Cluster, role: Option<&str>) {
    let key = keys::registry(&cluster.world.installation.region, &cluster.name);
    let mut entry: Registry = from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
    entry.launch_role = role.map(str::to_owned);
    cluster.put(set(key, &entry)).unwrap();
}

/// Why claims failed.
fn failures(cluster: &Cluster) -> Vec<String> {
    let failure = |claim: tenon_domain::claim::Claim| match claim.state {
        ClaimState::LaunchFailed { failure, .. } => Some(failure.message),
        ClaimState::Planned
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    };
    cluster.claims().unwrap().into_iter().filter_map(failure).collect()
}

/// The clusters by whose roles fleets were asked for.
fn asked_by(cluster: &Cluster) -> Vec<Option<String>> {
    let requests = cluster.world.ec2.requests();
    requests.iter().map(|request| request.by.as_ref().map(ToString::to_string)).collect()
}

#[test]
fn a_launch_is_asked_for_by_its_clusters_role() {
    let cluster = cluster(4);
    wake(&cluster);
    check_settled(&cluster, phases(&cluster, ClaimPhase::Launched));
    let asked = asked_by(&cluster);
    assert!(!asked.is_empty() && asked.iter().all(|by| by.as_deref() == Some("prod")), "{asked:?}");
}

#[test]
fn a_role_is_taken_once_for_many_launches() {
    let cluster = cluster(40);
    wake(&cluster);
    let calls = cluster.world.ec2.calls();
    // For the launches, and for the names of their instances.
    assert_eq!(calls[&Call::AssumeRole].made, 2);
}

#[test]
fn a_role_that_is_denied_is_told_with_its_arn_and_the_remedy() {
    let cluster = cluster(1);
    cluster.world.ec2.remove_launch_role(LAUNCH_ROLE);
    wake(&cluster);
    let told = failures(&cluster);
    assert!(!told.is_empty());
    for message in &told {
        let expected =
            format!("can't take launch role `{LAUNCH_ROLE}` of cluster `prod`: deploy the cluster's stack");
        assert!(message.contains(&expected), "{message}");
    }
    assert!(asked_by(&cluster).is_empty());
}

#[test]
fn a_role_of_another_cluster_launches_nothing_here() {
    let cluster = cluster(1);
    let other = LAUNCH_ROLE.replace("/prod", "/next");
    cluster.world.ec2.add_launch_role(&other, &ClusterName::parse("next").unwrap());
    with_role(&cluster, Some(&other));
    wake(&cluster);
    assert!(cluster.world.ec2.instances().is_empty());
    assert_eq!(phases(&cluster, ClaimPhase::Launched), 0);
    // Nor names an instance of it.
    with_role(&cluster, Some(LAUNCH_ROLE));
    advance(&cluster, SignedDuration::from_mins(10));
    wake(&cluster);
    let launched = cluster.world.ec2.instances();
    let ids: Vec<_> = launched.iter().map(|record| record.instance.id.clone()).collect();
    assert!(!ids.is_empty());
    let role = LaunchRole { arn: other, cluster: ClusterName::parse("next").unwrap() };
    let by = block_on(cluster.world.ec2.launching(&role)).unwrap();
    let tags = Tags::from([("Name".to_owned(), "mine".to_owned())]);
    assert!(matches!(block_on(by.create_tags(&ids, &tags)), Err(Ec2Error::Unauthorized { .. })));
}

#[test]
fn an_entry_without_a_role_launches_by_the_functions_own_rights_or_says_what_to_do() {
    let earlier = cluster(1);
    with_role(&earlier, None);
    earlier.world.ec2.remove_launch_role(LAUNCH_ROLE);
    wake(&earlier);
    assert_eq!(asked_by(&earlier), [None], "the region's stack allows it");
    check_settled(&earlier, 1);

    let denied = cluster(1);
    with_role(&denied, None);
    wake(&denied);
    let told = failures(&denied);
    assert!(!told.is_empty());
    for message in &told {
        assert!(message.contains("names no launch role: update the cluster's stack"), "{message}");
    }
}

/// IAM compares tags of a template, and EC2 has none of one that it doesn't show yet.
#[test]
fn a_template_that_ec2_doesnt_show_yet_puts_launches_off_and_denies_no_class() {
    let cluster = cluster(1);
    cluster.world.ec2.hide_new_templates(SignedDuration::from_secs(20));
    wake(&cluster);
    assert_eq!((phases(&cluster, ClaimPhase::Planned), failures(&cluster).len()), (1, 0));
    for _ in 0..4 {
        advance(&cluster, SignedDuration::from_secs(10));
        wake(&cluster);
    }
    check_settled(&cluster, 1);
}

/// A template that is denied for longer than EC2 takes to show one is denied.
#[test]
fn a_template_that_stays_denied_fails_the_launch() {
    let cluster = cluster(1);
    cluster.world.ec2.hide_new_templates(SignedDuration::from_hours(1));
    for _ in 0..16 {
        wake(&cluster);
        advance(&cluster, SignedDuration::from_secs(10));
    }
    let told = failures(&cluster);
    assert!(told.iter().any(|message| message.contains("on resource `launch-template`")), "{told:?}");
}

#[test]
fn a_throttled_role_puts_launches_off() {
    let cluster = cluster(1);
    fault(
        &cluster,
        Call::AssumeRole,
        FaultEffect::Refused(Ec2Error::Throttled { action: "AssumeRole".to_owned() }),
    );
    wake(&cluster);
    assert_eq!((phases(&cluster, ClaimPhase::Planned), failures(&cluster).len()), (1, 0));
    advance(&cluster, SignedDuration::from_secs(10));
    wake(&cluster);
    check_settled(&cluster, 1);
}
