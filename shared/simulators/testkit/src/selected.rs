//! The invariant of classes' resolved images.
//!
//! Decides from the cluster's manifest and the creator of an image: strangers' images are known by their ids,
//! whatever EC2 returns.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::{ClusterName, ImageId};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::at;

use crate::invariants::Invariant;

/// Images of other accounts, with their creation times.
pub type ForeignImages = BTreeMap<ImageId, Timestamp>;

/// A class resolves only to images of its own spec, and to none of a stranger.
///
/// # Errors The invariant, and the finding.
pub fn invariant_images_selected(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    strangers: &ForeignImages,
) -> Result<(), (Invariant, String)> {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    let manifests = site.cluster().objects(Kind::Ec2NodeClass);
    for class in region.classes(cluster) {
        let found = |text: String| Err((Invariant::ImagesSelected, text));
        if let Some(image) = class.images.iter().find(|image| strangers.contains_key(&image.id)) {
            return found(format!(
                "class {} resolved to {}, an image of another account",
                class.name, image.id
            ));
        }
        let names = manifests.iter().find(|manifest| is_of(&class, manifest)).map(|found| names(found));
        let Some(names) = names.filter(|names| !names.is_empty()) else { continue };
        if let Some(image) = class.images.iter().find(|image| !names.contains(&image.name)) {
            let (generation, class) = (class.generation, class.name);
            let text = format!(
                "generation {generation} of class {class} resolved to image `{}`, but selects {}",
                image.name,
                names.join(", ")
            );
            return found(text);
        }
    }
    Ok(())
}

/// Whether a class was resolved from the current manifest.
pub(crate) fn is_of(class: &ClassStatus, manifest: &Value) -> bool {
    let name = at(manifest, "/metadata/name").and_then(Value::as_str);
    let generation = at(manifest, "/metadata/generation").and_then(Value::as_u64);
    let uid = at(manifest, "/metadata/uid").and_then(Value::as_str);
    let is_same = class.uid.as_ref().is_none_or(|known| Some(known.as_str()) == uid);
    is_same && name == Some(class.name.as_str()) && generation == Some(class.generation)
}

/// The image names that a class selects; empty if it selects by tags.
fn names(manifest: &Value) -> Vec<String> {
    let terms = at(manifest, "/spec/amiSelectorTerms").and_then(Value::as_array);
    let name = |term: &Value| term.get("name").and_then(Value::as_str).map(str::to_owned);
    terms.into_iter().flatten().filter_map(name).collect()
}
