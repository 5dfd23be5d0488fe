//! The whole line: the functions' results for the same cluster on each server.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::SignedDuration;
use tenon_domain::claim::ClaimPhase;
use tenon_ec2::Ec2;
use tenon_ec2::port::InstanceState;

use super::pages;
use crate::line::Line;
use crate::server::Server;

/// A Node that never joins is given up after this.
const REGISTRATION: SignedDuration = SignedDuration::from_mins(16);
/// Longer than an instance takes from one state to the next.
const A_WHILE: SignedDuration = SignedDuration::from_mins(2);

fn phases<S: Server>(line: &Line<'_, S>) -> BTreeMap<ClaimPhase, usize> {
    let mut found = BTreeMap::new();
    for claim in line.claims() {
        *found.entry(claim.phase()).or_default() += 1;
    }
    found
}

/// From an empty table to a catalogue, a class, claims and their instances; and when no Node joins, back.
pub async fn the_line_launches_for_pods_and_takes_back_what_never_joins<S: Server>(server: &S) {
    let mut line = Line::new(server).await;
    line.sweep().await;
    let types = pages(|page| server.ec2().describe_instance_types(page)).await.into_iter().flatten();
    let types = types.filter(|info| info.is_hvm()).count();
    assert_eq!(line.types(), types);
    let class = line.class();
    assert!(class.launchable(), "{:?}", class.conditions);
    let (resolved, others) = line.images();
    let available = [server.world().image(), server.world().arm_image.clone()].map(|id| id.to_string());
    assert_eq!(
        resolved,
        BTreeSet::from(available),
        "a class takes what is available, and none of {others:?}"
    );
    assert_eq!((line.claims().len(), line.instances().await.len()), (0, 0));
    let said = line.announced();
    assert!(said.is_superset(&set(&["Catalog Refreshed", "Image Available"])), "{said:?}");

    line.add_pods(3, "1500m").await;
    line.sweep().await;
    // Of plans with one price, the one with fewer nodes.
    assert_eq!(phases(&line), BTreeMap::from([(ClaimPhase::Launched, 2)]));
    // The first launch may come before the dry run.
    let said = line.announced();
    assert!(said.contains("NodeClaim Launched"), "{said:?}");
    line.pass(A_WHILE).await;
    let both = |state| ["c5.large", "c5.xlarge"].map(|of| ((of.to_owned(), state), 1));
    assert_eq!(line.instances().await, BTreeMap::from(both(InstanceState::Running)));

    // The pods went, and no Node joined.
    line.add_pods(0, "0").await;
    line.pass(REGISTRATION).await;
    line.sweep().await;
    // What the instances showed of the image is written before their claims go.
    line.pass(A_WHILE).await;
    line.sweep().await;
    line.pass(A_WHILE).await;
    line.sweep().await;
    assert_eq!(phases(&line), BTreeMap::from([(ClaimPhase::Terminated, 2)]));
    assert_eq!(line.instances().await, BTreeMap::from(both(InstanceState::Terminated)));
}

/// The whole catalogue through the adapter, twice: unchanged parts only get a new time.
pub async fn a_second_refresh_of_the_catalogue_writes_only_when_it_was<S: Server>(server: &S) {
    let line = Line::new(server).await;
    let first = line.refresh_catalogue().await;
    let second = line.refresh_catalogue().await;
    println!("writes of the table: {first:?} for the first refresh, {second:?} for the second");
    assert!(first.calls > line.types() as u64, "{first:?}");
    assert_eq!(second.calls, 4, "a date for each part: {second:?}");
    assert!(second.units <= 2 * second.calls, "{second:?}");
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
