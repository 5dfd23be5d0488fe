//! The deed of a user who deletes the EC2NodeClass, and the invariant that it stays while claims use it.
//!
//! Decides from the cluster's objects and the claims. The user deletes the NodePools too once the class doesn't go, and
//! makes all of them again.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;
use tenon_simulated_cluster::SimulatedCluster;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{deleted_at, name, text_map, time};

use crate::history::ClusterMoment;
use crate::invariants::Invariant;
use crate::random::Dice;
use crate::world::node_class;

/// The class of simulated worlds.
const CLASS: &str = "default";
/// How long the user waits for the class to go before the NodePools are deleted.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// A user who deletes the class now and then.
pub(crate) struct ClassDeletions {
    dice: Dice,
    /// Whether this world's user ever does.
    deletes: bool,
    /// Since when the class is deleted and not made again.
    since: Option<Timestamp>,
    /// NodePools that were deleted for it.
    pools: Vec<Value>,
}

impl ClassDeletions {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 22);
        let deletes = dice.permille(300);
        Self { dice, deletes, since: None, pools: Vec::new() }
    }

    /// Whether a class is missing, or its NodePools.
    pub(crate) const fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// Deletes the class, or goes on with what that began.
    pub(crate) fn act(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let Some(site) = region.site(cluster).filter(|_| self.deletes) else { return };
        let kube = site.cluster();
        let Some(since) = self.since else {
            if self.dice.permille(15) {
                kube.delete(Kind::Ec2NodeClass, "", CLASS);
                self.since = Some(region.now());
            }
            return;
        };
        let class = kube.object(Kind::Ec2NodeClass, "", CLASS);
        if class.is_some_and(|class| deleted_at(&class).is_some()) {
            if region.now().duration_since(since) > PATIENCE && self.pools.is_empty() {
                self.pools = kube.objects(Kind::NodePool).iter().map(|pool| Value::clone(pool)).collect();
                for pool in &self.pools {
                    kube.delete(Kind::NodePool, "", name(pool));
                }
            }
        } else if self.dice.permille(200) {
            self.make_again(kube, cluster);
        }
    }

    /// Makes the class and its NodePools again, at once: a finalizer is patched away.
    pub(crate) fn end(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let Some(site) = region.site(cluster) else { return };
        let kube = site.cluster();
        if kube.object(Kind::Ec2NodeClass, "", CLASS).is_some_and(|class| deleted_at(&class).is_some()) {
            let _ = kube.apply(json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
                "metadata": {"name": CLASS, "finalizers": []}}));
        }
        if self.is_on() {
            self.make_again(kube, cluster);
        }
    }

    fn make_again(&mut self, kube: &SimulatedCluster, cluster: &ClusterName) {
        self.since = None;
        if kube.object(Kind::Ec2NodeClass, "", CLASS).is_none() {
            let _ = kube.apply(node_class(cluster.as_str()));
        }
        for pool in self.pools.drain(..) {
            let _ = kube.apply(again(&pool));
        }
    }
}

/// An object as a user makes it again.
pub(crate) fn again(object: &Value) -> Value {
    let mut annotations = text_map(object, "/metadata/annotations");
    annotations.retain(|key, _| key.starts_with("tenon.dev/"));
    json!({"apiVersion": object.get("apiVersion"), "kind": object.get("kind"),
        "metadata": {"name": name(object), "annotations": annotations}, "spec": object.get("spec")})
}

/// When the agent last looked at the class, and all that it wrote then succeeded.
#[derive(Debug, Default)]
pub(crate) struct ClassSeen(Option<Timestamp>);

/// How long after a claim was planned an agent that looks holds its class.
const HELD_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// A claim that was planned while its class existed doesn't outlast it, if the agent looked meanwhile.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_classes_outlast_claims(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
    seen: &mut ClassSeen,
) -> Result<(), (Invariant, String)> {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    if let Some(class) = site.cluster().object(Kind::Ec2NodeClass, "", CLASS) {
        // A look before the class was made again was at the one before. Times of objects are whole seconds.
        let made = time(&class, "/metadata/creationTimestamp").unwrap_or(Timestamp::MAX);
        let looked = site.agent_converged_at();
        seen.0 = Some(looked).filter(|looked| looked.duration_since(made) >= SignedDuration::from_secs(1));
        return Ok(());
    }
    let outlasts = |at: Timestamp| {
        let is_held = |created_at| at.duration_since(created_at) > HELD_WITHIN;
        moment.claims.iter().find(|claim| is_held(claim.created_at) && !claim.phase().is_final())
    };
    match seen.0.and_then(outlasts) {
        Some(claim) => {
            let text = format!("claim {} is {:?}, and its class is gone", claim.name, claim.phase());
            Err((Invariant::ClassesOutlastClaims, text))
        }
        None => Ok(()),
    }
}
