//! What AWS answers in one look: each query is sent once, and classes with equal queries share the answer.
//!
//! Decides the order of queries where one needs another's answer: parameters name images. It judges nothing.
//!
//! Invariants: an unknown id hides no other; a failed query of several fails the part, so that nothing is hidden.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::class_status::Seen;
use tenon_domain::id::ImageId;
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::port::{
    CapacityReservation, CapacityReservationFilter, Image, ImageFilter, InstanceProfileFacts,
    PARAMETERS_PER_CALL, Parameter, PlacementGroup, ResourceFilter, SecurityGroup, Subnet, VolumeSnapshot,
    cluster_arn,
};
use tenon_ec2::{Ec2, Ec2Error, InstanceProfiles, Parameters, ZonalShift};
use tenon_runtime::Ports;
use tenon_state::image_query::{describe, queries};

use crate::alias::{self, ImageParameters};
use crate::plan::{AnsweredReservations, Answers, SelectedImages};
use crate::resolve::{self, JudgedClass};
use crate::{profile, spec};

/// The answers of one look.
#[derive(Default)]
pub(crate) struct ClassAnswers {
    profiles: BTreeMap<String, Result<InstanceProfileFacts, Ec2Error>>,
    /// Values of parameters; `None` of one that doesn't exist.
    parameters: BTreeMap<String, Result<Option<String>, Ec2Error>>,
    subnets: BTreeMap<ResourceFilter, Result<Vec<Subnet>, Ec2Error>>,
    groups: BTreeMap<ResourceFilter, Result<Vec<SecurityGroup>, Ec2Error>>,
    images: BTreeMap<ImageFilter, Result<Vec<Image>, Ec2Error>>,
    reservations: BTreeMap<CapacityReservationFilter, Result<Vec<CapacityReservation>, Ec2Error>>,
    snapshots: BTreeMap<ResourceFilter, Result<Vec<VolumeSnapshot>, Ec2Error>>,
    placement_groups: BTreeMap<PlacementGroupSelector, Result<Vec<PlacementGroup>, Ec2Error>>,
    shifts: Option<Result<BTreeSet<ShiftedZone>, Ec2Error>>,
}

impl ClassAnswers {
    /// All answers about a class.
    pub(crate) async fn ask<P: Ports>(
        &mut self,
        ports: &P,
        class: &Ec2NodeClass,
        registry: &Registry,
    ) -> Answers {
        let ec2 = ports.ec2();
        let (mut subnets, mut groups) = (Vec::new(), Vec::new());
        for filter in spec::subnet_queries(class) {
            if !self.subnets.contains_key(&filter) {
                let answer = describe_subnets(ec2, &filter).await;
                self.subnets.insert(filter.clone(), answer);
            }
            subnets.extend(self.subnets.get(&filter).cloned());
        }
        for filter in spec::group_queries(class) {
            if !self.groups.contains_key(&filter) {
                let answer = describe_groups(ec2, &filter).await;
                self.groups.insert(filter.clone(), answer);
            }
            groups.extend(self.groups.get(&filter).cloned());
        }
        Answers {
            subnets: joined(subnets, |subnet| subnet.id.clone()),
            security_groups: joined(groups, |group| group.id.clone()),
            images: self.ask_images(ec2, class, registry).await,
            snapshots: self.ask_snapshots(ec2, class, registry).await,
            reservations: self.ask_reservations(ec2, class, ReservedCapacity::behind(registry.gates)).await,
            placement_groups: self.ask_placement_groups(ec2, class).await,
            profile: self.ask_profile(ports, class, registry).await,
            shifts: self.ask_shifts(ports, registry).await,
        }
    }

    /// The images that the class's terms select, by way of its parameters.
    async fn ask_images<E: Ec2 + Parameters>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
        registry: &Registry,
    ) -> SelectedImages {
        // The plan refuses an alias without images.
        let parameters =
            alias::parameters(&class.ami_selector, &registry.kubernetes_version).unwrap_or_default();
        self.ask_parameters(ec2, &parameters).await;
        let mut selected = SelectedImages::none();
        let mut failed = None;
        for (name, variants) in &parameters {
            match self.parameters.get(name) {
                Some(Ok(value)) => match value.as_deref().map(ImageId::parse) {
                    Some(Ok(id)) => selected.variants.entry(id).or_default().extend(variants),
                    Some(Err(_)) | None => {
                        selected.nameless.insert(name.clone());
                    }
                },
                Some(Err(error)) => failed = Some(error.clone()),
                None => {}
            }
        }
        selected.filters = queries(&class.ami_selector, selected.variants.keys().cloned());
        let mut images = Vec::new();
        for filter in &selected.filters {
            if !self.images.contains_key(filter) {
                let answer = describe(ec2, filter).await;
                self.images.insert(filter.clone(), answer);
            }
            images.extend(self.images.get(filter).cloned());
        }
        selected.answer = match failed {
            Some(error) => Err(error),
            None => joined(images, |image| image.id.clone()),
        };
        selected
    }

    async fn ask_parameters<E: Parameters>(&mut self, ssm: &E, parameters: &ImageParameters) {
        let unknown = |name: &&String| !self.parameters.contains_key(*name);
        let names: Vec<String> = parameters.keys().filter(unknown).cloned().collect();
        for names in names.chunks(PARAMETERS_PER_CALL) {
            let answer = ssm.parameters(names).await;
            for name in names {
                let value = |found: &Vec<Parameter>| {
                    found.iter().find(|found| found.name == *name).map(|found| found.value.clone())
                };
                self.parameters.insert(name.clone(), answer.as_ref().map(value).map_err(Clone::clone));
            }
        }
    }

    /// The class's instance profile; no query if the cluster doesn't allow it.
    async fn ask_profile<P: Ports>(
        &mut self,
        ports: &P,
        class: &Ec2NodeClass,
        registry: &Registry,
    ) -> Option<Result<InstanceProfileFacts, Ec2Error>> {
        let installation = ports.installation();
        let judged = JudgedClass { class, registry, account: &installation.account, now: ports.now() };
        let Seen::Holds(profile) = resolve::instance_profile(judged) else { return None };
        let name = profile::name_of(&profile).to_owned();
        if !self.profiles.contains_key(&name) {
            let answer = ports.ec2().instance_profile(&name).await;
            self.profiles.insert(name.clone(), answer);
        }
        self.profiles.get(&name).cloned()
    }

    /// The placement groups of the class's selector; no query without one.
    async fn ask_placement_groups<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
    ) -> Option<Result<Vec<PlacementGroup>, Ec2Error>> {
        let selector = class.placement_group.as_ref()?;
        if !self.placement_groups.contains_key(selector) {
            let answer = match ec2.describe_placement_groups(selector).await {
                Err(Ec2Error::NotFound { .. }) => Ok(Vec::new()),
                answer => answer,
            };
            self.placement_groups.insert(selector.clone(), answer);
        }
        self.placement_groups.get(selector).cloned()
    }

    /// The snapshots that the class names; no query if the cluster may use none but those of its images.
    async fn ask_snapshots<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
        registry: &Registry,
    ) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
        let Some(filter) = spec::snapshot_query(class, registry) else { return Ok(Vec::new()) };
        if let Some(answer) = self.snapshots.get(&filter) {
            return answer.clone();
        }
        let answer = describe_snapshots(ec2, &filter).await;
        self.snapshots.insert(filter, answer.clone());
        answer
    }

    /// The zonal shifts; no query if the cluster's settings ignore them.
    async fn ask_shifts<P: Ports>(
        &mut self,
        ports: &P,
        registry: &Registry,
    ) -> Option<Result<BTreeSet<ShiftedZone>, Ec2Error>> {
        match registry.settings.zonal_shift {
            FeatureGate::Disabled => None,
            FeatureGate::Enabled => {
                if self.shifts.is_none() {
                    let installation = ports.installation();
                    let arn = cluster_arn(&installation.region, &installation.account, &registry.cluster);
                    let answer = ports.ec2().shifted_zones(&arn).await;
                    self.shifts = Some(answer.map(BTreeSet::from_iter));
                }
                self.shifts.clone()
            }
        }
    }

    /// The class's capacity reservations; no query without the feature gate.
    async fn ask_reservations<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
        right: Option<ReservedCapacity>,
    ) -> Option<AnsweredReservations> {
        let right = right?;
        let mut found = Vec::new();
        for filter in spec::reservation_queries(class) {
            if !self.reservations.contains_key(&filter) {
                let answer = describe_reservations(ec2, &filter).await;
                self.reservations.insert(filter.clone(), answer);
            }
            found.extend(self.reservations.get(&filter).cloned());
        }
        let answer = joined(found, |reservation| reservation.id.clone());
        Some(AnsweredReservations { right, answer })
    }
}

/// The results of several queries, each object once. One failed query fails all.
fn joined<T, K: Ord>(
    answers: Vec<Result<Vec<T>, Ec2Error>>,
    id: impl Fn(&T) -> K,
) -> Result<Vec<T>, Ec2Error> {
    let mut all = BTreeMap::new();
    for answer in answers {
        all.extend(answer?.into_iter().map(|found| (id(&found), found)));
    }
    Ok(all.into_values().collect())
}

async fn describe_subnets<E: Ec2>(ec2: &E, filter: &ResourceFilter) -> Result<Vec<Subnet>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        match ec2.describe_subnets(&filter).await {
            Err(error) => match without_missing(&filter, error)? {
                Some(rest) => filter = rest,
                None => return Ok(Vec::new()),
            },
            answer => return answer,
        }
    }
}

async fn describe_groups<E: Ec2>(ec2: &E, filter: &ResourceFilter) -> Result<Vec<SecurityGroup>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        match ec2.describe_security_groups(&filter).await {
            Err(error) => match without_missing(&filter, error)? {
                Some(rest) => filter = rest,
                None => return Ok(Vec::new()),
            },
            answer => return answer,
        }
    }
}

async fn describe_snapshots<E: Ec2>(
    ec2: &E,
    filter: &ResourceFilter,
) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        match ec2.describe_snapshots(&filter).await {
            Err(error) => match without_missing(&filter, error)? {
                Some(rest) => filter = rest,
                None => return Ok(Vec::new()),
            },
            answer => return answer,
        }
    }
}

async fn describe_reservations<E: Ec2>(
    ec2: &E,
    filter: &CapacityReservationFilter,
) -> Result<Vec<CapacityReservation>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        let error = match ec2.describe_capacity_reservations(&filter).await {
            Err(error) => error,
            answer => return answer,
        };
        let ids = ResourceFilter { ids: filter.ids.clone(), ..ResourceFilter::default() };
        match without_missing(&ids, error)? {
            Some(rest) => filter.ids = rest.ids,
            None => return Ok(Vec::new()),
        }
    }
}

/// The filter without unknown ids, so that one wrong id doesn't hide the others; `None` if no id is left. Each call
/// removes at least one id, so retrying ends.
fn without_missing(filter: &ResourceFilter, error: Ec2Error) -> Result<Option<ResourceFilter>, Ec2Error> {
    if let Ec2Error::NotFound { ids: missing, .. } = &error {
        let ids: Vec<String> = filter.ids.iter().filter(|id| !missing.contains(id)).cloned().collect();
        if ids.len() < filter.ids.len() {
            return Ok((!ids.is_empty()).then(|| ResourceFilter { ids, ..filter.clone() }));
        }
    }
    Err(error)
}
