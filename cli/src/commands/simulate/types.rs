//! The instance types of planned pools, as nodes of their classes.
//!
//! Decides which classes share them: those that differ in nothing that they are made from. The types of one class take
//! many megabytes, and most classes of a cluster differ in what no plan asks about, such as tags and roles.
//!
//! Invariant: shared types equal those that would be compiled for the class alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::Timestamp;
use tenon_domain::catalog::{ClassNodes, Exhaustion, InstanceTypeOption, NodeSettings, Places};
use tenon_domain::id::Zone;
use tenon_domain::manifest::StatedReservation;
use tenon_domain::requirement::Requirements;
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::unavailable::Marks;

use super::SchedulingSettings;
use super::reservations::ReservingClass;
use crate::catalogue::RegionCatalog;
use crate::errors::Failure;

/// The types of the classes whose pools are planned.
pub(super) struct SimulatedTypes<'a> {
    catalog: &'a RegionCatalog,
    settings: &'a SchedulingSettings,
    compiled: Vec<(SharedTypesKey<'a>, Arc<Vec<InstanceTypeOption>>)>,
}

/// All of a class that its types are made from.
#[derive(PartialEq)]
struct SharedTypesKey<'a> {
    settings: &'a NodeSettings,
    /// The zones of its subnets; none where it doesn't state them.
    zones: BTreeSet<&'a Zone>,
    /// What its images require of types; none where its status has no images.
    images: &'a [Requirements],
    /// None behind the closed gate.
    reservations: &'a [StatedReservation],
}

impl<'a> SimulatedTypes<'a> {
    /// No class's yet.
    pub(super) const fn new(catalog: &'a RegionCatalog, settings: &'a SchedulingSettings) -> Self {
        Self { catalog, settings, compiled: Vec::new() }
    }

    /// The types as nodes of a class would be.
    ///
    /// # Errors [`Failure`] for a class whose subnets aren't in the region.
    pub(super) fn of_class(
        &mut self,
        of: ReservingClass<'a>,
    ) -> Result<Arc<Vec<InstanceTypeOption>>, Failure> {
        let right = ReservedCapacity::behind(&self.settings.gates);
        let from = SharedTypesKey {
            settings: &of.class.settings,
            images: of.images,
            zones: of.class.status_subnets.iter().map(|subnet| &subnet.zone).collect(),
            reservations: if right.is_some() { of.stated } else { &[] },
        };
        if let Some((_, known)) = self.compiled.iter().find(|(known, _)| *known == from) {
            return Ok(Arc::clone(known));
        }
        let types = Arc::new(self.compile(of, right)?);
        self.compiled.push((from, Arc::clone(&types)));
        Ok(types)
    }

    fn compile(
        &self,
        of: ReservingClass<'_>,
        right: Option<ReservedCapacity>,
    ) -> Result<Vec<InstanceTypeOption>, Failure> {
        let subnets = self.catalog.subnets_of(of.class)?;
        let places = subnets.as_deref().map_or(Places::AllZones, Places::Subnets);
        let nodes = ClassNodes { settings: &of.class.settings, places };
        let marks = Marks::default();
        let exhaustion = Exhaustion { marks: &marks, requests: &[], now: Timestamp::UNIX_EPOCH };
        let view = self.catalog.view()?;
        let mut options = view.options(nodes.settings, places, exhaustion);
        options.retain(|option| of.boots(option));
        if let Some(right) = right {
            of.offer(right, &view, nodes, &mut options);
        }
        let allowed = &self.settings.allowed;
        let barred = options.iter_mut().filter(|option| !allowed.allows_type(&option.facts.name));
        barred.for_each(InstanceTypeOption::disallow_family);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use tenon_domain::catalog::Availability;
    use tenon_domain::manifest::{Manifests, read_files};
    use tenon_domain::resources::ResourceName;

    use super::*;
    use crate::catalogue::TypesScope;

    const ROLE: &str = "role: nodes, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-0a}], \
                        securityGroupSelectorTerms: [{id: sg-1}]";

    fn class(name: &str, spec: &str, zone: &str) -> String {
        format!(
            "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: {name}}}\nspec: {{{ROLE}{spec}}}\n\
             status: {{subnets: [{{id: subnet-{name}, zone: {zone}}}]}}\n"
        )
    }

    fn read(text: &str) -> Manifests {
        read_files(&[("classes.yaml", text)]).unwrap().manifests
    }

    #[test]
    fn only_classes_whose_nodes_are_alike_share_their_types() {
        let text = class("a", "", "us-east-1a")
            + &class("b", ", tags: {team: b}", "us-east-1a")
            + &class("c", ", kubelet: {maxPods: 20}", "us-east-1a")
            + &class("d", "", "us-east-1b");
        let manifests = read(&text);
        let region = "us-east-1".parse().unwrap();
        let catalog = RegionCatalog::built_in(&region, TypesScope::ForNodes).unwrap().with_spot();
        let settings = SchedulingSettings::default();
        let mut types = SimulatedTypes::new(&catalog, &settings);
        let of = |name: &str| {
            let class = manifests.node_classes.iter().find(|class| class.name.as_str() == name).unwrap();
            ReservingClass { class, stated: &[], images: &[] }
        };
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| types.of_class(of(name)).unwrap());
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(types.compiled.len(), 3);
        assert!(c.iter().all(|option| option.capacity.get(&ResourceName::PODS).value_ceil() == 20));
        let zones = |types: &[InstanceTypeOption]| -> BTreeSet<String> {
            let all = types.iter().flat_map(|option| &option.offerings);
            let open = all.filter(|offering| offering.availability == Availability::Available);
            open.map(|offering| offering.zone.to_string()).collect()
        };
        assert_eq!(zones(&a), BTreeSet::from(["us-east-1a".to_owned()]));
        assert_eq!(zones(&d), BTreeSet::from(["us-east-1b".to_owned()]));
    }
}
