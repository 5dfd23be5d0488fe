//! What is read of one interrupted instance: whose it is, and its claim. Two calls of the table.

use tenon_domain::claim::Claim;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_entrypoint::observe::form_error;
use tenon_entrypoint::{HandlerError, Ports};
use tenon_table::items::{InstanceOwner, from_item, keys};
use tenon_table::{Consistency, Table};

/// The instance's cluster and claim; nothing for an instance that isn't ours, after one read.
///
/// # Errors
/// [`HandlerError`] when they can't be read.
pub async fn observe_claim<P: Ports>(
    ports: &P,
    instance: &InstanceId,
) -> Result<Option<(ClusterName, Claim)>, HandlerError> {
    let key = keys::instance(instance);
    let Some(item) = ports.table().get(&key, Consistency::Strong).await? else { return Ok(None) };
    let owner: InstanceOwner = from_item(&key, &item).map_err(form_error)?;
    let key = keys::claim(&owner.cluster, &owner.claim);
    let Some(item) = ports.table().get(&key, Consistency::Strong).await? else { return Ok(None) };
    Ok(Some((owner.cluster, from_item(&key, &item).map_err(form_error)?)))
}
