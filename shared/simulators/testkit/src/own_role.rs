//! Launch roles: whose rights launches have.

use std::sync::Arc;

use tenon_domain::tags;
use tenon_twin::RequestRecord;

use crate::invariants::{Found, Invariant};

/// Every fleet is asked for by the launch role of the cluster that it is for, whatever EC2 answers.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_asked_by_own_role(requests: &[Arc<RequestRecord>]) -> Found {
    for request in requests {
        let of = request.tags.get(tags::CLUSTER).map_or("nobody", String::as_str);
        let by = request.by.as_ref().map_or("nobody", |cluster| cluster.as_str());
        if of != by || request.by.is_none() {
            let text =
                format!("at {} a fleet of cluster {of} was asked for by the launch role of {by}", request.at);
            return Err((Invariant::AskedByOwnRole, text));
        }
    }
    Ok(())
}
