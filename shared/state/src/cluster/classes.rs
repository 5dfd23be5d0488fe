//! Ready pools, and the instance types of their nodes.
//!
//! Decides which classes are ready for launches, with the reason for the others, and the instance types of each pool.
//! It calls no service: class statuses and the catalogue come from the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_domain::claim::joining::{Joining, joining, lacked};
use tenon_domain::claim::{Claim, NextLaunch};
use tenon_domain::class_allowance::forbidden;
use tenon_domain::class_status::{ConditionReason, image_for};

use crate::view::ClusterView;
use jiff::SignedDuration;
use tenon_domain::api::{Ec2NodeClass, NodePool};
use tenon_domain::catalog::settings::PartsPerMillion;
use tenon_domain::catalog::{
    CapacityType, Catalog, ClassNodes, Exhaustion, InstanceTypeOption, LearnedOf, PartData, Places,
};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::{CLASS_DELETED, CLASS_UNREADABLE, CatalogPart, NOT_RESOLVED, Waiting, require};
use tenon_domain::id::{ClusterName, NodeClassName, NodePoolName, Region};
use tenon_domain::labels;
use tenon_domain::launch_verdict::{
    JudgedRequest, LaunchStanding, LaunchVerdict, VALIDATION_REFRESH, VerdictOutcome, architectures,
};
use tenon_domain::pool_class::AbsentClass;
use tenon_domain::registry::FeatureGate;
use tenon_domain::reservation::{Reservations, ReservedCapacity};
use tenon_domain::unavailable::{MarkState, RequestDigest, UnavailableKey};
use tenon_planning::provision::{PoolReadiness, PoolStanding};

use super::ObservedCluster;
use super::compiled::{CompiledClasses, CompiledFrom, FreshParts};
use super::pools::plans;

/// How long a pool that doesn't need prices waits for the first ones while they can't be read.
const MISSED_AT_MOST: SignedDuration = SignedDuration::from_mins(10);

/// The readiness and types of a pool.
#[derive(Debug, Clone)]
pub(super) struct JudgedPool {
    /// Whether claims can be made of it.
    pub(super) readiness: PoolReadiness,
    /// Whether its requests are known to be refused.
    pub(super) standing: PoolStanding,
    /// Whether a dry run was denied and one launch decides. Replacements don't wait for it.
    pub(super) doubt: PoolStanding,
    /// Prices that it does without.
    pub(super) without: Option<Waiting>,
}

/// A class that is ready for launches.
#[derive(Debug, Clone)]
pub struct ReadyClass {
    /// Its spec.
    pub class: Ec2NodeClass,
    /// Its resolved status.
    pub status: ClassStatus,
}

impl JudgedPool {
    const fn not_ready(readiness: PoolReadiness) -> Self {
        let (standing, doubt) = (PoolStanding::Trusted, PoolStanding::Trusted);
        Self { readiness, standing, doubt, without: None }
    }
}

impl<'a> ObservedCluster<'a> {
    /// Resolves all pools. Before this call the world has none. Options that an earlier wake compiled from the same
    /// input are used again.
    pub fn resolve(&mut self, region: &'a Region, known: &CompiledClasses) {
        let mut by_class: BTreeMap<&NodeClassName, Arc<Vec<InstanceTypeOption>>> = BTreeMap::new();
        for pool in self.snapshot.node_pools.iter().filter(|pool| plans(pool)) {
            let name = &pool.template.node_class.name;
            let class = self.class(pool);
            if let Some(class) = class {
                let types = by_class
                    .entry(name)
                    .or_insert_with(|| self.with_seen_storage(class, self.options(class, region, known)));
                self.types.insert(pool.name.clone(), Arc::clone(types));
            }
            let judged = self.judge(pool);
            if let (PoolReadiness::Ready, Some(class), Some(status)) =
                (&judged.readiness, class, self.view.classes.get(name))
            {
                let ready = ReadyClass { class: self.with_settings(class), status: status.clone() };
                self.classes.insert(name.clone(), ready);
            }
            self.judged.insert(pool.name.clone(), judged);
        }
    }

    pub(super) fn class(&self, pool: &NodePool) -> Option<&'a Ec2NodeClass> {
        self.snapshot.class_of(pool).ok()
    }

    /// The class with the cluster's settings, and its placement group as it resolved.
    pub(super) fn with_settings(&self, class: &Ec2NodeClass) -> Ec2NodeClass {
        let mut class = class.clone();
        class.settings.reserved_enis = self.registry.settings.reserved_enis;
        class.settings.vm_memory_overhead = PartsPerMillion(self.registry.settings.vm_memory_overhead_ppm);
        let status = self.view.classes.get(&class.name);
        class.settings.placement = status.and_then(|status| status.placement_group.clone());
        class
    }

    fn judge(&self, pool: &NodePool) -> JudgedPool {
        let judged = self.class_ready(pool).unwrap_or_else(JudgedPool::not_ready);
        if judged.readiness != PoolReadiness::Ready {
            return judged;
        }
        let not_ready =
            |waiting| JudgedPool { readiness: PoolReadiness::NotReady(waiting), ..judged.clone() };
        let launched = self.launched_alike(pool);
        let standing = match joining(launched.iter().copied(), self.view.now) {
            Joining::Fine => judged.standing,
            Joining::Tries => PoolStanding::OnProbation,
            Joining::Waits { rounds, until } => {
                let pool = pool.name.to_string();
                return not_ready(match lacked(launched) {
                    Some(lacked) => {
                        Waiting::NodesNotInitialized { pool, rounds, lacked: lacked.to_owned(), until }
                    }
                    None => Waiting::NodesNotJoining { pool, rounds, until },
                });
            }
        };
        match self.missing_part(pool) {
            Ok(without) => JudgedPool { without, standing, ..judged },
            Err(waiting) => not_ready(waiting),
        }
    }

    /// The claims that show whether the pool's nodes join. Launches of another form don't: what was wrong may be mended.
    fn launched_alike(&self, pool: &NodePool) -> Vec<&Claim> {
        let Some(class) = self.view.classes.get(&pool.template.node_class.name) else { return Vec::new() };
        let next = NextLaunch::of(pool, Some(class));
        self.view.claims.values().filter(|claim| next.repeats(claim)).collect()
    }

    fn class_ready(&self, pool: &NodePool) -> Result<JudgedPool, PoolReadiness> {
        let name = &pool.template.node_class.name;
        let class = self.snapshot.class_of(pool).map_err(|absent| without_class(absent, name))?;
        let not_ready = |reason: &str| {
            Err(PoolReadiness::NotReady(Waiting::NodeClassNotReady {
                class: name.to_string(),
                reason: reason.to_owned(),
            }))
        };
        let Some(status) = self.view.classes.get(name) else { return not_ready(NOT_RESOLVED) };
        if class.meta.deleted_at.is_some() {
            return not_ready(CLASS_DELETED);
        }
        if !status.is_of(&class.meta) {
            return not_ready(NOT_RESOLVED);
        }
        // The stack's word counts before the class is judged by it again.
        if !forbidden(&self.registry.allowed, class).is_empty() {
            return not_ready(ConditionReason::NotAllowed.as_str());
        }
        // Only a launch can show that what EC2 refused is mended.
        if !status.launchable() {
            return not_ready(status.obstacle().map_or("Unknown", |obstacle| obstacle.reason_text()));
        }
        let [of_class, of_pool] = refused_requests(self.cluster, &pool.name, status);
        let (mut standing, mut doubt) = (PoolStanding::Trusted, PoolStanding::Trusted);
        match self.verdicts(pool, class, status) {
            LaunchStanding::Trusted => {}
            LaunchStanding::Doubted => doubt = PoolStanding::OnProbation,
            LaunchStanding::Due => standing = PoolStanding::OnProbation,
            LaunchStanding::Denied(verdict) => {
                let (code, message) = denied_words(verdict);
                return Err(PoolReadiness::NotReady(Waiting::LaunchRefused {
                    pool: pool.name.to_string(),
                    code,
                    message,
                    until: verdict.until,
                }));
            }
        }
        for mark in [of_class, of_pool].iter().filter_map(|key| self.view.marks.get(key)) {
            match mark.state(self.view.now) {
                MarkState::Forgotten => {}
                MarkState::Due => standing = PoolStanding::OnProbation,
                // After a repair, the wait is no longer than for a mark on capacity.
                MarkState::Held if mark.last_resort_at() <= self.view.now => {
                    standing = PoolStanding::OnProbation;
                }
                MarkState::Held | MarkState::Probing(_) => {
                    return Err(PoolReadiness::NotReady(Waiting::LaunchRefused {
                        pool: pool.name.to_string(),
                        code: mark.code.clone(),
                        message: mark.message.clone(),
                        until: mark.blocked_until().min(mark.last_resort_at()),
                    }));
                }
            }
        }
        Ok(JudgedPool { readiness: PoolReadiness::Ready, standing, doubt, without: None })
    }

    /// EC2's verdicts on launches of a pool.
    fn verdicts(&self, pool: &NodePool, class: &Ec2NodeClass, status: &ClassStatus) -> LaunchStanding<'a> {
        let Some(verdicts) = self.view.verdicts.get(&class.name) else { return LaunchStanding::Trusted };
        match self.registry.settings.dry_runs {
            FeatureGate::Enabled => {}
            FeatureGate::Disabled => return LaunchStanding::Trusted,
        }
        let digest = RequestDigest::of_class(self.cluster, status);
        let requirements = &pool.template.requirements;
        let mut architectures = architectures(status);
        architectures.retain(|architecture| {
            architecture.kubernetes().is_some_and(|name| requirements.allows(labels::ARCH, name))
        });
        verdicts.standing(judged_request(class, &digest), &architectures, self.view.now)
    }

    /// A price list that is missing or too old, if the pool can do without it; as an error, the evidence to wait for.
    /// Prices that never arrived are waited for, so that the first start decides nothing without them; the wait is
    /// bounded.
    fn missing_part(&self, pool: &NodePool) -> Result<Option<Waiting>, Waiting> {
        self.require_part(CatalogPart::InstanceTypes)?;
        self.require_part(CatalogPart::Offerings)?;
        let allows = |capacity_type: CapacityType| {
            pool.template.requirements.allows(labels::CAPACITY_TYPE, capacity_type.as_str())
        };
        let on_demand = allows(CapacityType::OnDemand).then_some(CatalogPart::OnDemandPrices);
        let spot = allows(CapacityType::Spot).then_some(CatalogPart::SpotPrices);
        let prices: Vec<_> =
            [on_demand, spot].into_iter().flatten().map(|part| (part, self.require_part(part))).collect();
        let some = prices.iter().any(|(_, found)| found.is_ok());
        let mut without = None;
        for (part, found) in prices {
            match found {
                Ok(()) => {}
                Err(waiting) if some && self.is_given_up(part, &waiting) => without = Some(waiting),
                Err(waiting) => return Err(waiting),
            }
        }
        Ok(without)
    }

    fn require_part(&self, part: CatalogPart) -> Result<(), Waiting> {
        let found = self.view.parts.get(&part).map(|found| ((), found.refreshed_at));
        require(part, found, self.view.now).map(|_| ())
    }

    /// Whether the pool plans without this price list: it is stale, or it has been failing for [`MISSED_AT_MOST`].
    fn is_given_up(&self, part: CatalogPart, waiting: &Waiting) -> bool {
        let failing = self.view.failing.get(&part).map(|since| self.view.now.duration_since(*since));
        matches!(waiting, Waiting::CatalogStale { .. })
            || failing.is_some_and(|failing| failing >= MISSED_AT_MOST)
    }

    /// All types as nodes of the class would be, by name; those without an image among the class's are left out.
    fn options(
        &self,
        class: &Ec2NodeClass,
        region: &'a Region,
        known: &CompiledClasses,
    ) -> Arc<Vec<InstanceTypeOption>> {
        let status = self.view.classes.get(&class.name);
        let (Some(status), Some(catalog)) = (status, self.catalog(region)) else { return Arc::default() };
        let learned = LearnedOf { learned: &self.view.learned, images: &status.images };
        let catalog = Catalog { learned, ..catalog };
        let Some(parts) = self.fresh_parts(&catalog) else { return Arc::default() };
        let settings = self.with_settings(class).settings;
        let nodes = ClassNodes { settings: &settings, places: Places::Subnets(&status.subnets) };
        let from = CompiledFrom {
            region: region.clone(),
            parts,
            learned: Arc::clone(&self.view.learned),
            images: status.images.clone(),
            settings: settings.clone(),
            zones: status.subnets.iter().map(|subnet| subnet.zone.clone()).collect(),
            families: self.registry.allowed.families.clone(),
        };
        let compiled = known.of(from, || {
            let mut options = catalog.unmarked(nodes);
            options.retain(|option| {
                option.facts.is_for_nodes() && image_for(&status.images, &option.facts).is_some()
            });
            self.bar_families(&mut options);
            options
        });
        if self.is_calm(status) {
            compiled
        } else {
            Arc::new(self.as_of_now(&compiled, &catalog, nodes, status))
        }
    }

    /// Whether neither marks nor zonal shifts nor reservations change a class's options.
    fn is_calm(&self, status: &ClassStatus) -> bool {
        self.view.marks.is_empty()
            && status.reservations.is_empty()
            && status.subnets.iter().all(|subnet| subnet.shifted.is_none())
    }

    /// Compiled options with what marks, zonal shifts and reservations say now.
    fn as_of_now(
        &self,
        compiled: &[InstanceTypeOption],
        catalog: &Catalog<'_>,
        nodes: ClassNodes<'_>,
        status: &ClassStatus,
    ) -> Vec<InstanceTypeOption> {
        let requests = [RequestDigest::of_class(self.cluster, status)];
        let exhaustion = Exhaustion { marks: &self.view.marks, requests: &requests, now: self.view.now };
        let mut options = compiled.to_vec();
        catalog.mark(&mut options, nodes, exhaustion);
        if let Some(right) = ReservedCapacity::behind(&self.registry.gates) {
            let launched = self.launched_since(status.resolved_at);
            let left = Reservations::left(right, &status.reservations, &launched);
            catalog.offer_reserved(&mut options, &left, nodes, exhaustion);
        }
        self.bar_families(&mut options);
        options
    }

    /// Makes types unavailable that the cluster's stack doesn't allow.
    fn bar_families(&self, options: &mut [InstanceTypeOption]) {
        let allowed = &self.registry.allowed;
        let barred = options.iter_mut().filter(|option| !allowed.allows_type(&option.facts.name));
        barred.for_each(InstanceTypeOption::disallow_family);
    }

    /// The content of a catalogue's parts.
    fn fresh_parts(&self, catalog: &Catalog<'_>) -> Option<FreshParts> {
        let content = |part: CatalogPart| self.view.parts.get(&part).map(|found| Arc::clone(&found.data));
        Some(FreshParts {
            types: content(CatalogPart::InstanceTypes)?,
            offerings: content(CatalogPart::Offerings)?,
            on_demand: catalog.on_demand.as_ref().and_then(|_| content(CatalogPart::OnDemandPrices)),
            spot: catalog.spot.as_ref().and_then(|_| content(CatalogPart::SpotPrices)),
        })
    }

    /// The parts that are fresh; nothing without types and offerings.
    fn catalog(&self, region: &'a Region) -> Option<Catalog<'a>> {
        let view: &'a ClusterView = self.view;
        let fresh = |part: CatalogPart| {
            let found = view.parts.get(&part)?;
            Some((&*found.data, found.refreshed_at))
        };
        let ready = |part: CatalogPart| require(part, fresh(part), view.now).ok();
        let types = ready(CatalogPart::InstanceTypes)?.part(|data| match data {
            PartData::InstanceTypes(types) => Some(types),
            PartData::Offerings(_) | PartData::OnDemandPrices(_) | PartData::SpotPrices(_) => None,
        })?;
        let offerings = ready(CatalogPart::Offerings)?.part(|data| match data {
            PartData::Offerings(offerings) => Some(offerings),
            PartData::InstanceTypes(_) | PartData::OnDemandPrices(_) | PartData::SpotPrices(_) => None,
        })?;
        let on_demand = ready(CatalogPart::OnDemandPrices).and_then(|ready| {
            ready.part(|data| match data {
                PartData::OnDemandPrices(prices) => Some(prices),
                PartData::InstanceTypes(_) | PartData::Offerings(_) | PartData::SpotPrices(_) => None,
            })
        });
        let spot = ready(CatalogPart::SpotPrices).and_then(|ready| {
            ready.part(|data| match data {
                PartData::SpotPrices(prices) => Some(prices),
                PartData::InstanceTypes(_) | PartData::Offerings(_) | PartData::OnDemandPrices(_) => None,
            })
        });
        Some(Catalog { region, types, offerings, on_demand, spot, learned: LearnedOf::NOTHING })
    }
}

/// The request of a class's launches, as its verdicts are kept.
#[must_use]
pub fn judged_request<'c>(class: &'c Ec2NodeClass, digest: &'c RequestDigest) -> JudgedRequest<'c> {
    let refresh = class.meta.annotations.get(VALIDATION_REFRESH).map(String::as_str);
    JudgedRequest { digest, refresh }
}

/// The readiness of a pool whose class, of this name, is absent.
fn without_class(absent: AbsentClass, wanted: &NodeClassName) -> PoolReadiness {
    match absent {
        AbsentClass::Unreadable(class) => {
            let (class, reason) = (class.to_string(), CLASS_UNREADABLE.to_owned());
            PoolReadiness::NotReady(Waiting::NodeClassNotReady { class, reason })
        }
        AbsentClass::NotFound(_) | AbsentClass::NotServed { .. } => {
            PoolReadiness::NodeClassNotFound(wanted.clone())
        }
    }
}

fn denied_words(verdict: &LaunchVerdict) -> (String, Option<String>) {
    match &verdict.outcome {
        VerdictOutcome::Denied { reason, message, .. } => (reason.as_str().to_owned(), Some(message.clone())),
        VerdictOutcome::Allowed
        | VerdictOutcome::Unused { .. }
        | VerdictOutcome::Warned { .. }
        | VerdictOutcome::Doubted { .. } => (String::new(), None),
    }
}

/// The keys of marks on a pool's launches as requests: of its class, if the class is to blame, and of the pool.
/// Another spec or another image of the class makes another request.
#[must_use]
pub fn refused_requests(
    cluster: &ClusterName,
    pool: &NodePoolName,
    status: &ClassStatus,
) -> [UnavailableKey; 2] {
    let of_class = UnavailableKey::Request(RequestDigest::of_class(cluster, status));
    [of_class, refused_request(cluster, pool, status)]
}

fn refused_request(cluster: &ClusterName, pool: &NodePoolName, status: &ClassStatus) -> UnavailableKey {
    let images: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
    let images = images.join(" ");
    let class = [status.name.as_str(), status.spec_digest.as_str(), images.as_str()];
    let texts = [cluster.as_str(), pool.as_str()].into_iter().chain(class);
    UnavailableKey::Request(RequestDigest::of(texts))
}
