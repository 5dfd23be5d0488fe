//! Judges each planned claim alone: every instance type and zone that it may still become holds its pods, and no limit
//! is exceeded. The neighbours' rules are [`crate::checker`]'s.
//!
//! It shares no code with the planner. Of DaemonSets it counts those that are sure to run on a node of the type in the
//! place.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Pod;
use tenon_domain::api::pod::{HostPort, NodeSelectorTerm, PodShape, PodVolume};
use tenon_domain::api::storage::{ClaimUsers, PersistentVolumeClaim};
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{PlannedClaim, PoolInput, ProvisionInput, ProvisionPlan, UsableOffering};

/// What is wrong with the plan's claims.
pub(crate) fn claim_faults(input: &ProvisionInput, plan: &ProvisionPlan) -> Vec<String> {
    let shapes: BTreeMap<&str, &PodShape> =
        input.pods.iter().map(|pod| (pod.uid.as_str(), &*pod.shape)).collect();
    let mut faults = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for claim in &plan.claims {
        let pool = input.pools.iter().find(|pool| pool.pool.name == claim.pool).unwrap();
        let pods: Vec<&PodShape> = claim.pods.iter().map(|pod| shapes[pod.uid.as_str()]).collect();
        for pod in &claim.pods {
            if !seen.insert(pod.uid.as_str()) {
                faults.push(format!("{}: a pod is on another claim, too", claim.name));
            }
        }
        faults.extend(room_faults(input, claim, pool, &pods));
        faults.extend(pods.iter().filter_map(|pod| place_fault(claim, pool, pod)));
        faults.extend(port_faults(claim, &pods));
        faults.extend(volume_faults(input, claim, pool, &pods));
    }
    faults.extend(input.pools.iter().flat_map(|pool| limit_faults(pool, plan)));
    faults.extend(node_volume_faults(input, plan));
    faults.extend(shared_claim_faults(input, plan));
    faults.extend(unbound_claim_faults(input, plan));
    faults
}

/// Claims of EBS that aren't bound, of pods that may come to several zones: the volume is only in the first one.
fn unbound_claim_faults(input: &ProvisionInput, plan: &ProvisionPlan) -> Vec<String> {
    let is_ebs = |claim: &&PersistentVolumeClaim| {
        let mut classes = input.storage.classes.iter();
        let class = classes.find(|class| Some(&class.meta.name) == claim.storage_class.as_ref());
        claim.volume.is_none() && class.is_some_and(|class| class.provisioner == "ebs.csi.aws.com")
    };
    let mut faults = Vec::new();
    for claim in input.storage.claims.iter().filter(is_ebs) {
        let named = PodVolume::Claim(claim.meta.name.clone());
        let uses =
            |pod: &&Pod| pod.shape.namespace == claim.meta.namespace && pod.shape.volumes.contains(&named);
        let users: BTreeSet<&str> = input.pods.iter().filter(uses).map(|pod| pod.uid.as_str()).collect();
        let mut zones = BTreeSet::new();
        let mut pods = 0;
        for of in &plan.claims {
            let here = of.pods.iter().filter(|pod| users.contains(pod.uid.as_str())).count();
            zones.extend(of.zones.iter().filter(|_| here > 0));
            pods += here;
        }
        if pods > 1 && zones.len() > 1 {
            faults.push(format!("{}: pods of one volume may be in several zones", claim.meta.name));
        }
    }
    faults
}

/// Claims for one pod at a time that a pod of the plan shares with another one, planned or running.
fn shared_claim_faults(input: &ProvisionInput, plan: &ProvisionPlan) -> Vec<String> {
    let uses = |pod: &PodShape, claim: &PersistentVolumeClaim| {
        let named = PodVolume::Claim(claim.meta.name.clone());
        pod.namespace == claim.meta.namespace && pod.volumes.contains(&named)
    };
    let on_claims = plan.claims.iter().flat_map(|claim| &claim.pods);
    let on_nodes = plan.placements.iter().map(|one| &one.pod);
    let planned: BTreeSet<&str> = on_claims.chain(on_nodes).map(|pod| pod.uid.as_str()).collect();
    let mut faults = Vec::new();
    for claim in input.storage.claims.iter().filter(|claim| claim.users == ClaimUsers::OnePod) {
        let placed = input.pods.iter().filter(|pod| planned.contains(pod.uid.as_str()));
        let placed = placed.filter(|pod| uses(&pod.shape, claim)).count();
        let running = input.nodes.iter().flat_map(|node| node.occupancy.shapes());
        let running = running.filter(|shape| uses(shape, claim)).count();
        if placed > 0 && placed + running > 1 {
            faults.push(format!("{}: a claim for one pod has several", claim.meta.name));
        }
    }
    faults
}

/// The distinct EBS volumes of pods. One that is made for a pod has the pod's place as its name.
fn ebs_volumes(input: &ProvisionInput, pods: &[&PodShape]) -> BTreeSet<String> {
    let class_is_ebs = |name: &Option<String>| {
        let class = input.storage.classes.iter().find(|class| Some(&class.meta.name) == name.as_ref());
        class.is_some_and(|class| class.provisioner == "ebs.csi.aws.com")
    };
    let mut found = BTreeSet::new();
    for (index, pod) in pods.iter().enumerate() {
        for volume in &pod.volumes {
            match volume {
                PodVolume::Ephemeral { volume, storage_class } if class_is_ebs(storage_class) => {
                    found.insert(format!("{index} {volume}"));
                }
                PodVolume::Ephemeral { .. } => {}
                PodVolume::Claim(name) => {
                    let claims = input.storage.claims.iter();
                    let mut claims = claims.filter(|one| one.meta.namespace == pod.namespace);
                    let claim = claims.find(|one| one.meta.name == *name).unwrap();
                    let bound = input.storage.volumes.iter();
                    let bound = bound.filter(|one| Some(&one.meta.name) == claim.volume.as_ref());
                    let by_volume = bound.map(|one| one.driver.as_deref() == Some("ebs.csi.aws.com")).next();
                    if by_volume.unwrap_or_else(|| class_is_ebs(&claim.storage_class)) {
                        found.insert(format!("{}/{name}", pod.namespace));
                    }
                }
            }
        }
    }
    found
}

fn volume_faults(
    input: &ProvisionInput,
    claim: &PlannedClaim,
    pool: &PoolInput,
    pods: &[&PodShape],
) -> Vec<String> {
    let wanted = ebs_volumes(input, pods).len();
    let few = types(claim, pool).filter(|one| one.ebs_volumes.is_some_and(|most| wanted > most as usize));
    few.map(|one| format!("{}: {} attaches fewer volumes", claim.name, one.facts.name)).collect()
}

/// Nodes that are there, and get pods with volumes, by their CSINodes.
fn node_volume_faults(input: &ProvisionInput, plan: &ProvisionPlan) -> Vec<String> {
    let mut faults = Vec::new();
    for node in &input.nodes {
        let limits = input.storage.nodes.iter().find(|one| one.meta.name == node.name);
        let Some(most) = limits.and_then(|one| one.drivers.get("ebs.csi.aws.com").copied().flatten()) else {
            continue;
        };
        let running: Vec<&PodShape> = node.occupancy.shapes().iter().map(|shape| &**shape).collect();
        let placed = plan.placements.iter().filter(|one| one.node == node.name);
        let placed = placed.map(|one| input.pods.iter().find(|pod| pod.uid == one.pod.uid).unwrap());
        let all: Vec<&PodShape> = running.iter().copied().chain(placed.map(|pod| &*pod.shape)).collect();
        let (before, after) = (ebs_volumes(input, &running).len(), ebs_volumes(input, &all).len());
        if after > before && after > most as usize {
            faults.push(format!("{}: a node attaches fewer volumes", node.name));
        }
    }
    faults
}

fn types<'a>(claim: &'a PlannedClaim, pool: &'a PoolInput) -> impl Iterator<Item = &'a InstanceTypeOption> {
    pool.types.iter().filter(|one| claim.instance_types.iter().any(|name| *name == one.facts.name))
}

fn room_faults(
    input: &ProvisionInput,
    claim: &PlannedClaim,
    pool: &PoolInput,
    pods: &[&PodShape],
) -> Vec<String> {
    let mut wanted = ResourceList::sum(pods.iter().map(|pod| &pod.requests));
    wanted.insert(ResourceName::PODS, Quantity::from_integer(i64::try_from(pods.len()).unwrap()));
    let mut faults = Vec::new();
    for one in types(claim, pool) {
        let name = &one.facts.name;
        if !wanted.fits(&one.allocatable) {
            faults.push(format!("{}: {name} doesn't hold its pods", claim.name));
        }
        for place in claim.offerings.iter().filter(|offering| offering.instance_type == *name) {
            let sets = input.daemon_sets.iter().filter(|set| runs_there(&set.template, claim, one, place));
            let all = ResourceList::sum(sets.map(|set| &set.template.requests)).plus(&wanted);
            if !all.fits(&one.allocatable) {
                faults.push(format!("{}: {name} has no room beside DaemonSets", claim.name));
            }
        }
    }
    faults
}

/// Whether a DaemonSet's pod is sure to run on a node of a type in a place.
fn runs_there(
    shape: &PodShape,
    claim: &PlannedClaim,
    one: &InstanceTypeOption,
    place: &UsableOffering,
) -> bool {
    let value = |key: &str| match key {
        labels::ZONE => Some(place.zone.as_str()),
        labels::ZONE_ID => Some(place.zone_id.as_str()),
        labels::CAPACITY_TYPE => Some(place.capacity_type.as_str()),
        _ => {
            let of_type = || one.labels.get(key).and_then(|label| label.single_value());
            claim.labels.get(key).map(String::as_str).or_else(of_type)
        }
    };
    let is_absent = |key: &str| one.labels.get(key).is_none_or(|label| label.values().is_empty());
    let meets = |asked: &Requirement| match value(asked.key()) {
        Some(value) => asked.has(value),
        None => asked.key() == labels::HOSTNAME || (asked.accepts_absence() && is_absent(asked.key())),
    };
    let keeps_out = |taint: &Taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !shape.tolerations.iter().any(|one| one.tolerates(taint))
    };
    let selected =
        |(key, wanted): (&String, &String)| key == labels::HOSTNAME || value(key) == Some(wanted.as_str());
    let terms = &shape.required_node_affinity;
    let says = |term: &NodeSelectorTerm| !(term.match_expressions.is_empty() && term.match_fields.is_empty());
    !claim.taints.iter().any(keeps_out)
        && shape.node_selector.iter().all(selected)
        && (terms.is_empty()
            || terms.iter().any(|term| says(term) && term.match_expressions.iter().all(meets)))
}

/// Why a pod may not run wherever the claim may still come to be.
fn place_fault(claim: &PlannedClaim, pool: &PoolInput, pod: &PodShape) -> Option<String> {
    let forbids = |effect: TaintEffect| effect != TaintEffect::PreferNoSchedule;
    let tolerated = |taint| pod.tolerations.iter().any(|one| one.tolerates(taint));
    if claim.taints.iter().any(|taint| forbids(taint.effect) && !tolerated(taint)) {
        return Some(format!("{}: a pod doesn't tolerate its taints", claim.name));
    }
    let missing = pod.node_selector.iter().find(|(key, value)| !is_certain(claim, pool, key, value))?;
    Some(format!("{}: {} isn't certain for a node selector", claim.name, missing.0))
}

fn is_certain(claim: &PlannedClaim, pool: &PoolInput, key: &str, value: &str) -> bool {
    if key == labels::ZONE {
        return claim.zones.iter().all(|zone| zone.as_str() == value);
    }
    if key == labels::CAPACITY_TYPE {
        return claim.capacity_types.iter().all(|one| one.as_str() == value);
    }
    if let Some(label) = claim.labels.get(key) {
        return label == value;
    }
    types(claim, pool).all(|one| one.labels.get(key).and_then(|label| label.single_value()) == Some(value))
}

fn port_faults(claim: &PlannedClaim, pods: &[&PodShape]) -> Vec<String> {
    let mut taken: BTreeSet<&HostPort> = BTreeSet::new();
    let twice = pods.iter().flat_map(|pod| &pod.host_ports).filter(|port| !taken.insert(port));
    twice.map(|port| format!("{}: {port:?} is taken twice", claim.name)).collect()
}

/// Each claim counts as its largest type.
fn limit_faults(pool: &PoolInput, plan: &ProvisionPlan) -> Vec<String> {
    let claims: Vec<&PlannedClaim> =
        plan.claims.iter().filter(|claim| claim.pool == pool.pool.name).collect();
    let mut faults = Vec::new();
    for (name, limit) in pool.pool.limits.iter() {
        let largest = |claim: &&PlannedClaim| match name {
            name if *name == ResourceName::NODES => Quantity::from_integer(1).nanos(),
            name => types(claim, pool).map(|one| one.capacity.get(name).nanos()).max().unwrap_or(0),
        };
        let used: i128 = pool.usage.get(name).nanos() + claims.iter().map(largest).sum::<i128>();
        if !claims.is_empty() && used > limit.nanos() {
            faults.push(format!("{}: more {name} than its limit", pool.pool.name));
        }
    }
    if pool.nodes_left.is_some_and(|left| claims.len() > left as usize) {
        faults.push(format!("{}: more nodes than the registry allows", pool.pool.name));
    }
    let vcpus = |claim: &&PlannedClaim| types(claim, pool).map(|one| one.facts.vcpus).max().unwrap_or(0);
    if pool.vcpus_left.is_some_and(|left| claims.iter().map(vcpus).sum::<u32>() > left) {
        faults.push(format!("{}: more vCPUs than the registry allows", pool.pool.name));
    }
    faults
}
