//! Launches from planned claims: equal claims share one launch, which holds the exact CreateFleet request.
//!
//! Decides ids, client tokens, requests, templates and records of launches, and the writes that commit them. It
//! doesn't choose the claims, and it sends nothing.
//!
//! Invariants: the same claims at the same time give the same launches; a launch holds at most [`CLAIMS_PER_LAUNCH`]
//! claims and [`PODS_PER_LAUNCH`] pods; every claim is in exactly one launch or is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::claim::{Claim, ClaimState, CommandRole};
use tenon_domain::class_hash::ClassHash;
use tenon_domain::digest::Digest;
use tenon_domain::id::{
    ClaimName, ClientToken, ImageId, LaunchId, NodeClassName, NodePoolName, ParseIdError, Region,
};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::labels;
use tenon_domain::launch::{
    CLAIMS_PER_LAUNCH, Launch, LaunchCause, LaunchClaim, LaunchState, PODS_PER_LAUNCH,
};
use tenon_domain::registry::Registry;
use tenon_domain::report::{Finding, Report, counted};
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::tags;
use tenon_domain::taint::merge_taints;
use tenon_domain::unavailable::{LaunchAsked, Mark, Marks, Probe, RequestDigest, UnavailableKey};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, FleetLaunchTemplate, FleetTags, OnDemandAllocation,
    SpotAllocation, TargetCapacityType,
};
use tenon_planning::provision::{AskReason, PlannedClaim};
use tenon_runtime::error::chain;
use tenon_state::step::Change;
use tenon_table::Expect;
use tenon_table::items::{TemplateItem, keys, set};

use crate::fleet::{Fleet, FleetInput, FleetPurpose, NoFleet, Requests, fleet};
use crate::min_values::MinValuesLost;
use crate::template::{shared_tags, template, to_stored};
use crate::user_data::{NodeSetup, UserDataError};
use tenon_state::cluster::{ReadyClass, refused_requests};

/// Letters and digits of ids and tokens.
const ID_DIGITS: usize = 24;

/// Everything that launches depend on.
#[derive(Debug, Clone)]
pub struct LaunchInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// The function that decides.
    pub by: FunctionName,
    /// The cluster.
    pub registry: &'a Registry,
    /// Its classes that are ready for launches.
    pub classes: &'a BTreeMap<NodeClassName, ReadyClass>,
    /// The types of its pools, by name.
    pub types: &'a BTreeMap<NodePoolName, Arc<Vec<InstanceTypeOption>>>,
    /// The region of the marks.
    pub region: &'a Region,
    /// The region's marks: capacity that EC2 refused.
    pub marks: &'a Marks,
    /// The claims that replacements are launched for.
    pub replaced: &'a [ClaimName],
    /// The generations of the plan's evidence.
    pub evidence: &'a BTreeMap<String, u64>,
}

/// A launch with all that is committed with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltLaunch {
    /// The launch.
    pub launch: Launch,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// The templates that its request names.
    pub templates: Vec<(ImageId, CreateLaunchTemplate)>,
    /// The journal's records: the reason of each claim.
    pub records: Vec<JournalRecord>,
    /// The marks that the launch probes, as the commit writes them.
    pub leases: Vec<Mark>,
}

impl BuiltLaunch {
    /// The items of its templates, as they are before EC2 has them.
    pub fn template_items(&self) -> impl Iterator<Item = TemplateItem> {
        let Launch { class, created_at, .. } = &self.launch;
        self.templates.iter().map(|(image, request)| TemplateItem {
            name: request.name.clone(),
            class: class.clone(),
            image: image.clone(),
            created_at: *created_at,
            used_at: *created_at,
            request: to_stored(request),
            made_at: None,
        })
    }
}

/// Why no launch could be built for a claim.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The claim's class isn't ready for launches.
    #[error("EC2NodeClass `{0}` isn't ready")]
    Class(NodeClassName),
    /// No offering with an image and a subnet is left.
    #[error("no offering has both an image and a subnet")]
    NoOverride,
    /// Another launch of the plan probes the mark first.
    #[error("another launch already asks EC2 for this capacity")]
    Taken,
    /// The types that fit into one launch don't satisfy the NodePool's `minValues`.
    #[error(transparent)]
    MinValues(#[from] MinValuesLost),
    /// The user data can't be made.
    #[error("invalid user data")]
    UserData(#[from] UserDataError),
    /// A generated id is malformed: a defect of Tenon.
    #[error("invalid id of the launch")]
    Id(#[from] ParseIdError),
}

/// Launches, and the claims without one.
#[derive(Debug, Default)]
pub struct Built {
    /// The launches, in the order of their first claims.
    pub launches: Vec<BuiltLaunch>,
    /// Groups of equal claims without a launch.
    pub refused: Vec<(Vec<ClaimName>, BuildError)>,
}

impl Built {
    /// Adds a finding for each claim without a launch. A claim that waits for another launch's probe gets none: a
    /// later pass plans it again.
    pub fn tell(&self, to: &mut Report) {
        let refused = self.refused.iter().filter(|(_, error)| !matches!(error, BuildError::Taken));
        for (names, error) in refused {
            for name in names {
                let subject = Subject { kind: SubjectKind::Claim, name: name.to_string() };
                to.tell(Finding::refused(subject, "NoLaunch", "not launching {}", chain(error)));
            }
        }
    }
}

/// Builds the launches of planned claims.
#[must_use]
pub fn build(input: &LaunchInput<'_>, claims: &[PlannedClaim], cause: &LaunchCause) -> Built {
    let mut built = Built::default();
    let mut taken = BTreeSet::new();
    for group in groups(claims) {
        match build_one(input, &group, &taken, cause) {
            Ok(Some(launch)) => {
                taken.extend(launch.leases.iter().map(|mark| mark.key.clone()));
                built.launches.push(launch);
            }
            Ok(None) => {}
            Err(error) => built.refused.push((group.iter().map(|claim| claim.name.clone()).collect(), error)),
        }
    }
    built
}

/// Groups of equal claims, in the order of each group's first claim, cut to the size of a launch. A claim with
/// nothing but probes is alone: its launch takes more leases than fit beside several claims.
fn groups(claims: &[PlannedClaim]) -> Vec<Vec<&PlannedClaim>> {
    let mut groups: Vec<Vec<&PlannedClaim>> = Vec::new();
    for claim in claims {
        let has_room = |group: &&mut Vec<&PlannedClaim>| {
            let pods: usize = group.iter().map(|claim| claim.pods.len()).sum();
            group.first().is_some_and(|first| equal(first, claim))
                && !asks_only(claim)
                && group.len() < CLAIMS_PER_LAUNCH
                && pods + claim.pods.len() <= PODS_PER_LAUNCH
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(claim),
            None => groups.push(vec![claim]),
        }
    }
    groups
}

fn asks_only(claim: &PlannedClaim) -> bool {
    claim.offerings.iter().all(|offering| offering.asked == AskReason::Probe)
}

/// Whether one instance suits both claims.
fn equal(a: &PlannedClaim, b: &PlannedClaim) -> bool {
    (&a.pool, &a.class, &a.requirements, &a.labels) == (&b.pool, &b.class, &b.requirements, &b.labels)
        && (&a.taints, &a.startup_taints) == (&b.taints, &b.startup_taints)
        && a.offerings == b.offerings
}

fn build_one(
    input: &LaunchInput<'_>,
    group: &[&PlannedClaim],
    taken: &BTreeSet<UnavailableKey>,
    cause: &LaunchCause,
) -> Result<Option<BuiltLaunch>, BuildError> {
    let Some(first) = group.first() else { return Ok(None) };
    let ready = input.classes.get(&first.class).ok_or_else(|| BuildError::Class(first.class.clone()))?;
    let types = input.types.get(&first.pool).map_or(&[][..], |types| types.as_slice());
    let status = &ready.status;
    let cluster = &input.registry.cluster;
    let digests = [RequestDigest::of_class(cluster, status)];
    let whole = refused_requests(cluster, &first.pool, status);
    let requests = Requests { digests: &digests, whole: &whole };
    let purpose = match cause {
        LaunchCause::PendingPods => FleetPurpose::PendingPods,
        LaunchCause::Replacement(_) => FleetPurpose::Replacement,
    };
    let of_fleet = FleetInput { status, types, marks: input.marks, requests, taken, purpose, now: input.now };
    let fleet = fleet(first, of_fleet).map_err(|why| match why {
        NoFleet::NoOverride => BuildError::NoOverride,
        NoFleet::Taken => BuildError::Taken,
        NoFleet::MinValues(lost) => BuildError::MinValues(lost),
    })?;
    let id = launch_id(input, group)?;
    let asked = LaunchAsked { cluster, launch: &id, planned_at: input.now };
    let marks = fleet.leases.iter().filter_map(|key| input.marks.get(key));
    let leases = marks.filter_map(|mark| mark.leased(Probe::of(asked))).collect();
    let token =
        ClientToken::parse(format!("tenon-{}", Digest::of_texts(["token", id.as_str()]).base36(ID_DIGITS)))?;
    let parts = RequestParts { claim: first, count: group.len(), fleet: &fleet, launch: &id, token: &token };
    let (request, templates) = request(input, parts)?;
    let launch = Launch {
        id: id.clone(),
        revision: 1,
        pool: first.pool.clone(),
        class: first.class.clone(),
        token,
        request: request.to_stored(),
        reservation: fleet.reservation.clone(),
        claims: group.iter().map(|c| LaunchClaim { name: c.name.clone(), pods: c.pods.clone() }).collect(),
        cause: cause.clone(),
        created_at: input.now,
        state: LaunchState::Requested { attempts: 0, not_before: input.now },
    };
    let hash = ready.class.spec_hash.in_cluster(&input.registry.certificate_authority);
    let claims = group.iter().map(|planned| claim(planned, &launch, hash)).collect();
    let records = group.iter().map(|planned| record(input, planned, &launch, &fleet)).collect();
    Ok(Some(BuiltLaunch { launch, claims, templates, records, leases }))
}

fn launch_id(input: &LaunchInput<'_>, group: &[&PlannedClaim]) -> Result<LaunchId, BuildError> {
    let now = input.now.to_string();
    let head = [input.registry.installation.as_str(), input.registry.cluster.as_str(), &now];
    let names = group.iter().map(|claim| claim.name.as_str());
    let digest = Digest::of_texts(head.into_iter().chain(names)).base36(ID_DIGITS);
    Ok(LaunchId::parse(format!("launch-{digest}"))?)
}

/// The input of a launch's request.
#[derive(Clone, Copy)]
struct RequestParts<'a> {
    /// One of its claims, which are equal.
    claim: &'a PlannedClaim,
    /// How many claims it has.
    count: usize,
    fleet: &'a Fleet,
    launch: &'a LaunchId,
    token: &'a ClientToken,
}

fn request(
    input: &LaunchInput<'_>,
    parts: RequestParts<'_>,
) -> Result<(CreateFleetRequest, Vec<(ImageId, CreateLaunchTemplate)>), BuildError> {
    let RequestParts { claim, count, fleet, launch, token } = parts;
    let ready = input.classes.get(&claim.class).ok_or_else(|| BuildError::Class(claim.class.clone()))?;
    let labels = node_labels(claim, fleet);
    let taints = merge_taints(&claim.taints, &claim.startup_taints);
    let setup = NodeSetup { registry: input.registry, class: &ready.class, labels: &labels, taints: &taints };
    let mut templates = Vec::new();
    let mut launch_templates = Vec::new();
    for (image, overrides) in &fleet.overrides {
        let template = template(&setup, &ready.status, image, fleet.reservation.as_ref())?;
        launch_templates.push(FleetLaunchTemplate {
            name: template.name.clone(),
            version: "$Latest".to_owned(),
            overrides: overrides.clone(),
        });
        templates.push((image.clone(), template));
    }
    let mut tagged = shared_tags(&setup);
    tagged.insert(labels::NODEPOOL.to_owned(), claim.pool.to_string());
    tagged.insert(tags::LAUNCH.to_owned(), launch.to_string());
    let request = CreateFleetRequest {
        client_token: token.clone(),
        // At most CLAIMS_PER_LAUNCH.
        target_capacity: u32::try_from(count).unwrap_or(u32::MAX),
        capacity_type: TargetCapacityType::from(fleet.capacity_type),
        on_demand_allocation: OnDemandAllocation::LowestPrice,
        spot_allocation: SpotAllocation::PriceCapacityOptimized,
        launch_templates,
        tags: FleetTags { instance: tagged.clone(), volume: tagged.clone(), fleet: tagged },
        context: ready.class.context.clone(),
    };
    Ok((request, templates))
}

/// Labels that the kubelet registers with.
fn node_labels(claim: &PlannedClaim, fleet: &Fleet) -> BTreeMap<String, String> {
    let mut labels = claim.labels.clone();
    labels.extend(
        [
            (labels::NODEPOOL, claim.pool.as_str()),
            (labels::EC2NODECLASS, claim.class.as_str()),
            (labels::CAPACITY_TYPE, fleet.capacity_type.as_str()),
        ]
        .into_iter()
        .chain(fleet.reservation.iter().flat_map(LaunchedInto::labels))
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    labels
}

fn claim(planned: &PlannedClaim, launch: &Launch, class_hash: ClassHash) -> Claim {
    Claim {
        name: planned.name.clone(),
        revision: 1,
        pool: planned.pool.clone(),
        class: planned.class.clone(),
        class_hash: Some(class_hash),
        launch: launch.id.clone(),
        created_at: launch.created_at,
        state: ClaimState::Planned,
        drift: None,
        role: match &launch.cause {
            LaunchCause::PendingPods => CommandRole::None,
            LaunchCause::Replacement(command) => CommandRole::Replacement(command.clone()),
        },
        terms: Some(planned.terms),
        requests: planned.requests.clone(),
    }
}

/// Names that a record spells out; the launch holds all of them.
const NAMES_TOLD: usize = 10;

fn some_names(names: impl Iterator<Item = impl fmt::Display>, count: usize) -> String {
    let mut told: Vec<String> = names.take(NAMES_TOLD).map(|name| name.to_string()).collect();
    if count > NAMES_TOLD {
        told.push(format!("and {} more", count - NAMES_TOLD));
    }
    told.join(", ")
}

fn record(input: &LaunchInput<'_>, planned: &PlannedClaim, launch: &Launch, fleet: &Fleet) -> JournalRecord {
    let pods = planned.pods.len();
    let purpose = match &launch.cause {
        LaunchCause::PendingPods => format!("for {}", counted(pods, "pending pod", "pending pods")),
        LaunchCause::Replacement(_) => {
            let replaced =
                some_names(input.replaced.iter().map(|name| format!("`{name}`")), input.replaced.len());
            format!("to replace {replaced}, for {}", counted(pods, "pod", "pods"))
        }
    };
    let types = counted(planned.instance_types.len(), "instance type", "instance types");
    let message =
        format!("planned NodeClaim `{}` {purpose}: {types}, {} first", planned.name, fleet.capacity_type);
    let subject = Subject { kind: SubjectKind::Claim, name: planned.name.to_string() };
    let mut record = JournalRecord::new(subject, input.now, input.by.as_str(), Decision::Planned, message)
        .detail("launch", &launch.id)
        .detail("pool", &planned.pool)
        .detail("class", &planned.class)
        .detail("capacity_type", fleet.capacity_type)
        .detail("pods", some_names(planned.pods.iter().map(|pod| &pod.name), pods))
        .detail("zones", planned.zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    if let Some(cheapest) = planned.instance_types.first() {
        record = record.detail("instance_type", cheapest);
    }
    if let Some(price) = planned.price {
        record = record.detail("price", price);
    }
    if !fleet.unpriced.is_empty() {
        record = record.detail("unpriced", some_names(fleet.unpriced.iter(), fleet.unpriced.len()));
    }
    if !fleet.leases.is_empty() {
        record = record.detail("asks_again_for", some_names(fleet.leases.iter(), fleet.leases.len()));
    }
    record.evidence.clone_from(input.evidence);
    record
}

/// Adds all writes that commit a launch, except the condition on the cluster's revision, which becomes `revision`.
/// Templates named in `known` exist already.
pub fn write_launch(
    input: &LaunchInput<'_>,
    built: &BuiltLaunch,
    revision: u64,
    known: impl Fn(&str) -> bool,
    change: &mut Change<'_>,
) {
    let cluster = &input.registry.cluster;
    change.replace(Expect::Absent, set(keys::launch(cluster, &built.launch.id), &built.launch));
    for claim in &built.claims {
        change.claim(Expect::Absent, claim);
    }
    for template in built.template_items().filter(|template| !known(&template.name)) {
        change.write(set(keys::template(cluster, &template.name), &template));
    }
    // The first launch to commit takes the lease; any other finds the mark's revision changed.
    for lease in &built.leases {
        let before = Expect::Revision(lease.revision.saturating_sub(1));
        change.replace(before, set(keys::unavailable(input.region, &lease.key), lease));
    }
    for record in &built.records {
        change.record(record, revision);
    }
}

#[cfg(test)]
mod content_tests;

#[cfg(test)]
mod tests {
    use tenon_domain::claim::Terms;
    use tenon_domain::id::NamespacedName;
    use tenon_domain::launch::CountedPod;
    use tenon_domain::requirement::Requirement;
    use tenon_memory_table::block_on;
    use tenon_memory_table::{MemoryConfig, MemoryTable};
    use tenon_table::{Commit, CommitToken, Table, Write, WriteGroup};

    use super::*;
    use crate::testing::{self, class, many_types, planned, registry, status, types};

    /// What is made of the input of these tests.
    pub(super) fn with_input<T>(
        types: Vec<InstanceTypeOption>,
        make: impl FnOnce(&LaunchInput<'_>) -> T,
    ) -> T {
        let pool = NodePoolName::parse("default").unwrap();
        let name = NodeClassName::parse("default").unwrap();
        let (registry, evidence, marks) = (registry("prod"), BTreeMap::new(), Marks::default());
        let classes =
            BTreeMap::from([(name, ReadyClass { class: class("default"), status: status("default") })]);
        let types = BTreeMap::from([(pool, Arc::new(types))]);
        let input = LaunchInput {
            now: Timestamp::UNIX_EPOCH,
            by: FunctionName::Provisioner,
            registry: &registry,
            classes: &classes,
            types: &types,
            region: &Region::parse("us-east-1").unwrap(),
            marks: &marks,
            replaced: &[],
            evidence: &evidence,
        };
        make(&input)
    }

    pub(super) fn built(claims: &[PlannedClaim]) -> Built {
        built_of(claims, types())
    }

    fn built_of(claims: &[PlannedClaim], types: Vec<InstanceTypeOption>) -> Built {
        with_input(types, |input| build(input, claims, &LaunchCause::PendingPods))
    }

    #[test]
    fn equal_claims_are_one_launch_and_the_rest_its_own() {
        let small = ["m5.large a on-demand 0.1"];
        let mut claims: Vec<PlannedClaim> =
            (0..25).map(|n| planned(&format!("default-{n:02}"), &small)).collect();
        claims.push(planned("default-x", &["m5.xlarge a on-demand 0.2"]));
        let found = built(&claims);
        let sizes: Vec<usize> = found.launches.iter().map(|launch| launch.claims.len()).collect();
        assert_eq!((sizes, found.refused.len()), (vec![20, 5, 1], 0));
        let first = &found.launches[0];
        let request = CreateFleetRequest::from_stored(&first.launch.request).unwrap();
        assert_eq!((request.target_capacity, request.to_stored()), (20, first.launch.request.clone()));
        assert_eq!(request.client_token, first.launch.token);
        assert_eq!(request.tags.instance[tags::LAUNCH], first.launch.id.to_string());
        assert_eq!(request.tags.instance["karpenter.sh/nodepool"], "default");
        let tokens: std::collections::BTreeSet<_> =
            found.launches.iter().map(|l| l.launch.token.clone()).collect();
        assert_eq!(tokens.len(), 3);
        assert_eq!(built(&claims).launches, found.launches);
    }

    #[test]
    fn a_claim_keeps_the_terms_of_its_pool() {
        let hours = tenon_domain::SignedDuration::from_hours;
        let terms = Terms { expire_after: Some(hours(24)), termination_grace_period: Some(hours(1)) };
        let claim = PlannedClaim { terms, ..planned("default-a", &["m5.large a on-demand 0.1"]) };
        assert_eq!(built(&[claim]).launches[0].claims[0].terms, Some(terms));
    }

    #[test]
    fn a_claim_keeps_the_hash_of_its_class_in_its_cluster() {
        let hash = class("default").spec_hash.in_cluster(&registry("prod").certificate_authority);
        let claim = planned("default-a", &["m5.large a on-demand 0.1"]);
        assert_eq!(built(&[claim]).launches[0].claims[0].class_hash, Some(hash));
    }

    #[test]
    fn who_only_asks_for_what_is_marked_asks_alone() {
        let claims: Vec<PlannedClaim> =
            (0..3).map(|n| planned(&format!("default-{n}"), &["m5.large a spot 0.1 again"])).collect();
        let found = built(&claims);
        let sizes: Vec<usize> = found.launches.iter().map(|launch| launch.claims.len()).collect();
        assert_eq!((sizes, found.refused.len()), (vec![1, 1, 1], 0));
    }

    #[test]
    fn a_claim_without_a_way_to_launch_is_refused() {
        let found = built(&[planned("default-a", &["m5.large c on-demand 0.1"])]);
        assert!(found.launches.is_empty());
        assert!(matches!(found.refused.as_slice(), [(_, BuildError::NoOverride)]), "{:?}", found.refused);
    }

    #[test]
    fn a_launch_that_is_cut_keeps_min_values_or_isnt_made() {
        let check = |family_least: u32, type_least: u32, expected: Result<bool, &str>| {
            // Types of c7i are the dearest of all.
            let types = many_types();
            let names: Vec<String> = types.iter().map(|option| option.facts.name.to_string()).collect();
            let price = |name: &str| if name.starts_with("c7i.") { 9.0 } else { 0.1 };
            let offerings: Vec<String> =
                names.iter().map(|name| format!("{name} a on-demand {}", price(name))).collect();
            let texts: Vec<&str> = offerings.iter().map(String::as_str).collect();
            let mut claim = planned("default-a", &texts);
            let least = |key, least| Requirement::exists(key).with_min_values(Some(least));
            claim.requirements.add(least(labels::INSTANCE_FAMILY, family_least));
            claim.requirements.add(least(labels::INSTANCE_TYPE, type_least));
            let found = built_of(&[claim], types);
            match expected {
                Ok(has_c7i) => {
                    assert_eq!(found.refused.first().map(|(_, error)| error.to_string()), None);
                    let request = CreateFleetRequest::from_stored(&found.launches[0].launch.request).unwrap();
                    let overrides = request.launch_templates.iter().flat_map(|template| &template.overrides);
                    let named: Vec<&str> = overrides.map(|one| one.instance_type.as_str()).collect();
                    assert_eq!(named.len(), 60);
                    assert_eq!(named.iter().any(|name| name.starts_with("c7i.")), has_c7i);
                }
                Err(message) => {
                    assert!(found.launches.is_empty());
                    assert_eq!(found.refused[0].1.to_string(), message);
                }
            }
        };
        let families = many_types().iter().map(family).collect::<BTreeSet<_>>().len();
        let families = u32::try_from(families).unwrap();
        check(1, 1, Ok(false));
        check(families - 1, 60, Ok(false));
        check(families, 60, Ok(true));
        check(
            families,
            61,
            Err(
                "`minValues` of `node.kubernetes.io/instance-type` is 61, but the instance types of one launch have \
                 60 values: lower `minValues`",
            ),
        );
    }

    /// The families' part of a type's name.
    fn family(option: &InstanceTypeOption) -> String {
        option.facts.name.as_str().split('.').next().unwrap().to_owned()
    }

    /// All of a burst's launches and claims are written to one partition key, which takes 1,000 units a second.
    #[test]
    fn a_pod_that_is_planned_writes_little() {
        let types = many_types();
        let offerings: Vec<String> = types
            .iter()
            .flat_map(|one| ["a", "b"].map(|zone| format!("{} {zone} on-demand 0.1", one.facts.name)))
            .collect();
        let offerings: Vec<&str> = offerings.iter().map(String::as_str).collect();
        let pod = |n: usize| CountedPod {
            name: NamespacedName { namespace: "default".to_owned(), name: format!("web-6d4cf56db6-{n:05}") },
            uid: format!("0b1c2d3e-4f50-6172-8394-a5b6c7d8{n:04x}").parse().unwrap(),
        };
        let claim = |n: usize| PlannedClaim {
            pods: (0..15).map(|m| pod(15 * n + m)).collect(),
            ..planned(&format!("default-{n:05}"), &offerings)
        };
        let found = built_of(&(0..20).map(claim).collect::<Vec<_>>(), types);
        let launch = &found.launches[0];
        let cluster = tenon_domain::id::ClusterName::parse("prod").unwrap();
        let size = |key: &tenon_table::Key, item| tenon_table::value::item_size(key, &item);
        let of_claims = launch.claims.iter().map(|claim| {
            size(&keys::claim(&cluster, &claim.name), tenon_table::items::to_item(claim)).div_ceil(1024)
        });
        let key = keys::launch(&cluster, &launch.launch.id);
        let of_launch = size(&key, tenon_table::items::to_item(&launch.launch)).div_ceil(1024);
        // A transaction costs two write units a KB, and settling writes both items again.
        let units = 2 * 2 * (of_launch + of_claims.sum::<u64>());
        assert_eq!((launch.claims.len(), launch.launch.claims.len()), (20, 20));
        assert!(units <= 180, "300 pods write {units} units to the cluster's key");
    }

    #[test]
    fn a_full_launch_fits_into_one_transaction() {
        let claims: Vec<PlannedClaim> =
            (0..20).map(|n| planned(&format!("default-{n:02}"), &["m5.large a on-demand 0.1"])).collect();
        let found = built(&claims);
        let launch = &found.launches[0];
        // Launch, claims, template, two of the journal for each claim, the revision.
        assert_eq!(1 + launch.claims.len() + 1 + 2 * launch.records.len() + 1, 63);
    }

    /// Commits a launch of two claims that takes a lease, where something else is in the table already.
    fn commits(there: impl FnOnce(&LaunchInput<'_>, &BuiltLaunch) -> Option<Write>) -> bool {
        let claims: Vec<PlannedClaim> =
            (0..2).map(|n| planned(&format!("default-{n}"), &["m5.large a on-demand 0.1"])).collect();
        with_input(types(), |input| {
            let mut launch = build(input, &claims, &LaunchCause::PendingPods).launches.remove(0);
            launch.leases = vec![mark(8)];
            let table = MemoryTable::new(MemoryConfig::strict(1), Arc::new(|| Timestamp::UNIX_EPOCH));
            let commit = |token: &str, conditions, writes| {
                let token = CommitToken::parse(token).unwrap();
                block_on(table.commit(&Commit { token, conditions, writes })).is_ok()
            };
            let known = set(keys::unavailable(input.region, &mark(7).key), &mark(7));
            assert!(commit("known", Vec::new(), vec![known]));
            if let Some(write) = there(input, &launch) {
                assert!(commit("there", Vec::new(), vec![write]));
            }
            let mut change = Change::of(&input.registry.cluster);
            write_launch(input, &launch, 1, |_| false, &mut change);
            let WriteGroup { conditions, writes } = change.group();
            let before: Vec<_> = table.dump().collect();
            let committed = commit("launch", conditions, writes);
            assert_eq!(committed, table.dump().collect::<Vec<_>>() != before);
            committed
        })
    }

    fn mark(revision: u64) -> Mark {
        Mark { revision, ..testing::mark("offering#on-demand#use1-az-a#m5.large") }
    }

    #[test]
    fn a_launch_is_committed_only_where_nothing_of_it_is_there_and_what_it_asks_after_is_as_it_was() {
        let cluster = || "prod".parse().unwrap();
        assert!(commits(|_, _| None));
        assert!(!commits(|_, launch| {
            Some(set(keys::launch(&cluster(), &launch.launch.id), &launch.launch))
        }));
        for n in 0..2 {
            assert!(!commits(|_, launch| {
                let claim = &launch.claims[n];
                Some(set(keys::claim(&cluster(), &claim.name), claim))
            }));
        }
        assert!(!commits(|input, _| Some(set(keys::unavailable(input.region, &mark(8).key), &mark(8)))));
    }
}
