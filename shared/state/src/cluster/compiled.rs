//! Options of classes that a warm function keeps from wake to wake.
//!
//! Decides for which input kept options are used again, and how many are kept. What depends on the time or on EC2's
//! refusals isn't kept: `classes` applies it to a copy.
//!
//! Invariant: kept options equal those that would be compiled anew, because they are found by all that they are made
//! from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tenon_domain::catalog::{InstanceTypeOption, Learned, NodeSettings, PartData};
use tenon_domain::class_status::ResolvedImage;
use tenon_domain::id::{Region, Zone};
use tenon_domain::instance_family::FamilyPattern;

/// The most options that are kept, of all classes together: about six classes with the whole catalogue. One takes about
/// 10 KB, and the smallest planning function has 512 MB.
const OPTIONS_AT_MOST: usize = 6_000;

/// The kept options of a function's classes, the last used one last.
#[derive(Debug, Default)]
pub struct CompiledClasses(Mutex<Vec<CompiledClass>>);

/// The options of a class.
#[derive(Debug)]
struct CompiledClass {
    from: CompiledFrom,
    options: Arc<Vec<InstanceTypeOption>>,
}

/// All that a class's options are made from. Classes of several clusters may share them.
#[derive(Debug, Clone)]
pub(super) struct CompiledFrom {
    /// The region.
    pub(super) region: Region,
    /// The fresh parts of the catalogue. A part that became stale is another input.
    pub(super) parts: FreshParts,
    /// Learned memory, as the cluster uses it.
    pub(super) learned: Arc<Learned>,
    /// The class's images.
    pub(super) images: Vec<ResolvedImage>,
    /// The class's settings, with the cluster's.
    pub(super) settings: NodeSettings,
    /// The zones of the class's subnets.
    pub(super) zones: BTreeSet<Zone>,
    /// The families that the cluster's stack allows.
    pub(super) families: BTreeSet<FamilyPattern>,
}

/// The content of the parts, by [`tenon_domain::evidence::CatalogPart`].
#[derive(Debug, Clone)]
pub(super) struct FreshParts {
    /// `instance-types`.
    pub(super) types: Arc<PartData>,
    /// `offerings`.
    pub(super) offerings: Arc<PartData>,
    /// `on-demand-prices`.
    pub(super) on_demand: Option<Arc<PartData>>,
    /// `spot-prices`.
    pub(super) spot: Option<Arc<PartData>>,
}

impl CompiledClasses {
    /// The options that are made from this input.
    pub(super) fn of(
        &self,
        from: CompiledFrom,
        compile: impl FnOnce() -> Vec<InstanceTypeOption>,
    ) -> Arc<Vec<InstanceTypeOption>> {
        if let Some(known) = self.used_again(&from) {
            return known;
        }
        let options = Arc::new(compile());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Every wake reads the newest generation, so older content isn't used again.
        kept.retain(|known| !known.from.parts.is_other_content(&from.parts));
        kept.push(CompiledClass { from, options: Arc::clone(&options) });
        while kept.len() > 1 && kept.iter().map(|class| class.options.len()).sum::<usize>() > OPTIONS_AT_MOST
        {
            kept.remove(0);
        }
        options
    }

    fn used_again(&self, from: &CompiledFrom) -> Option<Arc<Vec<InstanceTypeOption>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|known| known.from.is_same(from))?;
        let known = kept.remove(place);
        let options = Arc::clone(&known.options);
        kept.push(known);
        Some(options)
    }
}

impl CompiledFrom {
    /// Whether both give the same options. Named field by field, so that a new one can't be forgotten.
    fn is_same(&self, other: &Self) -> bool {
        let Self { region, parts, learned, images, settings, zones, families } = self;
        *region == other.region
            && parts.is_same(&other.parts)
            && *learned == other.learned
            && *images == other.images
            && *settings == other.settings
            && *zones == other.zones
            && *families == other.families
    }
}

impl FreshParts {
    /// By identity: a warm function keeps a part's content for as long as its digest stays.
    fn is_same(&self, other: &Self) -> bool {
        let [types, offerings, on_demand, spot] = self.compared(other);
        let same = |pair: PartOnBothSides<'_>| match pair {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same(types) && same(offerings) && same(on_demand) && same(spot)
    }

    /// Whether a part has different content in both. A part that only one of them has is no sign: another cluster may
    /// look a moment before the part becomes stale.
    fn is_other_content(&self, other: &Self) -> bool {
        let differs = |pair: PartOnBothSides<'_>| match pair {
            (Some(one), Some(other)) => !Arc::ptr_eq(one, other),
            (None, _) | (_, None) => false,
        };
        self.compared(other).into_iter().any(differs)
    }

    fn compared<'a>(&'a self, other: &'a Self) -> [PartOnBothSides<'a>; 4] {
        let Self { types, offerings, on_demand, spot } = self;
        [
            (Some(types), Some(&other.types)),
            (Some(offerings), Some(&other.offerings)),
            (on_demand.as_ref(), other.on_demand.as_ref()),
            (spot.as_ref(), other.spot.as_ref()),
        ]
    }
}

/// One part's content on both sides.
type PartOnBothSides<'a> = (Option<&'a Arc<PartData>>, Option<&'a Arc<PartData>>);

#[cfg(test)]
mod tests;
