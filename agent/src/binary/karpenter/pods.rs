//! Gauges of pods: where each is, and how long it waits.
//!
//! Decides their labels. There is a series for every pod, as with the peer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;
use tenon_domain::api::pod::PodPhase;
use tenon_domain::labels::{ARCH, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE};
use tenon_snapshot::object::{self, Object};
use tenon_snapshot::pod::SeenPod;

use super::labels::{LabelPairs, filled};
use super::look::ClusterLook;
use super::objects::seconds;
use super::scrape::GaugeFamily;
use super::usage::PodUse;

/// The pods of a look.
#[derive(Debug)]
pub(super) struct PodPicture {
    pub(super) look: Arc<ClusterLook>,
    /// What they use, in their order.
    pub(super) uses: Vec<Arc<PodUse>>,
    /// UIDs of pods that haven't been Ready yet, as far as it is known.
    pub(super) unstarted: BTreeSet<String>,
    pub(super) now: Timestamp,
}

/// What pods' samples say of their Node.
#[derive(Debug, Clone, Copy, Default)]
struct PodHost<'a> {
    nodepool: &'a str,
    zone: &'a str,
    arch: &'a str,
    capacity_type: &'a str,
    instance_type: &'a str,
}

impl<'a> PodHost<'a> {
    fn of(node: &'a Object) -> Self {
        let mut host = Self::default();
        for (key, value) in object::texts(node, "/metadata/labels") {
            match key {
                NODEPOOL => host.nodepool = value,
                ZONE => host.zone = value,
                ARCH => host.arch = value,
                CAPACITY_TYPE => host.capacity_type = value,
                INSTANCE_TYPE => host.instance_type = value,
                _ => {}
            }
        }
        host
    }
}

impl PodPicture {
    /// Writes them.
    ///
    /// # Errors Those of the writer.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let hosts: BTreeMap<&str, PodHost<'_>> =
            self.look.nodes.iter().map(|node| (object::name(node), PodHost::of(node))).collect();
        let mut family =
            GaugeFamily::new(encoder, "karpenter_pods_state", "Pods that aren't finished, each 1.")?;
        for (pod, one) in self.look.pods.iter().zip(&self.uses) {
            let host = pod.node.as_deref().and_then(|node| hosts.get(node)).copied().unwrap_or_default();
            family.sample(&state_labels(pod, &one.owner, host), 1.0)?;
        }
        let help = "Time since the creation of pods that aren't bound.";
        let unbound = |pod: &SeenPod| pod.phase == PodPhase::Pending && pod.node.is_none();
        self.encode_waits(encoder, "karpenter_pods_unbound_time_seconds", help, unbound)?;
        let help = "Time since the creation of pods that haven't been Ready yet.";
        let unstarted = |pod: &SeenPod| pod.phase == PodPhase::Pending || self.unstarted.contains(&pod.uid);
        self.encode_waits(encoder, "karpenter_pods_unstarted_time_seconds", help, unstarted)
    }

    fn encode_waits(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        waits: impl Fn(&SeenPod) -> bool,
    ) -> fmt::Result {
        let mut family = GaugeFamily::new(encoder, name, help)?;
        for pod in self.look.pods.iter().filter(|pod| waits(pod)) {
            if let Some(created) = pod.created_at {
                let labels = [("name", pod.key.name.as_str()), ("namespace", pod.key.namespace.as_str())];
                family.sample(&labels, seconds(created, self.now))?;
            }
        }
        Ok(())
    }
}

fn state_labels<'a>(pod: &'a SeenPod, owner: &'a str, host: PodHost<'a>) -> LabelPairs<'a> {
    let node = pod.node.as_deref().unwrap_or_default();
    let holds = |yes: bool| if yes { "true" } else { "false" };
    filled([
        ("name", pod.key.name.as_str()),
        ("namespace", pod.key.namespace.as_str()),
        ("owner", owner),
        ("node", node),
        ("nodepool", host.nodepool),
        ("zone", host.zone),
        ("arch", host.arch),
        ("capacity_type", host.capacity_type),
        ("instance_type", host.instance_type),
        ("phase", pod.phase.as_str()),
        ("scheduled", holds(!node.is_empty())),
        ("ready", holds(pod.ready_at.is_some())),
        ("managed", holds(!host.nodepool.is_empty())),
    ])
}
