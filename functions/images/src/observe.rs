//! Reads the records of images and the classes' queries, and asks EC2 about both.
//!
//! Invariant: a record is read before EC2 is asked about its image, so that no answer is older than the record that it
//! replaces.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::id::{ClusterName, ImageId, Region};
use tenon_domain::image::ImageRecord;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{DisabledImages, ImageFilter};
use tenon_runtime::{HandlerError, Ports};
use tenon_state::image_query::{ClassImages, describe, digest};
use tenon_table::items::{self, ImageSweep, keys};
use tenon_table::{Consistency, Key, Query, SkRange, Table, limits, query_all};

use crate::plan::{ImagesInput, is_final};

/// Ids in a call of EC2: it accepts more, but a malformed id then fails fewer others.
const IDS_A_QUERY: usize = 100;

/// The most queries of a pass. Each class's own sweep, which asks EC2 itself, covers further selectors.
const QUERIES: usize = 200;

/// The scope of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagesLook {
    /// All that classes select and all that is known and not final.
    Everything,
    /// These.
    At(BTreeSet<ImageId>),
}

/// An observation, and the reason if it is incomplete.
#[derive(Debug)]
pub(crate) struct ImagesObservation {
    pub(crate) input: ImagesInput,
    /// The last question that EC2 didn't answer.
    pub(crate) failed: Option<Ec2Error>,
    /// The last class that couldn't be read: the others' queries are answered all the same.
    pub(crate) unreadable: Option<HandlerError>,
    /// The queries that EC2 answered, if it answered about every known image too; only of a sweep.
    pub(crate) sweep: Option<ImageSweep>,
}

pub(crate) async fn observe<P: Ports>(
    ports: &P,
    look: &ImagesLook,
) -> Result<ImagesObservation, HandlerError> {
    let now = ports.now();
    let region = &ports.installation().region;
    let (known, ClassQueries { filters, unreadable }, ids) = match look {
        ImagesLook::Everything => {
            let known = known_all(ports, region).await?;
            let queries = selected(ports, region).await?;
            let ids = known.values().filter(|record| !is_final(record.state)).map(|r| r.id.clone()).collect();
            (known, queries, ids)
        }
        ImagesLook::At(ids) => (known_of(ports, region, ids).await?, ClassQueries::default(), ids.clone()),
    };
    let mut input = ImagesInput { now, known, seen: BTreeMap::new(), asked: BTreeSet::new() };
    let mut failed = None;
    let mut queries = BTreeSet::new();
    for filter in filters.iter().take(QUERIES) {
        if ask(ports, filter, &mut input, &mut failed).await {
            queries.insert(digest(filter));
        }
    }
    // An image that no longer matches a query shows only when it is asked for by id.
    let mut all_asked = true;
    // Images in a query's answer aren't queried by id.
    let rest: Vec<ImageId> = ids.into_iter().filter(|id| !input.seen.contains_key(id)).collect();
    for some in rest.chunks(IDS_A_QUERY) {
        let filter =
            ImageFilter { ids: some.to_vec(), disabled: DisabledImages::Include, ..ImageFilter::default() };
        all_asked &= ask(ports, &filter, &mut input, &mut failed).await;
    }
    let sweeps = all_asked && !queries.is_empty();
    let sweep = sweeps.then_some(ImageSweep { at: now, queries });
    Ok(ImagesObservation { input, failed, unreadable, sweep })
}

/// Queries EC2, and returns whether it answered; a failed query says nothing about any image.
async fn ask<P: Ports>(
    ports: &P,
    filter: &ImageFilter,
    input: &mut ImagesInput,
    failed: &mut Option<Ec2Error>,
) -> bool {
    match describe(ports.ec2(), filter).await {
        Ok(images) => {
            input.asked.extend(filter.ids.iter().cloned());
            input.seen.extend(images.into_iter().map(|image| (image.id.clone(), image)));
            true
        }
        Err(error) => {
            *failed = Some(error);
            false
        }
    }
}

async fn known_all<P: Ports>(
    ports: &P,
    region: &Region,
) -> Result<BTreeMap<ImageId, ImageRecord>, HandlerError> {
    let range = SkRange::Prefix(keys::IMAGE.to_owned());
    let query = Query::new(keys::region_pk(region), range, Consistency::Eventual);
    let items = query_all(ports.table(), &query).await?;
    items.iter().map(|(key, item)| record(key, item)).collect()
}

async fn known_of<P: Ports>(
    ports: &P,
    region: &Region,
    ids: &BTreeSet<ImageId>,
) -> Result<BTreeMap<ImageId, ImageRecord>, HandlerError> {
    let keys: Vec<Key> = ids.iter().map(|id| keys::image(region, id)).collect();
    let mut known = BTreeMap::new();
    for some in keys.chunks(limits::BATCH_KEYS) {
        for (key, item) in ports.table().batch_get(some, Consistency::Strong).await? {
            known.extend([record(&key, &item)?]);
        }
    }
    Ok(known)
}

fn record(key: &Key, item: &tenon_table::Item) -> Result<(ImageId, ImageRecord), HandlerError> {
    let record: ImageRecord = items::from_item(key, item).map_err(form)?;
    Ok((record.id.clone(), record))
}

/// The distinct queries of all the region's classes.
#[derive(Default)]
struct ClassQueries {
    filters: BTreeSet<ImageFilter>,
    /// Why the last unreadable class isn't among them.
    unreadable: Option<HandlerError>,
}

async fn selected<P: Ports>(ports: &P, region: &Region) -> Result<ClassQueries, HandlerError> {
    let range = SkRange::Prefix(keys::CLUSTER.to_owned());
    let registry = Query::new(keys::region_pk(region), range, Consistency::Eventual);
    let mut found = ClassQueries::default();
    for (key, _) in query_all(ports.table(), &registry).await? {
        // A malformed name is skipped, so that it doesn't hide the images of other clusters.
        let Some(Ok(cluster)) = keys::name_of(&key, keys::CLUSTER).map(ClusterName::parse) else { continue };
        let range = SkRange::Prefix(keys::NODE_CLASS.to_owned());
        let classes = Query::new(keys::cluster_pk(&cluster), range, Consistency::Eventual);
        for (key, item) in query_all(ports.table(), &classes).await? {
            match items::from_item::<ClassImages>(&key, &item) {
                Ok(class) => found.filters.extend(class.filters),
                Err(error) => found.unreadable = Some(form(error)),
            }
        }
    }
    Ok(found)
}

fn form(error: items::FormError) -> HandlerError {
    HandlerError::Item { key: error.key.to_string(), source: Box::new(error) }
}
