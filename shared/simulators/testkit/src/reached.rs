//! Situations that a history reached, seen in the actual cluster.
//!
//! Decides nothing: a world that never reaches a situation proves nothing about it, so situations are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::api::pod::Readiness;
use tenon_domain::api::{Node, Pod};
use tenon_domain::claim::{Claim, ClaimPhase, RemovalReason};
use tenon_domain::class_status::{ConditionReason, ConditionStatus, ConditionType, ImageFault};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::labels::IMAGE_POLICY;
use tenon_domain::manifest;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_ec2::port::ImageState;
use tenon_region::engine::SimulatedRegion;
use tenon_simulated_cluster::SimulatedCluster;
use tenon_snapshot::Kind;
use tenon_snapshot::object::at;

use crate::expiry::ExpiryWaits;
use crate::history::ClusterMoment;
use crate::pipeline::BUILT;
use crate::repaired::impaired_gone;
use crate::selected::ForeignImages;
use crate::silence::never_fits;

/// Launches that are planned no further apart may meet: a pass takes about as long.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(5);

tenon_domain::words! {
    /// A situation that histories are to come to.
    pub enum Situation {
        /// A pending pod fits on a Node whose taints it doesn't tolerate.
        TaintedRoom = "tainted nodes with room",
        /// Pods of several groups wait, and a Node has room for one of each, but not for all.
        SharedRoom = "several groups beside room for one",
        /// A Node is there that a DaemonSet doesn't run on because of its taints.
        IntolerantDaemons = "DaemonSets that don't tolerate a node",
        /// Of several replacements of a command one is initialised before another.
        ReplacementsApart = "replacements that become ready apart",
        /// An edited class isn't resolved, because EC2 didn't answer.
        EditedUnanswered = "edited classes while EC2 throttles",
        /// A class selects a stranger's image that is newer than its resolved one.
        ForeignImages = "foreign images",
        /// Two clusters launch within seconds of each other.
        ClustersAtOnce = "two clusters that launch at once",
        /// A pod waits that fits nowhere.
        FitsNowhere = "pods that fit nowhere",
        /// EC2 makes an image that is newer than what a class has.
        PendingNewer = "newer images that are pending",
        /// A class doesn't accept a newer image.
        Rejected = "newer images that a class rejects",
        /// A class has an image that its policy accepts only since its tags changed.
        Retagged = "images approved after they were built",
        /// Nodes run from an image that is disabled or deregistered.
        ImageGone = "nodes of images that are gone",
        /// A class isn't ready, because its instance profile is missing or has no role.
        ProfileLost = "classes without their instance profile",
        /// A class isn't ready, because EC2 refused a launch from it.
        LaunchRefused = "classes whose launches are refused",
        /// A class is told as denied.
        Denied = "classes whose dry runs are denied",
        /// A node leaves because it is empty.
        EmptyGone = "nodes that leave empty",
        /// A node leaves because its pods cost less elsewhere.
        UnderutilizedGone = "nodes that leave underutilised",
        /// A consolidation is undone.
        Undone = "consolidations that are undone",
        /// Pods of an interrupted node stay while their replacement starts.
        PodsStay = "pods that stay on interrupted nodes",
        /// A drained node waits for nothing but its volumes.
        VolumesHold = "drained nodes that wait for volumes",
        /// A node leaves because it stayed unhealthy.
        Repaired = "nodes that leave unhealthy",
        /// A node leaves for its age before it has to.
        ExpiredWithinBudgets = "expired nodes that leave within budgets",
        /// A node leaves for its age when it has to.
        ExpiryForced = "expired nodes that nothing keeps any longer",
        /// A command gave its nodes back because a pause began.
        PauseEnds = "commands that a pause ends",
        /// A node leaves because its instance fails a status check.
        ImpairedGone = "nodes that leave for a status check",
    }
}

/// The situations so far.
#[derive(Debug, Default)]
pub(crate) struct Reached(pub(crate) BTreeSet<Situation>);

impl Reached {
    /// Looks at a cluster at one step.
    pub(crate) fn look(
        &mut self,
        region: &SimulatedRegion,
        cluster: &ClusterName,
        moment: &ClusterMoment,
        strangers: &ForeignImages,
    ) {
        self.note(Situation::ReplacementsApart, || replacements_apart(moment));
        let leaves = |why| moment.claims.iter().any(|claim| claim.state.removal() == Some(why));
        self.note(Situation::EmptyGone, || leaves(RemovalReason::Empty));
        self.note(Situation::UnderutilizedGone, || leaves(RemovalReason::Underutilized));
        self.note(Situation::Repaired, || leaves(RemovalReason::Unhealthy));
        let waits = ExpiryWaits::of(region, cluster);
        let goes =
            |how: fn(&ExpiryWaits, &Claim) -> bool| moment.claims.iter().any(|claim| how(&waits, claim));
        self.note(Situation::ExpiredWithinBudgets, || goes(ExpiryWaits::is_within_budgets));
        self.note(Situation::ExpiryForced, || goes(ExpiryWaits::is_forced));
        self.note(Situation::ImpairedGone, || impaired_gone(region, moment));
        self.note(Situation::Undone, || undone(region, cluster, moment));
        self.note(Situation::PauseEnds, || {
            // Only a pause leaves a command without candidates.
            region.commands(cluster).iter().any(|command| command.candidates.is_empty())
        });
        self.note(Situation::PodsStay, || pods_stay(region, cluster, moment));
        self.note(Situation::VolumesHold, || volumes_hold(region, cluster, moment));
        self.note(Situation::EditedUnanswered, || edited_unanswered(region, cluster));
        self.note(Situation::ForeignImages, || foreign_images(region, cluster, strangers));
        self.note(Situation::PendingNewer, || newer_pending(region, cluster));
        self.note(Situation::Retagged, || retagged(region, cluster));
        self.note(Situation::ImageGone, || image_gone(region, moment));
        self.look_at_classes(region, cluster);
        let of_nodes = [
            Situation::TaintedRoom,
            Situation::SharedRoom,
            Situation::IntolerantDaemons,
            Situation::FitsNowhere,
        ];
        if let Some(site) = region.site(cluster)
            && of_nodes.iter().any(|reach| !self.0.contains(reach))
        {
            self.look_at_nodes(site.cluster());
        }
    }

    /// Looks at all clusters at one step.
    pub(crate) fn look_at_launches(&mut self, moments: &[ClusterMoment]) {
        let times = |moment: &ClusterMoment| -> Vec<Timestamp> {
            moment.launches.iter().map(|launch| launch.created_at).collect()
        };
        self.note(Situation::ClustersAtOnce, || match moments {
            [one, other] => {
                let others = times(other);
                let near =
                    |at: &Timestamp| others.iter().any(|other| at.duration_since(*other).abs() <= AT_ONCE);
                times(one).iter().any(near)
            }
            _ => false,
        });
    }

    fn look_at_classes(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        for class in region.classes(cluster) {
            let reason = |condition| class.condition(condition).map(|told| told.reason);
            self.note(Situation::Rejected, || {
                class
                    .rejected_images
                    .iter()
                    .any(|image| image.reasons.iter().any(|reason| reason.fault == ImageFault::TagsMissing))
            });
            self.note(Situation::ProfileLost, || {
                use ConditionReason::{InstanceProfileNotFound, InstanceProfileWithoutRole};
                matches!(
                    reason(ConditionType::InstanceProfileReady),
                    Some(InstanceProfileNotFound | InstanceProfileWithoutRole)
                )
            });
            self.note(Situation::LaunchRefused, || {
                let is_refused = |condition| reason(condition) == Some(ConditionReason::LaunchRefused);
                is_refused(ConditionType::InstanceProfileReady)
                    || is_refused(ConditionType::ValidationSucceeded)
            });
            self.note(Situation::Denied, || {
                reason(ConditionType::ValidationSucceeded)
                    == Some(ConditionReason::RunInstancesAuthCheckFailed)
            });
        }
    }

    fn note(&mut self, reach: Situation, is_reached: impl FnOnce() -> bool) {
        if !self.0.contains(&reach) && is_reached() {
            self.0.insert(reach);
        }
    }

    fn look_at_nodes(&mut self, cluster: &SimulatedCluster) {
        let nodes = cluster.objects(Kind::Node);
        let nodes: Vec<Node> = nodes.iter().filter_map(|node| manifest::node_from_value(node).ok()).collect();
        let ready: Vec<&Node> = nodes.iter().filter(|node| node.readiness == Readiness::Ready).collect();
        if ready.is_empty() {
            return;
        }
        self.note(Situation::IntolerantDaemons, || {
            let sets = cluster.objects(Kind::DaemonSet);
            sets.iter().any(|set| ready.iter().any(|node| !tolerates(&tolerations(set), node)))
        });
        let pods = cluster.objects(Kind::Pod);
        self.note(Situation::FitsNowhere, || pods.iter().any(|pod| never_fits(pod)));
        let pods: Vec<Pod> = pods.iter().filter_map(|pod| manifest::pod_from_value(pod).ok()).collect();
        let mut groups: BTreeMap<String, &Pod> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pod.is_unbound() && pod.deleted_at.is_none()) {
            groups.entry(pod.shape.requests.to_string()).or_insert(pod);
        }
        for node in ready {
            let room = room_on(node, &pods);
            let here: Vec<&&Pod> =
                groups.values().filter(|pod| selects(pod, node) && fits(pod, &room)).collect();
            let (welcome, kept_out): (Vec<&Pod>, Vec<&Pod>) =
                here.into_iter().copied().partition(|pod| tolerates(&pod.shape.tolerations, node));
            self.note(Situation::TaintedRoom, || !kept_out.is_empty());
            let together = ResourceList::sum(welcome.iter().map(|pod| &pod.shape.requests));
            self.note(Situation::SharedRoom, || welcome.len() > 1 && !together.fits(&room));
        }
    }
}

fn replacements_apart(moment: &ClusterMoment) -> bool {
    let ready_at = |name: &ClaimName| {
        let claim = moment.claims.iter().find(|claim| claim.name == *name)?;
        claim.state.since().filter(|_| claim.phase() == ClaimPhase::Initialized)
    };
    moment.commands.iter().filter(|command| command.is_active()).any(|command| {
        let times: BTreeSet<Option<Timestamp>> = command.replacements.iter().map(ready_at).collect();
        times.len() > 1 && times.iter().any(Option::is_some)
    })
}

fn volumes_hold(region: &SimulatedRegion, cluster: &ClusterName, moment: &ClusterMoment) -> bool {
    let Some(site) = region.site(cluster) else { return false };
    let pods = site.cluster().pods_by_node();
    let attachments = site.cluster().objects(Kind::VolumeAttachment);
    let mut draining = moment.claims.iter().filter(|claim| claim.phase() == ClaimPhase::Draining);
    draining.any(|claim| {
        let Some(node) = claim.state.node() else { return false };
        let on_node = |of: &Value| at(of, "/spec/nodeName").and_then(Value::as_str) == Some(node.as_str());
        pods.get(node.as_str()).is_some_and(Vec::is_empty) && attachments.iter().any(|of| on_node(of))
    })
}

fn edited_unanswered(region: &SimulatedRegion, cluster: &ClusterName) -> bool {
    region.classes(cluster).iter().any(|class| {
        let unknown = |status| status == ConditionStatus::Unknown;
        class.generation > 1 && class.conditions.iter().any(|condition| unknown(condition.status))
    })
}

fn newer_pending(region: &SimulatedRegion, cluster: &ClusterName) -> bool {
    let images = region.twin().images();
    let pending = images.iter().filter(|image| image.state == ImageState::Pending);
    let Some(newest) = pending.filter_map(|image| image.created_at).max() else { return false };
    region.classes(cluster).iter().any(|class| class.images.iter().any(|image| image.created_at < newest))
}

/// Every image of the pipeline is made without the tag that policies require.
fn retagged(region: &SimulatedRegion, cluster: &ClusterName) -> bool {
    let Some(site) = region.site(cluster) else { return false };
    let with_policy = |class: &Arc<Value>| {
        at(class, "/metadata/annotations").is_some_and(|annotations| annotations.get(IMAGE_POLICY).is_some())
    };
    site.cluster().objects(Kind::Ec2NodeClass).iter().any(with_policy)
        && region
            .classes(cluster)
            .iter()
            .flat_map(|class| &class.images)
            .any(|image| image.name.starts_with(BUILT))
}

fn image_gone(region: &SimulatedRegion, moment: &ClusterMoment) -> bool {
    moment.live_instances().any(|record| {
        let state = region.twin().image_state(&record.instance.image);
        matches!(state, Some(ImageState::Disabled | ImageState::Deregistered))
    })
}

fn foreign_images(region: &SimulatedRegion, cluster: &ClusterName, strangers: &ForeignImages) -> bool {
    let Some(newest) = strangers.values().max() else { return false };
    let older = |image: &tenon_domain::class_status::ResolvedImage| image.created_at < *newest;
    region.classes(cluster).iter().any(|class| class.resolved_at > *newest && class.images.iter().any(older))
}

fn tolerations(daemon_set: &Value) -> Vec<Toleration> {
    let template = at(daemon_set, "/spec/template").cloned().unwrap_or_default();
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "daemon", "namespace": "kube-system", "uid": "daemon"},
        "spec": template.get("spec"),
    });
    manifest::pod_from_value(&pod).map(|pod| pod.shape.tolerations.clone()).unwrap_or_default()
}

/// Whether pods with these tolerations may go to a Node, considering its permanent taints.
fn tolerates(tolerations: &[Toleration], node: &Node) -> bool {
    let stays = |taint: &&Taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !taint.key.starts_with("node.kubernetes.io/")
            && !taint.key.starts_with("karpenter.sh/")
    };
    let tolerated = |taint: &Taint| tolerations.iter().any(|toleration| toleration.tolerates(taint));
    node.taints.iter().filter(stays).all(tolerated)
}

fn selects(pod: &Pod, node: &Node) -> bool {
    pod.shape.node_selector.iter().all(|(key, value)| node.meta.labels.get(key) == Some(value))
}

fn fits(pod: &Pod, room: &ResourceList) -> bool {
    pod.shape.requests.fits(room)
}

/// The free resources of a Node.
fn room_on(node: &Node, pods: &[Pod]) -> ResourceList {
    let here = pods.iter().filter(|pod| !pod.is_finished() && pod.node.as_ref() == Some(&node.name));
    let taken = ResourceList::sum(here.map(|pod| &pod.shape.requests));
    node.allocatable.clone().minus(&taken)
}

/// Whether a Node that EC2 takes back within a minute and a half has pods, and another claim's instance starts.
fn pods_stay(region: &SimulatedRegion, cluster: &ClusterName, moment: &ClusterMoment) -> bool {
    let Some(site) = region.site(cluster) else { return false };
    let starts = |claim: &Arc<Claim>| claim.phase() == ClaimPhase::Launched;
    let by_node = || site.cluster().pods_by_node();
    let holds = |claim: &&Arc<Claim>| {
        let ends = claim.state.holds_pods_until();
        ends.is_some_and(|ends| ends.duration_since(moment.at) < SignedDuration::from_secs(90))
    };
    let held: Vec<&Arc<Claim>> = moment.claims.iter().filter(holds).collect();
    !held.is_empty()
        && moment.claims.iter().any(starts)
        && held
            .iter()
            .filter_map(|claim| claim.state.node())
            .any(|node| by_node().get(node.as_str()).is_some_and(|pods| !pods.is_empty()))
}

/// Whether a consolidation is done whose candidates all stay.
fn undone(region: &SimulatedRegion, cluster: &ClusterName, moment: &ClusterMoment) -> bool {
    let stays = |name: &ClaimName| {
        moment.claims.iter().any(|claim| claim.name == *name && claim.phase() == ClaimPhase::Initialized)
    };
    region.commands(cluster).iter().any(|command| {
        let done = !command.is_active() && command.reason == RemovalReason::Underutilized;
        done && !command.candidates.is_empty() && command.candidates.iter().all(stays)
    })
}
