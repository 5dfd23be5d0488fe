//! Claims whose launch somebody took out of the table: their pods get one more plan, and not one at each look.

use tenon_domain::claim::{Claim, ClaimState};
use tenon_table::content_commit;

use super::*;

/// Takes all launches out of the table.
fn lose_launches(cluster: &Cluster) {
    for launch in cluster.launches().unwrap() {
        cluster.put(Write::Delete { key: keys::launch(&cluster.name, &launch.id) }).unwrap();
    }
}

/// What is told of claims, by reason.
fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    let records = cluster.world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#claim#"));
    let records =
        records.map(|(key, item)| from_item::<tenon_domain::journal::JournalRecord>(&key, &item).unwrap());
    let of_reason = |record: &tenon_domain::journal::JournalRecord| {
        record.details.get("reason").is_some_and(|found| found == reason)
    };
    records.filter(of_reason).map(|record| record.message).collect()
}

#[test]
fn a_planned_claim_without_its_launch_fails_and_its_pods_are_planned_once_more() {
    let cluster = cluster(1);
    let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    fault(&cluster, Call::CreateFleet, FaultEffect::Refused(throttled));
    wake(&cluster);
    assert_eq!(phases(&cluster, ClaimPhase::Planned), 1);
    lose_launches(&cluster);
    advance(&cluster, SignedDuration::from_secs(6));
    let _ = cluster.world.signals.take();
    wake(&cluster);
    let claims =
        |cluster: &Cluster| (phases(cluster, ClaimPhase::LaunchFailed), cluster.claims().unwrap().len());
    assert_eq!(claims(&cluster), (1, 1), "it fails, and a hold begins");
    let messages = told(&cluster, "LaunchLost");
    assert!(messages[0].starts_with("NodeClaim `default-"), "{messages:?}");
    let failed = cluster.world.signals.take_events();
    assert!(failed.iter().any(|(kind, _)| kind == "NodeClaim Launch Failed"), "{failed:?}");
    advance(&cluster, SignedDuration::from_secs(50));
    wake(&cluster);
    assert_eq!(claims(&cluster), (1, 1), "it still holds");
    for _ in 0..3 {
        advance(&cluster, SignedDuration::from_secs(20));
        wake(&cluster);
    }
    check_settled(&cluster, 1);
    assert_eq!(claims(&cluster), (1, 2), "one more plan");
}

/// Nobody knows which pods the node is for.
#[test]
fn no_node_is_planned_while_a_claim_on_its_way_has_lost_its_launch() {
    let mut cluster = cluster(2);
    wake(&cluster);
    let launched = phases(&cluster, ClaimPhase::Launched);
    lose_launches(&cluster);
    for n in 0..5 {
        cluster
            .objects
            .pods
            .push(Arc::new(SeenPod::read(&pod(&format!("late-{n}"), "1500m", None)).unwrap()));
        advance(&cluster, SignedDuration::from_secs(20));
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), launched);
    }
    let messages = told(&cluster, "LaunchLost");
    assert!(
        messages.iter().any(|message| message.starts_with("planning no nodes because of")),
        "{messages:?}"
    );
    // Once the claims ended, all pods are planned.
    let now = cluster.world.clock.now();
    for claim in cluster.claims().unwrap() {
        let instance = claim.state.instance().cloned();
        let reason = tenon_domain::claim::RemovalReason::Deleted;
        let ended = Claim {
            state: ClaimState::Terminated { instance, node: None, reason, at: now },
            revision: claim.revision + 1,
            ..claim
        };
        let writes = vec![
            set(keys::claim(&cluster.name, &ended.name), &ended),
            tenon_table::items::add_step(&cluster.name),
        ];
        block_on(cluster.world.table.commit(&content_commit(Vec::new(), writes))).unwrap();
    }
    wake(&cluster);
    let counted: usize =
        cluster.launches().unwrap().iter().flat_map(|l| &l.claims).map(|c| c.pods.len()).sum();
    assert_eq!(counted, 7);
}

/// As if the table lost each launch before it is answered.
#[test]
fn a_table_that_loses_every_launch_is_tried_ever_more_rarely() {
    let cluster = cluster(1);
    for _ in 0..360 {
        let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
        fault(&cluster, Call::CreateFleet, FaultEffect::Refused(throttled));
        wake(&cluster);
        lose_launches(&cluster);
        advance(&cluster, SignedDuration::from_secs(10));
    }
    let claims = cluster.claims().unwrap().len();
    assert!((4..=9).contains(&claims), "{claims} claims in an hour");
}
