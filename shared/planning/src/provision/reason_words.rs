//! The words of reasons why pods get no node.
//!
//! Decides the sentences alone: what is the matter, and what helps.

use std::fmt;

use jiff::Timestamp;
use tenon_domain::catalog::Incompatibility;
use tenon_domain::id::{NodePoolName, Zone};
use tenon_domain::labels;
use tenon_domain::pool_class::AbsentClass;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Conflict;
use tenon_domain::resources::ResourceName;

use super::input::GuessedVcpus;
use super::report::{
    DomainExclusion, DomainLack, DomainReach, ExcludedDomains, Reason, Shortfall, UnusableVolume,
};

/// The most names that a message lists.
pub(crate) const MOST_NAMES: usize = 5;

const NO_ROOM_BESIDE_OTHERS: &str = "an instance type holds the pod alone, but the plan's other claims leave it no room within the \
     limits and `minValues`: raise `spec.limits`, lower `minValues`, or relax the pod's rules about other pods";

/// What is the matter: what to do about it.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodePool { leaving } => f.write_str(&no_node_pool(leaving)),
            Self::OnlyStaticNodePools { pools } => f.write_str(&only_static(pools)),
            Self::SchedulingGated { gates } => {
                write!(f, "the pod has scheduling gates: {}; whoever set them has to remove them", quoted(gates.iter()))
            }
            Self::UnsupportedConstraint { field, meant: None } => {
                write!(f, "`{field}` isn't supported: remove it from the pod")
            }
            Self::UnsupportedConstraint { field, meant: Some(meant) } => {
                write!(f, "`{field}` isn't supported (did you mean `{meant}`?): correct it, or remove it from the pod")
            }
            Self::VolumeClaimNotFound { claim } => {
                write!(f, "PersistentVolumeClaim `{claim}` doesn't exist: create it, or correct the pod's volume")
            }
            Self::NodeClassNotFound { class } => write!(f, "{}", AbsentClass::NotFound(class.clone())),
            Self::NodeClassNotServed { kind, group } => {
                write!(f, "{}", AbsentClass::NotServed { kind: kind.clone(), group: group.clone() })
            }
            Self::NodeClassNotReady { waiting } => write!(f, "{waiting}"),
            Self::TaintsNotTolerated { taints } => {
                write!(f, "untolerated taints {}: add a toleration to the pod", quoted(taints.iter()))
            }
            Self::IncompatibleRequirements { conflicts, .. } if conflicts.is_empty() => f.write_str(
                "no node can match a term of the pod's required node affinity: each is empty, or contradicts itself or \
                 `nodeSelector`: correct one, or remove the affinity",
            ),
            Self::IncompatibleRequirements { conflicts, of_volumes } => {
                f.write_str(&incompatible(conflicts, of_volumes))
            }
            Self::NoInstanceType { why } => write!(f, "no instance type matches {why}"),
            Self::InsufficientResources { shortfall } => f.write_str(&short(shortfall)),
            Self::TooManyVolumes { driver, volumes, most } => write!(
                f,
                "no instance type attaches {volumes} volumes of `{driver}`, {most} at most: give the pod fewer volumes, or \
                 allow instance types that attach more"
            ),
            Self::HostPortsTaken => {
                f.write_str("a DaemonSet already uses the pod's host ports: give one of them another port")
            }
            Self::NoOffering { incompatible, without_subnet: at } => f.write_str(&not_offered(incompatible, at)),
            Self::FamiliesNotAllowed { families } => f.write_str(&not_allowed(families)),
            Self::AllOfferingsUnavailable { types, zones, until } => {
                f.write_str(&none_available(*types, zones, *until))
            }
            Self::ZonesShifted { zones } => {
                let zones = quoted(zones.iter());
                write!(f, "all matching offerings are in zones with a zonal shift: {zones}: end it, or allow others")
            }
            Self::MinValuesNotSatisfied { key, min_values, values } => {
                f.write_str(&too_few_values(key, *min_values, *values))
            }
            Self::LimitsExceeded { resource } => {
                write!(f, "the `{resource}` limit leaves no room for a matching instance type: raise `spec.limits`")
            }
            Self::MaxNodesReached => f.write_str(
                "the cluster has as many nodes as `MaxNodes` allows: raise it in the cluster's stack",
            ),
            Self::MaxVcpusReached { guessed } => f.write_str(&no_vcpus(guessed.as_ref())),
            Self::VolumeUnusable { volume, why } => write!(f, "{volume}: {why}"),
            Self::VolumeClaimInUse { claim, pod } => write!(
                f,
                "PersistentVolumeClaim `{claim}` is for one pod at a time (`ReadWriteOncePod`), and pod `{pod}` has it or \
                 comes first: wait for its end, or give the pods claims of their own"
            ),
            Self::NoDomain { key, rules, lack } => f.write_str(&no_domain(key, rules, lack)),
            Self::NoRoomBesideOthers => f.write_str(NO_ROOM_BESIDE_OTHERS),
            Self::StepBudgetExhausted(_) => f.write_str("planning isn't finished, the next pass continues"),
        }
    }
}

/// From so many cores on, `M` was written for `m`. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/provisioning/scheduling/nodeclaim.go`.
const MISTAKEN_CORES: Quantity = Quantity::from_integer(1_000_000);

/// The conflicts, and which side can end them.
fn incompatible(conflicts: &[Conflict], of_volumes: &[String]) -> String {
    let of_volume = |conflict: &Conflict| of_volumes.iter().any(|key| key == conflict.key());
    let text = |conflict: &Conflict| match conflict {
        Conflict::NoCommonValue { node, pod } if of_volume(conflict) => {
            format!("the pod's volumes require `{pod}`, nodes have `{node}`")
        }
        Conflict::NoCommonValue { .. } | Conflict::Undefined { .. } => conflict.to_string(),
    };
    let is_name = |conflict: &Conflict| matches!(conflict.key(), labels::HOSTNAME | "metadata.name");
    let is_unknown = |conflict: &Conflict| matches!(conflict, Conflict::Undefined { meant: None, .. });
    let remedy = if conflicts.iter().any(|conflict| is_name(conflict) && of_volume(conflict)) {
        "the volume is on that host, which is gone or has no room: make room there, or give the pod other volumes"
    } else if conflicts.iter().any(is_name) {
        "a new node has a name of its own: let the pod select nodes by other labels, or make room on those that it names"
    } else if conflicts.iter().all(of_volume) {
        "allow it in the NodePool's requirements, or give the pod other volumes"
    } else if conflicts.iter().all(is_unknown) {
        "give the NodePool's nodes the label by `spec.template.metadata.labels`, or remove it from the pod"
    } else {
        "change the pod's or the pool's"
    };
    let all: Vec<String> = conflicts.iter().map(text).collect();
    format!("incompatible requirements: {}: {remedy}", all.join("; "))
}

fn too_few_values(key: &str, min_values: u32, values: usize) -> String {
    let are = if values == 1 { "value is" } else { "values are" };
    format!(
        "`minValues` of `{key}` is {min_values}, but only {values} {are} available: lower it, or allow more"
    )
}

/// Larger types are no remedy where no node has any, nor for storage, which the class decides.
fn short(shortfall: &Shortfall) -> String {
    let Shortfall { resource, requested, allocatable, daemon_sets, in_the_way, capacity, promised } =
        shortfall;
    let overdrawn = daemon_sets > allocatable;
    // Types without any pods at all are those that the class allows none.
    if allocatable.is_zero() && (!capacity.is_zero() || *resource == ResourceName::PODS) {
        return format!(
            "`spec.kubelet` of the EC2NodeClass leaves pods no `{resource}` on any instance type, `{requested}` is \
             requested: correct it, or allow larger types"
        );
    }
    if allocatable.is_zero() && !overdrawn {
        return format!(
            "no instance type offers pods any `{resource}`, `{requested}` is requested: allow types that have it, if EC2 \
             has any"
        );
    }
    if allocatable.is_zero() && !in_the_way.is_empty() {
        let (who, them) = daemon_sets_named(in_the_way);
        return format!(
            "no instance type offers pods any `{resource}`, and `{daemon_sets}` of it is for {who}: let {them} select nodes \
             that have it, or allow instance types that do"
        );
    }
    let daemons = match (daemon_sets.is_zero(), in_the_way.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!(" less `{daemon_sets}` of DaemonSets"),
        (false, false) => format!(" less `{daemon_sets}` of {}", daemon_sets_named(in_the_way).0),
    };
    let remedy = if *resource == ResourceName::CPU && is_mistaken(*requested) {
        "`M` is a million cores, write `m` for a thousandth"
    } else if let Some(promised) = promised {
        return format!(
            "no instance type is large enough: `{requested}` of `{resource}` is requested, `{allocatable}`{daemons} is \
             available at most: nodes of the EC2NodeClass joined with `{capacity}` instead of `{promised}`: correct its \
             `blockDeviceMappings`, `instanceStorePolicy` or `userData` to what its image mounts, or request less"
        );
    } else if *resource == ResourceName::EPHEMERAL_STORAGE {
        "request less, or give nodes more by `blockDeviceMappings` or `instanceStorePolicy: RAID0` of the EC2NodeClass"
    } else if overdrawn {
        "lower the requests of DaemonSets, or allow larger types"
    } else {
        "request less, or allow larger types"
    };
    format!(
        "no instance type is large enough: `{requested}` of `{resource}` is requested, `{allocatable}`{daemons} is available \
         at most: {remedy}"
    )
}

/// DaemonSets by name, and the word for them.
pub(super) fn daemon_sets_named(names: &[String]) -> (String, &'static str) {
    let (noun, word) = if names.len() == 1 { ("DaemonSet", "it") } else { ("DaemonSets", "them") };
    (format!("{noun} {}", few(names.iter())), word)
}

/// Whether so many cores were written with `M` or more.
fn is_mistaken(cores: Quantity) -> bool {
    cores >= MISTAKEN_CORES && cores.to_string().ends_with(['M', 'G', 'T', 'P'])
}

fn no_vcpus(guessed: Option<&GuessedVcpus>) -> String {
    let guessed = guessed.map(|guessed| format!(", {guessed}")).unwrap_or_default();
    format!("the cluster has as many vCPUs as `MaxVcpus` allows{guessed}: raise it in the cluster's stack")
}

fn not_offered(incompatible: &[Incompatibility], without_subnet: &[Zone]) -> String {
    if !without_subnet.is_empty() && incompatible.is_empty() {
        return format!(
            "no matching instance type is offered in the zones of the EC2NodeClass's subnets, but some in {}: give the class \
             subnets there, or allow other instance types",
            quoted(without_subnet.iter())
        );
    }
    if incompatible.is_empty() {
        return "no matching instance type is offered in the requested zones and capacity types: allow others"
            .to_owned();
    }
    let all: Vec<String> = incompatible.iter().map(ToString::to_string).collect();
    format!(
        "no matching instance type suits the EC2NodeClass: {}: change the class, or allow other instance types",
        all.join("; ")
    )
}

const NO_PEERS: &str = "its affinity leaves no place for the pod: no running or planned pod matches it: create such a pod, \
                        or correct the affinity's `labelSelector` or `namespaces`";

fn no_domain(key: &str, rules: &[String], lack: &DomainLack) -> String {
    let (leave, keep, need) =
        if rules.len() == 1 { ("leaves", "keeps", "needs") } else { ("leave", "keep", "need") };
    let rules = rules.join(" and ");
    match lack {
        DomainLack::Label => format!(
            "{rules} {need} the label `{key}`, and no Node or NodePool has it: add it to one, or relax the rule"
        ),
        DomainLack::Value { excluded, reach } => {
            let all: Vec<String> = excluded.iter().take(MOST_NAMES).map(ToString::to_string).collect();
            let all = if all.is_empty() { "there is none".to_owned() } else { all.join(", ") };
            format!("{rules} {leave} no value of `{key}` for the pod: {all}: {}", remedy(excluded, *reach))
        }
        DomainLack::Peers => NO_PEERS.to_owned(),
        DomainLack::PeersWait { pods } => format!(
            "its affinity follows pods that have no place either: {}: see why they have none, or relax the rule",
            few(pods.iter())
        ),
        DomainLack::PeersWaitBack { pods } => format!(
            "its affinity follows pods that wait for it in turn: {}; none can be the first: let one of the affinities select \
             the labels of its own pods, too, or make it a preferred one",
            few(pods.iter())
        ),
        DomainLack::LabelOfPeers => format!(
            "{rules} {leave} no value of `{key}` for the pod: the Nodes of the pods that it follows lack the label: add it to \
             them, or relax the rule"
        ),
        DomainLack::RoomWithPeers => format!(
            "{rules} {keep} the pod on the node of its peers, which is full: allow larger instance types, request less, or \
             relax the rule"
        ),
        DomainLack::RoomWithOthers => format!(
            "{rules} {leave} no node for the pod: no node has room and runs the pods that it follows: make room beside \
             them, or relax the rule"
        ),
    }
}

/// What gives a pod a domain: what opens a value without touching the rules first.
fn remedy(excluded: &[ExcludedDomains], reach: DomainReach) -> String {
    let all = || excluded.iter().map(|one| &one.why);
    let any = |is: fn(&DomainExclusion) -> bool| all().any(is);
    let mut ways: Vec<String> = excluded.iter().filter_map(opened).collect();
    let too_few = any(|why| matches!(why, DomainExclusion::TooFewDomains { .. }));
    let may_be_new = reach == DomainReach::Any && ways.is_empty();
    if too_few && may_be_new {
        ways.push("let NodePools offer more values".to_owned());
    }
    if too_few {
        ways.push("lower `minDomains`".to_owned());
    }
    if any(|why| matches!(why, DomainExclusion::Ahead { .. })) {
        ways.push("raise `maxSkew`".to_owned());
    }
    if any(|why| *why == DomainExclusion::SharedVolumeElsewhere) {
        ways.push("give the pods claims of their own".to_owned());
    }
    if any(|why| *why == DomainExclusion::NoneToFollow) && may_be_new {
        ways.push("let the pods that it follows run elsewhere, too".to_owned());
    }
    let avoids = any(|why| matches!(why, DomainExclusion::HoldsAvoided | DomainExclusion::KeptOut));
    if avoids && may_be_new && !any(|why| *why == DomainExclusion::NoneToFollow) {
        ways.push("let a NodePool offer another one".to_owned());
    }
    if avoids || ways.is_empty() || any(|why| *why == DomainExclusion::NoneToFollow) {
        ways.push("relax the rule".to_owned());
    }
    match ways.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{}, or {last}", before.join(", ")),
    }
}

/// What opens values that no rule about the same label is against.
fn opened(one: &ExcludedDomains) -> Option<String> {
    let values = || few(one.domains.iter());
    Some(match &one.why {
        DomainExclusion::Ahead { .. }
        | DomainExclusion::TooFewDomains { .. }
        | DomainExclusion::HoldsAvoided
        | DomainExclusion::KeptOut
        | DomainExclusion::NoneToFollow
        | DomainExclusion::SharedVolumeElsewhere => return None,
        DomainExclusion::NotSelected => {
            format!("allow {} in the pod's node selector and affinity", values())
        }
        DomainExclusion::VolumesElsewhere => format!("give the pod volumes that {} can have", values()),
        DomainExclusion::OtherRules { beside } => {
            format!("let a NodePool offer {} with {beside}", values())
        }
        DomainExclusion::OtherLabel { key } => {
            format!("let a NodePool offer {} with other values of `{key}`", values())
        }
        DomainExclusion::NoNeighbour => {
            format!("let pods that it follows run in {} on nodes with room", values())
        }
        DomainExclusion::Limited => format!("raise the limits for {}", values()),
        DomainExclusion::Unavailable => format!("wait for {}", values()),
        DomainExclusion::NoRoom => format!("make room in {}", values()),
        DomainExclusion::NotOffered => format!("let a NodePool offer {}", values()),
    })
}

/// The first values, and what is in the way.
impl fmt::Display for ExcludedDomains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, domains } = self;
        write!(f, "{} ({why})", few(domains.iter()))
    }
}

impl fmt::Display for DomainExclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead { pods: 1 } => f.write_str("1 pod more than the least"),
            Self::Ahead { pods } => write!(f, "{pods} pods more than the least"),
            Self::TooFewDomains { min_domains } => {
                write!(f, "full while there are fewer values than `minDomains` {min_domains}")
            }
            Self::HoldsAvoided => f.write_str("holds pods that it avoids"),
            Self::KeptOut => f.write_str("holds pods that avoid it"),
            Self::NoneToFollow => f.write_str("none of the pods that it follows"),
            Self::SharedVolumeElsewhere => f.write_str("the volume that it shares is elsewhere"),
            Self::NotSelected => f.write_str("its node selector or affinity is against it"),
            Self::VolumesElsewhere => f.write_str("its volumes are elsewhere"),
            Self::OtherRules { beside } => write!(f, "not with {beside}, where its other rules keep it"),
            Self::OtherLabel { key } => write!(f, "its rules about `{key}` leave no new node there"),
            Self::NoNeighbour => f.write_str("no node with room runs the pods that it needs on its node"),
            Self::Limited => f.write_str("limits leave no room"),
            Self::Unavailable => f.write_str("unavailable for now"),
            Self::NoRoom => f.write_str("no room"),
            Self::NotOffered => f.write_str("no NodePool offers it, and its Nodes don't take the pod"),
        }
    }
}

fn no_node_pool(leaving: &[NodePoolName]) -> String {
    let (noun, are) = match leaving {
        [] => return "the cluster has no NodePool: create one".to_owned(),
        [_] => ("NodePool", "is"),
        _ => ("NodePools", "are"),
    };
    format!("{noun} {} {are} being deleted, and there is no other: create one", few(leaving.iter()))
}

fn only_static(pools: &[NodePoolName]) -> String {
    let (noun, are, it) =
        if pools.len() == 1 { ("NodePool", "is", "it") } else { ("NodePools", "are", "them") };
    format!(
        "{noun} {} {are} static (`spec.replicas`), which Tenon doesn't support yet, so that pods get no node from {it}: create \
         a NodePool without `spec.replicas`",
        quoted(pools.iter())
    )
}

fn not_allowed(families: &[String]) -> String {
    let (noun, verb) = if families.len() == 1 { ("family", "isn't") } else { ("families", "aren't") };
    let told = few(families.iter());
    format!(
        "{noun} {told} {verb} among `AllowedFamilies` of the cluster's stack: add to them, or allow other instance types"
    )
}

fn none_available(types: usize, zones: &[Zone], until: Option<Timestamp>) -> String {
    let fit = if types == 1 { "type fits" } else { "types fit" };
    let again = until.map(|until| format!("; next try at `{until:.0}`")).unwrap_or_default();
    format!(
        "{types} instance {fit}, none is available now in {}{again}: allow other instance types, zones or capacity types",
        quoted(zones.iter())
    )
}

/// What is counted, and how long.
impl fmt::Display for GuessedVcpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, more, each } = self;
        match more {
            0 => write!(f, "NodeClaim `{first}` of unknown size counted as {each}")?,
            more => write!(f, "NodeClaim `{first}` and {more} more of unknown size counted as {each} each")?,
        }
        f.write_str(", the largest instance type, until their Nodes report")
    }
}

fn quoted(items: impl Iterator<Item = impl fmt::Display>) -> String {
    items.map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ")
}

/// The first names, and how many more there are.
pub(crate) fn few(names: impl ExactSizeIterator<Item = impl fmt::Display>) -> String {
    let more = match names.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", quoted(names.take(MOST_NAMES)))
}

impl fmt::Display for UnusableVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(name) => write!(f, "PersistentVolumeClaim `{name}`"),
            Self::Template(name) => write!(f, "the claim template of volume `{name}`"),
        }
    }
}
