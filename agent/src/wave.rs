//! Nodes that take pods together.
//!
//! Decides which Nodes stay closed, though they are Ready: those with pods that kube-scheduler may refuse until others run
//! elsewhere, as a topology spread has it. It tries all waiting pods whenever a Node opens. Pods that it refuses there lose
//! their nomination, and their room to pods whose own Nodes open later; each of them costs a node of its own then. So such
//! a Node waits for those that were launched with it, [`LONGEST`] at most.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClaimName;
use tenon_domain::taint::{OPENING, UNREGISTERED};
use tenon_snapshot::object;
use tenon_snapshot::{ActionKind, NodeAction};

use crate::plan::{Opening, View, find_node, needs_late_daemons, opening_of};

/// A Node that is Ready waits no longer. Nodes of one launch are Ready within some seconds of each other.
const LONGEST: SignedDuration = SignedDuration::from_secs(10);
/// NodeClaims that are made within so long of each other are one wave.
const WAVE: SignedDuration = SignedDuration::from_secs(15);

/// A Node that may wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MayWait {
    /// Its name.
    pub(crate) node: String,
    /// When it opens at the latest.
    pub(crate) until: Timestamp,
}

/// The claims whose Nodes are Ready and closed while others of their wave still start.
pub(crate) fn may_wait(view: &View, actions: &[NodeAction], now: Timestamp) -> BTreeMap<ClaimName, MayWait> {
    // Where a Node isn't tainted, its pods come anyway.
    if needs_late_daemons(view) {
        return BTreeMap::new();
    }
    let made_at = |action: &NodeAction| {
        object::time(view.claims.get(action.claim.as_str())?, "/metadata/creationTimestamp")
    };
    let ready_at = |action: &NodeAction| object::true_since(find_node(view, action)?, "Ready");
    let registers = actions.iter().filter(|action| action.kind == ActionKind::Register);
    let starting: Vec<Timestamp> =
        registers.filter(|action| ready_at(action).is_none()).filter_map(made_at).collect();
    let of = |action: &NodeAction| {
        let (node, made_at) = (find_node(view, action)?, made_at(action)?);
        let ready_at = ready_at(action).filter(|at| *at <= now)?;
        let until = ready_at.checked_add(LONGEST).ok().filter(|until| now < *until)?;
        let same_wave = |other: &Timestamp| other.duration_since(made_at).abs() <= WAVE;
        let waits =
            object::taints(node).iter().any(|taint| [UNREGISTERED, OPENING].contains(&taint.key.as_str()))
                && opening_of(node, action) == Opening::Now
                && starting.iter().any(same_wave);
        waits.then(|| (action.claim.clone(), MayWait { node: object::name(node).to_owned(), until }))
    };
    let closed = |action: &&NodeAction| match action.kind {
        ActionKind::Register | ActionKind::Initialize => true,
        ActionKind::Disrupt | ActionKind::Drain | ActionKind::Finalize => false,
    };
    actions.iter().filter(closed).filter_map(of).collect()
}
