//! What AWS answers in one look: each query is sent once, and classes with equal queries share the answer.
//!
//! Decides the order of queries where one needs another's answer: parameters name images. Decides also which queries
//! for images the records of a sweep answer instead: those of classes that are asked about for their images alone. It
//! judges nothing.
//!
//! Invariants: an unknown id hides no other; a failed query of several fails the part, so that nothing is hidden.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::class_status::{ImageVariant, Seen};
use tenon_domain::id::ImageId;
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::port::{
    CapacityReservation, CapacityReservationFilter, Image, ImageFilter, InstanceProfileFacts,
    PARAMETERS_PER_CALL, Parameter, PlacementGroup, ResourceFilter, SecurityGroup, Subnet, VolumeSnapshot,
};
use tenon_ec2::{Ec2, Ec2Error, Ec2Ports, Parameters};
use tenon_state::image_query::{SweptImages, describe, queries};

use crate::alias::{self, ImageParameters};
use crate::plan::{AnsweredReservations, Answers, PartAnswer, SelectedImages};
use crate::resolve::{self, JudgedClass};
use crate::{profile, spec};

/// The answer to each query, one after the other. No function: a closure that borrows its query makes a future that
/// isn't `Send` for every lifetime.
macro_rules! each {
    ($queries:expr, $query:ident => $ask:expr) => {
        async {
            let mut answers = BTreeMap::new();
            for $query in $queries {
                let answer = $ask.await;
                answers.insert($query, answer);
            }
            answers
        }
    };
}

/// Values of parameters, by name; `None` of one that doesn't exist.
type ParameterValues = BTreeMap<String, Result<Option<String>, Ec2Error>>;

/// Images by query.
type ImagesByQuery = BTreeMap<ImageFilter, Result<Vec<Image>, Ec2Error>>;

/// The answers of one look, by query.
pub(crate) struct ClassAnswers {
    subnets: BTreeMap<ResourceFilter, Result<Vec<Subnet>, Ec2Error>>,
    groups: BTreeMap<ResourceFilter, Result<Vec<SecurityGroup>, Ec2Error>>,
    parameters: ParameterValues,
    images: ImagesByQuery,
    /// The queries for images that records answered.
    recorded: BTreeSet<ImageFilter>,
    snapshots: BTreeMap<ResourceFilter, Result<Vec<VolumeSnapshot>, Ec2Error>>,
    reservations: BTreeMap<CapacityReservationFilter, Result<Vec<CapacityReservation>, Ec2Error>>,
    placement_groups: BTreeMap<PlacementGroupSelector, Result<Vec<PlacementGroup>, Ec2Error>>,
    profiles: BTreeMap<String, Result<InstanceProfileFacts, Ec2Error>>,
    shifts: Option<Result<BTreeSet<ShiftedZone>, Ec2Error>>,
}

/// What of a class AWS is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedParts {
    /// All its parts.
    Everything,
    /// Its images, and the snapshots that are judged by them.
    Images,
}

/// A class to ask about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedClass<'a> {
    /// The class.
    pub(crate) class: &'a Ec2NodeClass,
    /// What about.
    pub(crate) parts: AskedParts,
}

/// A look at a cluster's classes.
#[derive(Clone, Copy)]
pub(crate) struct AskedClasses<'a> {
    /// The classes.
    pub(crate) classes: &'a [AskedClass<'a>],
    /// The records of the region's images, if they may answer.
    pub(crate) swept: Option<&'a SweptImages>,
    /// The cluster's entry.
    pub(crate) registry: &'a Registry,
    /// The installation's account.
    pub(crate) account: &'a str,
    /// The time.
    pub(crate) now: Timestamp,
}

impl AskedClasses<'_> {
    /// The queries of all classes, each once.
    fn queries<Q: Ord, I: IntoIterator<Item = Q>>(&self, of: impl Fn(&Ec2NodeClass) -> I) -> BTreeSet<Q> {
        self.classes.iter().flat_map(|asked| of(asked.class)).collect()
    }

    /// The queries of the classes that are asked about for everything.
    fn whole<Q: Ord, I: IntoIterator<Item = Q>>(&self, of: impl Fn(&Ec2NodeClass) -> I) -> BTreeSet<Q> {
        let whole = self.classes.iter().filter(|asked| asked.parts == AskedParts::Everything);
        whole.flat_map(|asked| of(asked.class)).collect()
    }

    fn reserved(&self) -> Option<ReservedCapacity> {
        ReservedCapacity::behind(&self.registry.gates)
    }

    /// The class's parameters; none of an alias without images, which the plan refuses.
    fn parameters(&self, class: &Ec2NodeClass) -> ImageParameters {
        alias::parameters(&class.ami_selector, &self.registry.kubernetes_version).unwrap_or_default()
    }

    /// The name of the class's instance profile, if the cluster allows it.
    fn profile(&self, class: &Ec2NodeClass) -> Option<String> {
        let AskedClasses { registry, account, now, .. } = *self;
        match resolve::instance_profile(JudgedClass { class, registry, account, now }) {
            Seen::Holds(profile) => Some(profile::name_of(&profile).to_owned()),
            Seen::Refused { .. } | Seen::Unseen { .. } => None,
        }
    }
}

impl ClassAnswers {
    /// Asks AWS about these classes: services beside each other, the queries to one service one after the other.
    pub(crate) async fn ask<E: Ec2Ports>(aws: &E, asked: AskedClasses<'_>, cluster: &str) -> Self {
        let reserved = match asked.reserved() {
            Some(_) => asked.whole(spec::reservation_queries),
            None => BTreeSet::new(),
        };
        let whole = asked.classes.iter().any(|asked| asked.parts == AskedParts::Everything);
        let shifts = async {
            match asked.registry.settings.zonal_shift {
                FeatureGate::Enabled if whole => {
                    Some(aws.shifted_zones(cluster).await.map(BTreeSet::from_iter))
                }
                FeatureGate::Enabled | FeatureGate::Disabled => None,
            }
        };
        let images = async {
            let names = asked.queries(|class| asked.parameters(class).into_keys());
            let parameters = ask_parameters(aws, names).await;
            let (mut answers, others) = recorded_images(asked, &parameters);
            let recorded = answers.keys().cloned().collect();
            for filter in others {
                let answer = describe(aws, &filter).await;
                answers.insert(filter, answer);
            }
            (answers, recorded, parameters)
        };
        let (subnets, groups, images, snapshots, reservations, placement_groups, profiles, shifts) = futures::join!(
            each!(asked.whole(spec::subnet_queries), filter => describe_subnets(aws, &filter)),
            each!(asked.whole(spec::group_queries), filter => describe_groups(aws, &filter)),
            images,
            each!(
                asked.queries(|class| spec::snapshot_query(class, asked.registry)),
                filter => describe_snapshots(aws, &filter)
            ),
            each!(reserved, filter => describe_reservations(aws, &filter)),
            each!(
                asked.whole(|class| class.placement_group.clone()),
                selector => describe_placement_groups(aws, &selector)
            ),
            each!(asked.whole(|class| asked.profile(class)), name => aws.instance_profile(&name)),
            shifts,
        );
        let (images, recorded, parameters) = images;
        Self {
            subnets,
            groups,
            parameters,
            images,
            recorded,
            snapshots,
            reservations,
            placement_groups,
            profiles,
            shifts,
        }
    }

    /// Whether records answered one of a class's queries for images.
    pub(crate) fn has_records_of(&self, class: &Ec2NodeClass, asked: AskedClasses<'_>) -> bool {
        let filters = named(&self.parameters, &asked.parameters(class)).filters(class);
        filters.iter().any(|filter| self.recorded.contains(filter))
    }

    /// Asks EC2 about the images of a class that records answered for.
    pub(crate) async fn ask_for_images<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
        asked: AskedClasses<'_>,
    ) {
        for filter in named(&self.parameters, &asked.parameters(class)).filters(class) {
            if self.recorded.remove(&filter) {
                let answer = describe(ec2, &filter).await;
                self.images.insert(filter, answer);
            }
        }
    }

    /// The answers about one of these classes.
    pub(crate) fn about(&self, of: AskedClass<'_>, asked: AskedClasses<'_>) -> Answers {
        let AskedClass { class, parts } = of;
        let subnets =
            spec::subnet_queries(class).into_iter().filter_map(|query| self.subnets.get(&query).cloned());
        let groups =
            spec::group_queries(class).into_iter().filter_map(|query| self.groups.get(&query).cloned());
        let snapshots = spec::snapshot_query(class, asked.registry);
        let reservations = |right| {
            let queries = spec::reservation_queries(class).into_iter();
            let found = queries.filter_map(|query| self.reservations.get(&query).cloned());
            AnsweredReservations { right, answer: joined(found, |reservation| reservation.id.clone()) }
        };
        let groups_of = |query: &PlacementGroupSelector| self.placement_groups.get(query).cloned();
        let shifted = match asked.registry.settings.zonal_shift {
            FeatureGate::Enabled => Some(self.shifts.clone()),
            FeatureGate::Disabled => None,
        };
        Answers {
            subnets: part(parts, || Some(joined(subnets, |subnet| subnet.id.clone()))),
            security_groups: part(parts, || Some(joined(groups, |group| group.id.clone()))),
            images: self.images_of(class, asked),
            snapshots: snapshots
                .and_then(|query| self.snapshots.get(&query).cloned())
                .unwrap_or_else(|| Ok(Vec::new())),
            reservations: asked.reserved().map(reservations),
            placement_groups: class.placement_group.as_ref().map(|query| part(parts, || groups_of(query))),
            profile: asked.profile(class).map(|name| part(parts, || self.profiles.get(&name).cloned())),
            shifts: shifted.map(|answer| part(parts, || answer)),
        }
    }

    /// The answers about a class's images.
    pub(crate) fn images_of(&self, class: &Ec2NodeClass, asked: AskedClasses<'_>) -> SelectedImages {
        let named = named(&self.parameters, &asked.parameters(class));
        let filters = named.filters(class);
        let images = filters.iter().filter_map(|query| self.images.get(query).cloned());
        let answer = match named.failed {
            Some(error) => Err(error),
            None => joined(images, |image| image.id.clone()),
        };
        SelectedImages { answer, variants: named.variants, nameless: named.nameless, filters }
    }
}

/// The answer about a part, where it was asked for.
fn part<T>(parts: AskedParts, answer: impl FnOnce() -> Option<Result<T, Ec2Error>>) -> PartAnswer<T> {
    match parts {
        AskedParts::Everything => answer().map_or(PartAnswer::NotAsked, PartAnswer::Answered),
        AskedParts::Images => PartAnswer::NotAsked,
    }
}

/// The values of parameters.
async fn ask_parameters<E: Parameters>(ssm: &E, names: BTreeSet<String>) -> ParameterValues {
    let names: Vec<String> = names.into_iter().collect();
    let mut answers = BTreeMap::new();
    for names in names.chunks(PARAMETERS_PER_CALL) {
        let answer = ssm.parameters(names).await;
        for name in names {
            let value = |found: &Vec<Parameter>| {
                found.iter().find(|found| found.name == *name).map(|found| found.value.clone())
            };
            answers.insert(name.clone(), answer.as_ref().map(value).map_err(Clone::clone));
        }
    }
    answers
}

/// The queries for images that records answer, with the answers, and the others. A class that is asked about for
/// everything is asked of EC2.
fn recorded_images(
    asked: AskedClasses<'_>,
    parameters: &ParameterValues,
) -> (ImagesByQuery, Vec<ImageFilter>) {
    let of = |class: &Ec2NodeClass| named(parameters, &asked.parameters(class)).filters(class);
    let by_ec2 = asked.whole(of);
    let (mut answers, mut others) = (BTreeMap::new(), Vec::new());
    for filter in asked.queries(of) {
        let swept = asked.swept.filter(|_| !by_ec2.contains(&filter));
        match swept.and_then(|swept| swept.answer(&filter, asked.account, asked.now)) {
            Some(found) => drop(answers.insert(filter, Ok(found))),
            None => others.push(filter),
        }
    }
    (answers, others)
}

/// The images that a class's parameters name.
#[derive(Default)]
struct NamedImages {
    variants: BTreeMap<ImageId, BTreeSet<ImageVariant>>,
    /// Parameters that don't exist or don't name an image.
    nameless: BTreeSet<String>,
    failed: Option<Ec2Error>,
}

impl NamedImages {
    /// The queries for the class's images, those among them.
    fn filters(&self, class: &Ec2NodeClass) -> BTreeSet<ImageFilter> {
        queries(&class.ami_selector, self.variants.keys().cloned())
    }
}

fn named(answers: &ParameterValues, of: &ImageParameters) -> NamedImages {
    let mut named = NamedImages::default();
    for (name, variants) in of {
        match answers.get(name) {
            Some(Ok(value)) => match value.as_deref().map(ImageId::parse) {
                Some(Ok(id)) => named.variants.entry(id).or_default().extend(variants),
                Some(Err(_)) | None => {
                    named.nameless.insert(name.clone());
                }
            },
            Some(Err(error)) => named.failed = Some(error.clone()),
            None => {}
        }
    }
    named
}

/// The results of several queries, each object once. One failed query fails all.
fn joined<T, K: Ord>(
    answers: impl Iterator<Item = Result<Vec<T>, Ec2Error>>,
    id: impl Fn(&T) -> K,
) -> Result<Vec<T>, Ec2Error> {
    let mut all = BTreeMap::new();
    for answer in answers {
        all.extend(answer?.into_iter().map(|found| (id(&found), found)));
    }
    Ok(all.into_values().collect())
}

async fn describe_placement_groups<E: Ec2>(
    ec2: &E,
    selector: &PlacementGroupSelector,
) -> Result<Vec<PlacementGroup>, Ec2Error> {
    match ec2.describe_placement_groups(selector).await {
        Err(Ec2Error::NotFound { .. }) => Ok(Vec::new()),
        answer => answer,
    }
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
