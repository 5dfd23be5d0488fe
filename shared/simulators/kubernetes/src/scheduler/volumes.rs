//! The filters on a pod's volumes: VolumeBinding and VolumeZone, as far as there are objects.
//!
//! Decides by bound PersistentVolumes and by StorageClasses that wait for their first consumer. The claim of an
//! ephemeral volume that doesn't exist counts as its template: no controller makes it here.

use serde_json::Value;
use tenon_domain::labels;

use super::super::selector::matches_node;
use super::super::store::ObjectStore;
use super::filter::Infeasible;
use super::info::NodeInfo;
use tenon_snapshot::object::{self, Kind, ObjectKey, list, text};

/// Between the values of a volume's zone label.
const BETWEEN_ZONES: &str = "__";

/// What the volumes of a pod ask of its node.
pub(super) struct VolumeNeeds<'a> {
    pub(super) store: &'a ObjectStore,
    /// Terms of a node affinity for each bound volume.
    bound: Vec<Vec<Value>>,
    /// The allowed topologies for each volume that will be made, as node selector terms.
    unbound: Vec<Vec<Value>>,
    /// Labels of bound volumes: key, values.
    zones: Vec<(&'static str, Vec<String>)>,
}

impl<'a> VolumeNeeds<'a> {
    pub(super) fn of(store: &'a ObjectStore, pod: &Value) -> Result<Self, Infeasible> {
        let mut needs = Self { store, bound: Vec::new(), unbound: Vec::new(), zones: Vec::new() };
        for volume in list(pod, "/spec/volumes") {
            let (name, template) = match text(volume, "/persistentVolumeClaim/claimName") {
                Some(name) => (name.to_owned(), None),
                None => {
                    let Some(template) = object::at(volume, "/ephemeral/volumeClaimTemplate") else {
                        continue;
                    };
                    (
                        format!("{}-{}", object::name(pod), text(volume, "/name").unwrap_or_default()),
                        Some(template),
                    )
                }
            };
            let key = ObjectKey::new(Kind::PersistentVolumeClaim, object::namespace(pod), name);
            match (store.get(&key), template) {
                (Some(claim), _) => needs.add(store, claim)?,
                (None, Some(template)) => needs.add_unbound(store, template)?,
                (None, None) => return Err(Infeasible::VolumeClaimMissing),
            }
        }
        Ok(needs)
    }

    fn add(&mut self, store: &ObjectStore, claim: &Value) -> Result<(), Infeasible> {
        if object::deleted_at(claim).is_some() {
            return Err(Infeasible::VolumeClaimDeleted);
        }
        let Some(name) = text(claim, "/spec/volumeName") else { return self.add_unbound(store, claim) };
        let Some(volume) = store.get(&ObjectKey::new(Kind::PersistentVolume, "", name)) else {
            return Err(Infeasible::VolumeMissing);
        };
        let required = list(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
        if !required.is_empty() {
            self.bound.push(required.to_vec());
        }
        for key in [labels::ZONE, labels::REGION] {
            let value = object::texts(volume, "/metadata/labels").find(|(label, _)| *label == key);
            let values = value.map(|(_, value)| value.split(BETWEEN_ZONES).map(str::to_owned).collect());
            self.zones.extend(values.map(|values| (key, values)));
        }
        Ok(())
    }

    fn add_unbound(&mut self, store: &ObjectStore, claim: &Value) -> Result<(), Infeasible> {
        let class = text(claim, "/spec/storageClassName").unwrap_or_default();
        let class = store.get(&ObjectKey::new(Kind::StorageClass, "", class));
        let Some(class) = class else { return Err(Infeasible::VolumeUnbound) };
        if text(class, "/volumeBindingMode") != Some("WaitForFirstConsumer") {
            return Err(Infeasible::VolumeUnbound);
        }
        let topologies = list(class, "/allowedTopologies").iter().map(|term| {
            let expressions = list(term, "/matchLabelExpressions").iter().map(|one| {
                let field = |name: &str| one.get(name).cloned().unwrap_or(Value::Null);
                serde_json::json!({"key": field("key"), "operator": "In", "values": field("values")})
            });
            serde_json::json!({"matchExpressions": expressions.collect::<Vec<_>>()})
        });
        let topologies: Vec<Value> = topologies.collect();
        if !topologies.is_empty() {
            self.unbound.push(topologies);
        }
        Ok(())
    }

    /// VolumeBinding tells both of its reasons.
    pub(super) fn check(&self, node: &NodeInfo) -> Result<(), Vec<Infeasible>> {
        let matches = |terms: &Vec<Value>| matches_node(terms, &node.labels, &node.name);
        let fits = [
            (Infeasible::VolumeNodeAffinity, self.bound.iter().all(matches)),
            (Infeasible::VolumeBinding, self.unbound.iter().all(matches)),
        ];
        let conflicts: Vec<Infeasible> =
            fits.into_iter().filter_map(|(reason, fits)| (!fits).then_some(reason)).collect();
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        // A node without such labels is no zonal node.
        let zonal = [labels::ZONE, labels::REGION].iter().any(|key| node.label(key).is_some());
        let inside = |(key, values): &(&str, Vec<String>)| {
            node.label(key).is_some_and(|value| values.iter().any(|one| one == value))
        };
        if zonal && !self.zones.iter().all(inside) { Err(vec![Infeasible::VolumeZone]) } else { Ok(()) }
    }
}
