//! What a change of images means to a cluster's classes.
//!
//! Decides which classes the change concerns: those that have or reject one of the images, and those whose queries
//! match its record. Reads in one call what a look at them needs besides. It doesn't decide what a class takes.
//!
//! Invariants: an image without a record may match any query, and no records answer then; the records of a region are
//! read at most once a wake.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::lock::Mutex;
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::image::ImageRecord;
use tenon_ec2::port::ImageFilter;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::snapshot::{heartbeat_key, manifest_key};
use tenon_state::heads::{Heads, of_view};
use tenon_state::image_query::{SweptImages, matches};
use tenon_state::view::{Wants, form_error};
use tenon_table::items::{self, ImageSweep, keys};
use tenon_table::{Consistency, Item, Key, Query, SkRange, query_all};

use crate::item::ClassItem;
use crate::observe::refusal_keys;

/// The records of a region's images, once a cluster of the wake needed them.
#[derive(Debug, Default)]
pub(crate) struct RegionImages(Mutex<Option<Arc<SweptImages>>>);

/// A change of images that concerns classes of a cluster.
pub(crate) struct ImageNews {
    /// The heads, and all else that the look needs of the table.
    pub(crate) heads: Heads,
    /// The cluster's classes.
    pub(crate) classes: Vec<(Key, Item)>,
    /// The classes that it concerns.
    pub(crate) concerned: BTreeSet<NodeClassName>,
    /// The records that may answer.
    pub(crate) swept: Option<Arc<SweptImages>>,
}

impl ImageNews {
    /// Reads what the images mean to a cluster's classes; `None` if they concern none.
    pub(crate) async fn read<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        named: &BTreeSet<ImageId>,
        images: &RegionImages,
    ) -> Result<Option<Self>, HandlerError> {
        let installation = ports.installation();
        let region = &installation.region;
        let range = SkRange::Prefix(keys::NODE_CLASS.to_owned());
        let query = Query::new(keys::cluster_pk(cluster), range, Consistency::Strong);
        let classes = query_all(ports.table(), &query).await?;
        let found: Vec<ClassItem> = items::from_items(&classes).map_err(form_error)?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut more = of_view(ports, cluster);
        more.extend([manifest_key(cluster), heartbeat_key(cluster), keys::image_sweep(region)]);
        more.extend(refusal_keys(region, cluster, found.iter().map(|class| &class.status)).into_keys());
        more.extend(named.iter().map(|id| keys::image(region, id)));
        let more: BTreeSet<Key> = more.into_iter().filter(|key| *key != keys::manifest(cluster)).collect();
        let heads =
            Heads::read(ports, cluster, wants, Consistency::Strong, more.into_iter().collect()).await?;
        let mut records: BTreeMap<&ImageId, Option<ImageRecord>> = BTreeMap::new();
        for id in named {
            records.insert(id, heads.item(&keys::image(region, id))?);
        }
        let concerns = |class: &&ClassItem| {
            records.iter().any(|(id, record)| {
                let status = &class.status;
                status.images.iter().any(|image| image.id == **id)
                    || status.rejected_images.iter().any(|image| image.id == **id)
                    || class.images.filters.iter().any(|filter| match record {
                        Some(record) => matches(filter, record, &installation.account),
                        None => filter.ids.is_empty() || filter.ids.contains(id),
                    })
            })
        };
        let concerned: Vec<&ClassItem> = found.iter().filter(concerns).collect();
        if concerned.is_empty() {
            return Ok(None);
        }
        let swept = match heads.item::<ImageSweep>(&keys::image_sweep(region))? {
            Some(sweep) if records.values().all(Option::is_some) => {
                let answers = |filter: &ImageFilter| SweptImages::answers(&sweep, filter, ports.now());
                let any = concerned.iter().any(|class| class.images.filters.iter().any(answers));
                if any { Some(images.read(ports, sweep).await?) } else { None }
            }
            Some(_) | None => None,
        };
        let concerned = concerned.into_iter().map(|class| class.status.name.clone()).collect();
        Ok(Some(Self { heads, classes, concerned, swept }))
    }
}

impl RegionImages {
    /// The records, read consistently: an image whose change was announced has its record.
    async fn read<P: Ports>(&self, ports: &P, sweep: ImageSweep) -> Result<Arc<SweptImages>, HandlerError> {
        let mut held = self.0.lock().await;
        if let Some(known) = &*held {
            return Ok(Arc::clone(known));
        }
        let range = SkRange::Prefix(keys::ALL_OF_IMAGES.to_owned());
        let pk = keys::region_pk(&ports.installation().region);
        let found = query_all(ports.table(), &Query::new(pk, range, Consistency::Strong)).await?;
        let of = |prefix: &str| -> Vec<(Key, Item)> {
            found.iter().filter(|(key, _)| key.sk.starts_with(prefix)).cloned().collect()
        };
        let records = items::from_items(&of(keys::IMAGE)).map_err(form_error)?;
        let boots = of(keys::BOOT);
        let boots = boots.iter().filter_map(|(key, item)| items::from_item(key, item).ok()).collect();
        let swept = Arc::new(SweptImages { sweep, records, boots });
        *held = Some(Arc::clone(&swept));
        Ok(swept)
    }
}
