//! The invariant of volumes: a drain waits for them.
//!
//! Decides from the times at which volumes were detached, and the claims. A drain without a deadline takes any time; one
//! that EC2 ends may leave volumes attached.

use jiff::Timestamp;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;

use crate::history::ClusterMoment;
use crate::invariants::{Invariant, has_deadline};

/// No volume of a Node is detached after its claim was drained.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_volumes_detached(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
) -> Result<(), (Invariant, String)> {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    let detachments = site.cluster().detachments();
    for claim in moment.claims.iter().filter(|claim| is_drained(claim)) {
        let (Some(node), Some(drained)) = (claim.state.node(), claim.state.since()) else { continue };
        let late = |(of, at): &&(String, Timestamp)| of == node.as_str() && *at > drained;
        if let Some((_, at)) = detachments.iter().find(late) {
            let text = format!(
                "claim {} was drained at {drained}, and a volume of its Node was detached at {at}",
                claim.name
            );
            return Err((Invariant::VolumesDetached, text));
        }
    }
    Ok(())
}

fn is_drained(claim: &Claim) -> bool {
    let drained = matches!(claim.phase(), ClaimPhase::Drained | ClaimPhase::Terminating);
    drained && claim.state.removal().is_some_and(|reason| !has_deadline(reason))
}
