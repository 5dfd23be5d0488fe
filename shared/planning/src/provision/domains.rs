//! Questions about groups that a pool answers once: their classes, and the domains that their pods can have.
//!
//! Decides nothing about pods: equal ways and equal requests have equal answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::labels;
use tenon_domain::requirement::Requirements;
use tenon_domain::taint::tolerates_forbidding;

use super::dense::times_fit;
use super::existing::Rooms;
use super::needs::PodGroup;
use super::pool::{Pool, Type};
use super::topology::deal::DomainOffer;
use super::ways::Ways;

/// The least price of a pod by value of a label.
pub(crate) type DomainPrices = BTreeMap<Arc<str>, f64>;

/// What was found out for some group, by the numbers of its ways and its requests.
#[derive(Debug, Default)]
pub(crate) struct DomainAnswers {
    /// The classes of ways.
    classes: BTreeMap<usize, Vec<usize>>,
    /// The least worth of a pod, with its class.
    pub(crate) cheapest: BTreeMap<(usize, usize), Option<(f64, usize)>>,
    /// The domains of a label.
    domains: BTreeMap<(Arc<str>, usize, usize), Arc<DomainPrices>>,
}

/// The domains of a label that nodes with room, or new nodes, have for a group.
pub(crate) fn offers_of(
    rooms: &Rooms<'_>,
    pools: &mut [Pool<'_>],
    group: &PodGroup<'_>,
    key: &Arc<str>,
) -> BTreeMap<Arc<str>, DomainOffer> {
    let mut found: BTreeMap<Arc<str>, DomainOffer> = BTreeMap::new();
    for (domain, room) in rooms.room_by(key, group).into_iter().filter(|(_, room)| *room > 0) {
        let domain: Arc<str> = domain.into();
        let taints = vec![Vec::new()];
        found.insert(Arc::clone(&domain), DomainOffer { domain, price: None, room, most: u32::MAX, taints });
    }
    for pool in pools.iter_mut().filter(|pool| pool.is_ready()) {
        let taints = &pool.input.pool.template.taints;
        for (domain, price) in pool.domains(group, key).iter() {
            let offer = found.entry(Arc::clone(domain)).or_insert_with(|| DomainOffer {
                domain: Arc::clone(domain),
                price: None,
                room: 0,
                most: u32::MAX,
                taints: Vec::new(),
            });
            offer.price = Some(offer.price.map_or(*price, |known| known.min(*price)));
            if !offer.taints.contains(taints) {
                offer.taints.push(taints.clone());
            }
        }
    }
    found
}

impl Pool<'_> {
    /// The classes of ways to a new node.
    pub(crate) fn classes_of(&mut self, ways: &Ways) -> Vec<usize> {
        if let Some(known) = self.answers.classes.get(&ways.id) {
            return known.clone();
        }
        let found: Vec<usize> = ways.for_new_nodes.iter().filter_map(|asked| self.class_of(asked)).collect();
        self.answers.classes.insert(ways.id, found.clone());
        found
    }

    /// The classes of ways to a new node that fewer DaemonSets run on.
    pub(crate) fn classes_beside_daemons(&mut self, ways: &Ways) -> Vec<usize> {
        let asked: Vec<Requirements> =
            ways.for_new_nodes.iter().flat_map(|asked| self.beside_daemons(asked)).collect();
        asked.iter().filter_map(|asked| self.class_of(asked)).collect()
    }

    /// The values of a label that new nodes for a group can have, each with the least price of a pod.
    pub(crate) fn domains(&mut self, group: &PodGroup<'_>, key: &Arc<str>) -> Arc<DomainPrices> {
        let taints = &self.input.pool.template.taints;
        if tolerates_forbidding(taints, group.tolerations).is_err() {
            return Arc::default();
        }
        let question = (Arc::clone(key), group.alternatives.id, group.need_id);
        if let Some(known) = self.answers.domains.get(&question) {
            return Arc::clone(known);
        }
        let mut found = DomainPrices::new();
        for class in self.classes_of(&group.alternatives) {
            self.add_domains(class, &group.need, key, &mut found);
        }
        // A domain may have room only without the DaemonSets of others.
        for class in self.classes_beside_daemons(&group.alternatives) {
            self.add_domains(class, &group.need, key, &mut found);
        }
        let found = Arc::new(found);
        self.answers.domains.insert(question, Arc::clone(&found));
        found
    }

    fn add_domains(&self, class: usize, need: &[i64], key: &str, found: &mut DomainPrices) {
        let Some(class) = self.class(class) else { return };
        let mut add = |value: &str, worth: f64| match found.get_mut(value) {
            Some(least) => *least = least.min(worth),
            None => {
                found.insert(value.into(), worth);
            }
        };
        // By place the least price of a pod; labels of types are added one by one.
        let mut places: Vec<Option<f64>> = vec![None; self.places.len()];
        let available =
            self.types.iter().zip(class.rooms.iter()).zip(&class.prices).filter(|(_, price)| price.is_some());
        for ((one, room), _) in available {
            let pods = times_fit(need, &room.amounts);
            if pods == 0 {
                continue;
            }
            let allowed =
                one.offerings.iter().filter(|offering| class.allowed.get(offering.place) == Some(&true));
            match key {
                labels::ZONE | labels::ZONE_ID | labels::CAPACITY_TYPE => {
                    for offering in allowed {
                        let worth = per_pod(offering.price, pods);
                        let least = places.iter_mut().skip(offering.place).take(1);
                        least.for_each(|least| *least = Some(least.map_or(worth, |least| least.min(worth))));
                    }
                }
                _ => {
                    let Some(price) = allowed.map(|offering| offering.price).min() else { continue };
                    values(one, &class.merged, key).iter().for_each(|value| add(value, per_pod(price, pods)));
                }
            }
        }
        for (place, worth) in self.places.iter().zip(places) {
            let Some(worth) = worth else { continue };
            match key {
                labels::ZONE => add(place.zone.as_str(), worth),
                labels::ZONE_ID => add(place.zone_id.as_str(), worth),
                _ => add(place.capacity_type.as_str(), worth),
            }
        }
    }
}

/// The values that a node of a type can have of a label, if they can be listed.
fn values(one: &Type<'_>, merged: &Requirements, key: &str) -> BTreeSet<String> {
    let of_type = one.option.labels.get(key).filter(|label| !label.is_complement());
    let listed = of_type.or_else(|| merged.get(key).filter(|label| !label.is_complement()));
    listed
        .map(|label| label.values().iter().filter(|value| merged.allows(key, value)).cloned().collect())
        .unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "prices only rank domains here")]
fn per_pod(price: u64, pods: u32) -> f64 {
    price as f64 / f64::from(pods)
}
