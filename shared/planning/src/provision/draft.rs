//! What packing works with: groups of pods as a pool sees them, and drafts of equal claims.
//!
//! Decides nothing.

use std::collections::BTreeSet;

use tenon_domain::api::pod::HostPort;
use tenon_domain::id::ReservationId;

use super::attachments::{SharedHere, SharedVolume};
use super::dense::{DenseAmounts, add_times};
use super::topology::neighbours::{FirstOfItsKind, NodeRules};

/// A group as one pool sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    /// Its index in the plan's groups.
    pub(crate) group: usize,
    /// `spec.priority` of its pods.
    pub(crate) priority: i32,
    /// The pool's class for it.
    pub(crate) class: usize,
    /// The needs of one pod.
    pub(crate) need: &'a DenseAmounts,
    /// Its volumes that other pods use, too: once a claim.
    pub(crate) volumes: &'a [SharedVolume],
    /// Its host ports.
    pub(crate) host_ports: &'a BTreeSet<HostPort>,
    /// Its rules about the other pods of a claim.
    pub(crate) rules: &'a NodeRules,
    /// Whether the pods that it needs beside it are nowhere, so that its own may come first.
    pub(crate) first: FirstOfItsKind,
    /// The worth of one pod; see the module.
    pub(crate) worth: f64,
    /// How many pods wait.
    pub(crate) waiting: u32,
}

/// Equal claims.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The class of the requirements of their pods and the pool.
    pub(crate) class: usize,
    /// The type that the pods were packed for.
    pub(crate) type_index: usize,
    /// Its price.
    pub(crate) price: u64,
    /// Pods by member.
    pub(crate) counts: Vec<(usize, u32)>,
    /// How many such claims.
    pub(crate) times: u32,
    /// The capacity reservation that they use; set after packing.
    pub(crate) reservation: Option<ReservationId>,
}

/// What pods need together, each shared volume once.
pub(crate) fn sum(members: &[Member<'_>], counts: &[(usize, u32)]) -> DenseAmounts {
    let dimensions = members.first().map_or(0, |member| member.need.len());
    let mut need = vec![0; dimensions];
    let mut shared = SharedHere::default();
    for (index, count) in counts {
        if let Some(member) = members.get(*index) {
            add_times(&mut need, member.need, *count);
            shared.add(member.volumes, &mut need, 1);
        }
    }
    need
}
