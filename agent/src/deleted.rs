//! Nodes that leave because they, their NodeClaim or its NodePool are deleted, and the taint that keeps pods off
//! them.
//!
//! Decides which Nodes those are, from the cluster's objects alone. The taint needs no service of AWS, so it is set
//! while AWS is away. It drains nothing: functions decide evictions.
//!
//! Invariants: a NodeClaim that Tenon didn't create takes no Node with it; a Node that isn't deleted any longer, such
//! as one whose NodePool exists again, loses the taint at the next convergence.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/node/termination/controller.go`, which taints as soon as it
//! sees the deletion.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tenon_domain::labels;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::{Kube, KubeError, Precondition};

use crate::faces::{is_ours, is_owned_by_pool, list};
use crate::plan::{CLAIM_ANNOTATION, with_disrupted};

/// How often a Node is read again after a conflict; the next step does the rest.
const ROUNDS: usize = 3;

/// The objects that decide which Nodes leave.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// Tenon's NodeClaims, by name.
    pub claims: BTreeMap<String, Object>,
    /// All NodePools, by name; `None` if the API server doesn't have the kind.
    pub pools: Option<BTreeMap<String, Object>>,
}

/// The deleted objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// Names of claims whose NodeClaim, NodePool or Node is deleted.
    pub claims: BTreeSet<String>,
    /// Names of our Nodes that leave with them.
    pub nodes: BTreeSet<String>,
}

/// Whether all Nodes under deletion have the taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tainted {
    /// They have.
    All,
    /// Some changed meanwhile: look again in a moment.
    Some,
}

impl Owners {
    /// Reads them.
    ///
    /// # Errors
    /// [`KubeError`]: try again at the next step.
    pub async fn observe<K: Kube>(kube: &K) -> Result<Self, KubeError> {
        let pools = match kube.list(Kind::NodePool).await {
            Ok(pools) => Some(pools),
            Err(KubeError::UnknownKind { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self::of(list(kube, Kind::NodeClaim).await?, pools))
    }

    /// Those among all NodeClaims, and the NodePools.
    #[must_use]
    pub fn of(claims: Vec<Object>, pools: Option<Vec<Object>>) -> Self {
        let named = |object: Object| (object::name(&object).to_owned(), object);
        Self {
            claims: claims.into_iter().filter(|claim| is_ours(claim)).map(named).collect(),
            pools: pools.map(|pools| pools.into_iter().map(named).collect()),
        }
    }

    /// Whether the NodePool of a NodeClaim is being deleted, or is gone and takes the NodeClaim with it. `--cascade=orphan`
    /// leaves NodeClaims without an owner, and so does a pool that isn't there yet.
    fn lost_pool(&self, claim: &Value) -> bool {
        let labelled = object::texts(claim, "/metadata/labels").find(|(key, _)| *key == labels::NODEPOOL);
        let (Some((_, name)), Some(pools)) = (labelled, &self.pools) else { return false };
        match pools.get(name) {
            Some(pool) => object::deleted_at(pool).is_some(),
            None => is_owned_by_pool(claim),
        }
    }

    /// Whether the Node's owner is a NodeClaim that doesn't exist: it was deleted without our finalizer, and
    /// Kubernetes will delete the Node.
    fn lost_claim(&self, node: &Value, claim: &str) -> bool {
        let mut owners = object::list(node, "/metadata/ownerReferences").iter();
        let owner = owners.find(|owner| {
            text(owner, "/kind") == Some(Kind::NodeClaim.as_str()) && text(owner, "/name") == Some(claim)
        });
        let uid = owner.and_then(|owner| text(owner, "/uid"));
        uid.is_some_and(|uid| self.claims.get(claim).is_none_or(|claim| object::uid(claim) != uid))
    }
}

/// The deleted Nodes and claims.
#[must_use]
pub fn find_deleted(nodes: &[Object], owners: &Owners) -> Deleted {
    let goes = |claim: &Object| object::deleted_at(claim).is_some() || owners.lost_pool(claim);
    let going = owners.claims.iter().filter(|(_, claim)| goes(claim)).map(|(name, _)| name.clone());
    let mut deleted = Deleted { claims: going.collect(), nodes: BTreeSet::new() };
    let by_provider: BTreeMap<&str, &str> = owners
        .claims
        .iter()
        .filter_map(|(name, claim)| Some((text(claim, "/status/providerID")?, name.as_str())))
        .collect();
    for node in nodes {
        let annotated =
            object::texts(node, "/metadata/annotations").find(|(key, _)| *key == CLAIM_ANNOTATION);
        // A Node that isn't registered yet is known by its instance alone.
        let of_instance = || by_provider.get(text(node, "/spec/providerID")?).copied();
        let Some(claim) = annotated.map(|(_, claim)| claim).or_else(of_instance) else { continue };
        let goes = deleted.claims.contains(claim)
            || object::deleted_at(node).is_some()
            || owners.lost_claim(node, claim);
        if goes {
            deleted.claims.insert(claim.to_owned());
            deleted.nodes.insert(object::name(node).to_owned());
        }
    }
    deleted
}

/// Adds `karpenter.sh/disrupted:NoSchedule` to leaving Nodes. Repeating it, or an action with the same taint, changes
/// nothing.
///
/// # Errors [`KubeError`]: try again in a moment.
pub async fn taint_deleted<K: Kube>(kube: &K) -> Result<Tainted, KubeError> {
    for _ in 0..ROUNDS {
        let owners = Owners::observe(kube).await?;
        let nodes = kube.list(Kind::Node).await?;
        let deleted = find_deleted(&nodes, &owners);
        let going = nodes.iter().filter(|node| deleted.nodes.contains(object::name(node)));
        let missing: Vec<_> = going.filter_map(|node| Some((node, with_disrupted(node)?))).collect();
        if missing.is_empty() {
            return Ok(Tainted::All);
        }
        for (node, taints) in missing {
            let version = text(node, "/metadata/resourceVersion").unwrap_or_default().to_owned();
            let patch = json!({"spec": {"taints": taints}});
            let precondition = Precondition::ResourceVersion(version);
            match kube.patch(&ObjectKey::node(object::name(node)), &patch, &precondition).await {
                // The next round sees a Node that changed or disappeared.
                Ok(_) | Err(KubeError::Conflict { .. } | KubeError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Tainted::Some)
}
