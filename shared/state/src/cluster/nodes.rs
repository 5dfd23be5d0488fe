//! Room for pods on nodes, and on claims that will become nodes.
//!
//! Decides the labels, taints and capacity of a node whose kubelet hasn't reported all of them. Invariant: a leaving
//! claim has no room.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::{Node, Pod};
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::id::{ClaimName, NodePoolName};
use tenon_domain::labels;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::quantity::Quantity;
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, merge_taints};
use tenon_planning::provision::{ExistingNode, NodeKind, Occupancy};

use super::ObservedCluster;

impl<'a> ObservedCluster<'a> {
    pub(super) fn nodes(&self, leaving: &BTreeSet<ClaimName>) -> Vec<ExistingNode> {
        let counted = self.counted_by_claim();
        let mut nodes = Vec::new();
        let mut joined: BTreeSet<&ClaimName> = BTreeSet::new();
        for node in &self.snapshot.nodes {
            let instance = node.provider_id.as_ref().map(|id| &id.instance);
            let claim = instance.and_then(|instance| self.by_instance.get(instance).copied());
            joined.extend(claim.map(|claim| &claim.name));
            let stays =
                claim.is_none_or(|claim| claim.phase().offers_room() && !leaving.contains(&claim.name));
            // A cordoned node takes no pods, but other pods' rules count those that it has.
            if stays && node.meta.deleted_at.is_none() {
                nodes.push(self.joined(node, claim, &counted));
            }
        }
        let in_flight = |claim: &&Claim| {
            claim.phase() == ClaimPhase::Launched
                && !joined.contains(&claim.name)
                && !leaving.contains(&claim.name)
        };
        nodes.extend(
            self.view.claims.values().filter(in_flight).filter_map(|claim| self.in_flight(claim, &counted)),
        );
        nodes
    }

    /// The claims whose Nodes may not take pods yet, by the names that their nodes have in a plan's input.
    #[must_use]
    pub fn on_their_way(&self) -> BTreeMap<&'a str, &'a Claim> {
        let of_node = |node: &'a Node| {
            let claim = *self.by_instance.get(&node.provider_id.as_ref()?.instance)?;
            Some((node.name.as_str(), claim))
        };
        let joined: Vec<(&'a str, &'a Claim)> = self.snapshot.nodes.iter().filter_map(of_node).collect();
        let names: BTreeSet<&ClaimName> = joined.iter().map(|(_, claim)| &claim.name).collect();
        let others = self.view.claims.values().filter(|claim| !names.contains(&claim.name));
        let others = others.map(|claim| (claim.name.as_str(), claim));
        let starts = |(_, claim): &(&str, &Claim)| {
            matches!(claim.phase(), ClaimPhase::Launched | ClaimPhase::Registered)
        };
        joined.iter().copied().chain(others).filter(starts).collect()
    }

    fn joined(
        &self,
        node: &Node,
        claim: Option<&Claim>,
        counted: &BTreeMap<&ClaimName, Vec<&Pod>>,
    ) -> ExistingNode {
        let kind = match claim.map(Claim::phase) {
            None | Some(ClaimPhase::Initialized) => NodeKind::Initialized,
            Some(_) => NodeKind::Starting,
        };
        let startup =
            claim.and_then(|claim| self.pool(claim)).map_or(&[][..], |pool| &pool.template.startup_taints);
        let goes_away = |taint: &Taint| {
            kind == NodeKind::Starting
                && (taint.is_ephemeral() || startup.iter().any(|own| own.matches(taint)))
        };
        let mut allocatable = node.allocatable.clone();
        if let (NodeKind::Starting, Some(option)) = (kind, claim.and_then(|claim| self.option(claim))) {
            // Resources that a starting kubelet doesn't report yet.
            let of_claim = claim.map_or_else(ResourceList::new, |claim| self.allocatable(claim, option));
            for (name, quantity) in of_claim.iter() {
                if allocatable.get(name).is_zero() {
                    allocatable.insert(name.clone(), quantity);
                }
            }
        }
        // Until the agent registers the Node, it lacks some of its labels, and on a Custom image its taints.
        let joining = claim.filter(|claim| claim.phase() == ClaimPhase::Launched);
        let mut node_labels = joining.and_then(|claim| self.planned_labels(claim)).unwrap_or_default();
        node_labels.extend(node.meta.labels.clone());
        let planned =
            joining.and_then(|claim| self.pool(claim)).map_or(&[][..], |pool| &pool.template.taints);
        let stay: Vec<Taint> = node.all_taints().into_iter().filter(|taint| !goes_away(taint)).collect();
        let here = self.bound.get(&node.name).map_or(&[][..], Vec::as_slice);
        let mut existing = ExistingNode {
            name: node.name.to_string(),
            kind,
            labels: node_labels,
            taints: merge_taints(&stay, planned),
            allocatable,
            occupancy: Occupancy::of(here.iter().copied()),
            pool: node.meta.labels.get(labels::NODEPOOL).and_then(|name| NodePoolName::parse(name).ok()),
        };
        let counted = claim.and_then(|claim| counted.get(&claim.name));
        existing.occupancy.extend(counted.into_iter().flatten().copied());
        existing
    }

    /// The allocatable of a type as the claim's launch has it: with EFA interfaces only if its pods requested some, or
    /// its class names them.
    fn allocatable(&self, claim: &Claim, option: &InstanceTypeOption) -> ResourceList {
        let class = self.pool(claim).and_then(|pool| self.class(pool));
        match class.map(|class| class.settings.network_interfaces.as_slice()) {
            None | Some([]) => without_unrequested_efa(option.allocatable.clone(), &claim.requests),
            Some(_) => option.allocatable.clone(),
        }
    }

    /// The labels that the claim's Node gets at its registration.
    fn planned_labels(&self, claim: &Claim) -> Option<BTreeMap<String, String>> {
        let (pool, option, instance) = (self.pool(claim)?, self.option(claim)?, claim.state.instance()?);
        let mut node_labels = option.labels.labels();
        node_labels.extend(pool.template.labels.clone());
        node_labels.extend(claim.labels.clone());
        let offering = option.offerings.iter().find(|offering| offering.zone == instance.zone);
        node_labels.extend(
            [
                (labels::NODEPOOL, claim.pool.as_str()),
                (labels::EC2NODECLASS, claim.class.as_str()),
                (labels::CAPACITY_TYPE, instance.capacity_type.as_str()),
                (labels::INSTANCE_TENANCY, claim.tenancy.as_str()),
                (labels::ZONE, instance.zone.as_str()),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let reserved = instance.reservation.iter().flat_map(LaunchedInto::labels);
        node_labels.extend(reserved.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let placed = instance.placement.iter().flat_map(LaunchPlacement::labels);
        node_labels.extend(placed.map(|(key, value)| (key.to_owned(), value)));
        node_labels.extend(offering.map(|found| (labels::ZONE_ID.to_owned(), found.zone_id.to_string())));
        Some(node_labels)
    }

    fn in_flight(&self, claim: &Claim, counted: &BTreeMap<&ClaimName, Vec<&Pod>>) -> Option<ExistingNode> {
        let (pool, option) = (self.pool(claim)?, self.option(claim)?);
        Some(ExistingNode {
            name: claim.name.to_string(),
            kind: NodeKind::InFlight,
            labels: self.planned_labels(claim)?,
            taints: pool.template.taints.clone(),
            allocatable: self.allocatable(claim, option),
            occupancy: Occupancy::of(counted.get(&claim.name).into_iter().flatten().copied()),
            pool: Some(claim.pool.clone()),
        })
    }

    fn counted_by_claim(&self) -> BTreeMap<&'a ClaimName, Vec<&'a Pod>> {
        let mut by_claim: BTreeMap<&ClaimName, Vec<&Pod>> = BTreeMap::new();
        for (uid, claim) in &self.counted {
            by_claim.entry(claim).or_default().extend(self.unbound.get(uid).copied());
        }
        for (claim, pods) in &self.moving {
            by_claim.entry(claim).or_default().extend(pods);
        }
        by_claim
    }
}

/// A launch has EFA interfaces only if its pods request some.
fn without_unrequested_efa(mut allocatable: ResourceList, requests: &ResourceList) -> ResourceList {
    if requests.get(&ResourceName::EFA).is_zero() && allocatable.contains(&ResourceName::EFA) {
        allocatable.insert(ResourceName::EFA, Quantity::ZERO);
    }
    allocatable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starting_node_offers_efa_only_where_it_was_requested() {
        let list = |efa: i64| ResourceList::new().with(ResourceName::EFA, Quantity::from_integer(efa));
        let left = |requests: &ResourceList| without_unrequested_efa(list(4), requests);
        assert_eq!(left(&list(1)), list(4));
        assert!(left(&ResourceList::new()).get(&ResourceName::EFA).is_zero());
        assert_eq!(without_unrequested_efa(ResourceList::new(), &ResourceList::new()), ResourceList::new());
    }
}
