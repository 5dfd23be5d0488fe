//! The invariant of volumes: a drain waits for them.
//!
//! Decides from the cluster's VolumeAttachments and the claims. A drain without a deadline takes any time; one that EC2
//! ends may leave volumes attached.

use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::text;

use crate::history::ClusterMoment;
use crate::invariants::{Invariant, has_deadline};

/// The instance of a drained claim isn't terminated while a volume is attached to its Node.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_volumes_detached(
    region: &SimulatedRegion,
    cluster: &tenon_domain::id::ClusterName,
    moment: &ClusterMoment,
) -> Result<(), (Invariant, String)> {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    let attachments = site.cluster().objects(Kind::VolumeAttachment);
    if attachments.is_empty() {
        return Ok(());
    }
    let nodes = site.cluster().objects(Kind::Node);
    let is_there = |name: &str| nodes.iter().any(|node| text(node, "/metadata/name") == Some(name));
    for claim in moment.claims.iter().filter(|claim| is_drained(claim)) {
        let Some(node) = claim.state.node().filter(|node| is_there(node.as_str())) else { continue };
        let on_node = |of: &&tenon_snapshot::Object| text(of, "/spec/nodeName") == Some(node.as_str());
        if let Some(attachment) = attachments.iter().find(on_node) {
            let volume = text(attachment, "/spec/source/persistentVolumeName").unwrap_or_default();
            let text =
                format!("claim {} is drained, but volume {volume} is attached to its Node", claim.name);
            return Err((Invariant::VolumesDetached, text));
        }
    }
    Ok(())
}

fn is_drained(claim: &Claim) -> bool {
    let drained = matches!(claim.phase(), ClaimPhase::Drained | ClaimPhase::Terminating);
    drained && claim.state.removal().is_some_and(|reason| !has_deadline(reason))
}
