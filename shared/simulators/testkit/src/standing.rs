//! A region's state, in lines that don't depend on its history.
//!
//! Decides what is state and what is history: names, ids of instances, times and revisions are history, their
//! subjects are state.

use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::ClusterName;
use tenon_ec2::port::InstanceState;
use tenon_region::engine::SimulatedRegion;
use tenon_table::items::{self, CatalogMeta, keys};

/// The lines: unfinished work, pods, claims, nodes, instances, classes and the catalogue's parts.
pub(crate) fn standing(region: &SimulatedRegion, cluster: &ClusterName) -> Vec<String> {
    let mut lines: Vec<String> =
        region.unsettled().0.into_iter().map(|left| format!("not settled: {left}")).collect();
    let pods = region.pod_counts(cluster);
    lines.push(format!("pods: {} running, {} pending", pods.running, pods.pending));
    lines.extend(sorted(claims(region, cluster)));
    let nodes = region.nodes(cluster).into_iter().map(|node| {
        format!("node {} {} {}: {} pods", node.instance_type, node.zone, node.capacity_type, node.pods)
    });
    lines.extend(sorted(nodes.collect()));
    let instances = region.twin().instances();
    let running = instances.iter().filter(|record| record.instance.state == InstanceState::Running).count();
    lines.push(format!("instances: {running} running"));
    lines.extend(region.classes(cluster).iter().flat_map(class));
    lines.extend(catalog(region));
    lines
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

fn claims(region: &SimulatedRegion, cluster: &ClusterName) -> Vec<String> {
    let claims = region.claims(cluster);
    let open = claims.iter().filter(|claim| !claim.phase().is_final());
    open.map(|claim| {
        let instance = claim.state.instance().map(|instance| {
            let capacity_type = instance.capacity_type.as_str();
            format!("{} {} {capacity_type}", instance.instance_type, instance.zone)
        });
        format!("claim of {} is {}: {}", claim.pool, claim.phase(), instance.unwrap_or_default())
    })
    .collect()
}

fn class(class: &ClassStatus) -> Vec<String> {
    let conditions = class.conditions.iter().map(|condition| {
        let (which, status) = (condition.condition.as_str(), condition.status.as_str());
        format!("class {}: {which} is {status} ({})", class.name, condition.reason_text())
    });
    let ids = |ids: Vec<&str>| ids.join(" ");
    let mut lines: Vec<String> = conditions.collect();
    lines.push(format!(
        "class {}: generation {}, subnets {}, security groups {}, images {}",
        class.name,
        class.generation,
        ids(sorted_ids(class.subnets.iter().map(|subnet| subnet.id.as_str()))),
        ids(class.security_groups.iter().map(|group| group.id.as_str()).collect()),
        ids(class.images.iter().map(|image| image.id.as_str()).collect()),
    ));
    lines
}

/// Those with the most free addresses come first, which changes with every node.
fn sorted_ids<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids
}

fn catalog(region: &SimulatedRegion) -> Vec<String> {
    let key = keys::catalog(&region.installation().region);
    let item = region.table().peek(&key);
    let Some(meta) = item.and_then(|item| items::from_item::<CatalogMeta>(&key, &item).ok()) else {
        return vec!["catalogue: nothing".to_owned()];
    };
    let part = |(part, meta): (_, &items::PartMeta)| {
        // The last refresh's error is left out: the next refresh clears it.
        format!("catalogue: {part}: {} entries, digest {}", meta.count, meta.digest)
    };
    meta.parts.iter().map(|(name, meta)| part((name, meta))).collect()
}
