//! Observes one interrupted instance: its owner, then its claim and the mark of its offering. That takes two calls of
//! the table, and a third for a capacity reservation, which only the claim names.

use tenon_domain::claim::Claim;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::unavailable::{Mark, OfferingKey, UnavailableKey};
use tenon_runtime::{HandlerError, Ports};
use tenon_state::view::form_error;
use tenon_table::items::{InstanceOwner, ItemForm, from_item, keys};
use tenon_table::{Consistency, Item, Key, Table};

/// One of our instances.
#[derive(Debug, Clone)]
pub struct InterruptedInstance {
    /// The cluster of its claim.
    pub cluster: ClusterName,
    /// Its claim.
    pub claim: Claim,
    /// Its offering; `None` for old instances.
    pub offering: Option<OfferingKey>,
    /// The mark of its reservation, or else of its offering, even without effect.
    pub mark: Option<Mark>,
}

/// The instance's claim; `None` for a foreign instance, after one read.
///
/// # Errors
/// [`HandlerError`] when it can't be read.
pub async fn observe<P: Ports>(
    ports: &P,
    instance: &InstanceId,
) -> Result<Option<InterruptedInstance>, HandlerError> {
    let key = keys::instance(instance);
    let Some(item) = ports.table().get(&key, Consistency::Strong).await? else { return Ok(None) };
    let InstanceOwner { cluster, claim, offering, .. } = read(&key, &item)?;
    let claim_key = keys::claim(&cluster, &claim);
    let region = &ports.installation().region;
    let mark_key = offering
        .as_ref()
        .map(|offering| keys::unavailable(region, &UnavailableKey::Offering(offering.clone())));
    let asked: Vec<Key> = [&claim_key].into_iter().chain(&mark_key).cloned().collect();
    let items = ports.table().batch_get(&asked, Consistency::Strong).await?;
    let Some(item) = items.get(&claim_key) else { return Ok(None) };
    let claim: Claim = read(&claim_key, item)?;
    let reservation = claim.state.instance().and_then(|held| held.reservation.as_ref());
    let found = match reservation {
        Some(into) => {
            let key = keys::unavailable(region, &UnavailableKey::Reservation(into.id.clone()));
            let item = ports.table().get(&key, Consistency::Strong).await?;
            item.map(|item| read(&key, &item))
        }
        None => mark_key.and_then(|key| items.get(&key).map(|item| read(&key, item))),
    };
    Ok(Some(InterruptedInstance { cluster, claim, offering, mark: found.transpose()? }))
}

fn read<F: ItemForm>(key: &Key, item: &Item) -> Result<F, HandlerError> {
    from_item(key, item).map_err(form_error)
}
