//! `CATALOG`: for each part of the catalogue its generation, the time of its last refresh, and the last error.
//!
//! Decides nothing about staleness: that is the domain's evidence. The item has a `revision`, so that two refreshes
//! never write the same generation.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::evidence::{CatalogPart, Date, ErrorKind, PartOrigin};
use tenon_domain::id::Region;
use tenon_domain::money::Currency;

use super::form::{Attributes, FieldError, Fields, ItemForm};
use crate::key::REVISION;

/// A region's catalogue, as pointers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogMeta {
    /// The count of refreshes, failed ones too; 0 without an item.
    pub revision: u64,
    /// Its parts that were ever refreshed.
    pub parts: BTreeMap<CatalogPart, PartMeta>,
}

/// The state of one part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartMeta {
    /// The count of its content's changes; 0 before the first.
    pub generation: u64,
    /// When EC2 last confirmed it.
    pub refreshed_at: Option<Timestamp>,
    /// How many entries it has.
    pub count: u64,
    /// Its packed items.
    pub items: u32,
    /// Digest of its content, by which its packed items are found.
    pub digest: String,
    /// Until when its packed items stay.
    pub packed_until: Option<Timestamp>,
    /// Where its content is from.
    pub origin: PartOrigin,
    /// The currency of its prices, if it has prices.
    pub currency: Option<Currency>,
    /// The error of the last refresh, if it failed.
    pub last_error: Option<String>,
    /// The kind of that; none if a writer didn't say.
    pub last_error_kind: Option<ErrorKind>,
    /// Since when refreshes fail.
    pub failing_since: Option<Timestamp>,
}

/// The origin of a part from the release; AWS's own answers have none.
const SHIPPED: &str = "shipped";

impl CatalogMeta {
    /// The generations of these parts; 0 for one that never arrived.
    #[must_use]
    pub fn generations(&self, parts: &[CatalogPart]) -> BTreeMap<CatalogPart, u64> {
        parts.iter().map(|part| (*part, self.parts.get(part).map_or(0, |meta| meta.generation))).collect()
    }
}

impl ItemForm for CatalogMeta {
    fn write(&self, to: &mut Attributes) {
        to.number(REVISION, self.revision);
        for (part, meta) in &self.parts {
            to.map(part.as_str(), |to| {
                to.number("generation", meta.generation);
                to.time_if("refreshed_at", meta.refreshed_at);
                to.number("count", meta.count);
                to.number("items", meta.items);
                to.text("digest", &meta.digest);
                to.time_if("packed_until", meta.packed_until);
                let (as_of, region) = shipped(&meta.origin).unzip();
                to.text_if("currency", meta.currency.map(Currency::as_str));
                to.text_if("origin", as_of.map(|_| SHIPPED));
                to.text_if("as_of", as_of.map(|as_of| as_of.to_string()));
                to.text_if("of_region", region);
                to.text_if("last_error", meta.last_error.as_ref());
                to.text_if("last_error_kind", meta.last_error_kind.map(ErrorKind::as_str));
                to.time_if("failing_since", meta.failing_since);
            });
        }
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let part = |part: CatalogPart| {
            let meta = from.map_if(part.as_str(), |from| {
                Ok(PartMeta {
                    generation: from.u64("generation")?,
                    refreshed_at: from.time_if("refreshed_at")?,
                    count: from.u64("count")?,
                    items: from.u32("items")?,
                    digest: from.string("digest")?,
                    packed_until: from.time_if("packed_until")?,
                    origin: origin(from)?,
                    currency: from.word_if("currency", Currency::parse)?,
                    last_error: from.string_if("last_error")?,
                    last_error_kind: from.known_word_if("last_error_kind", ErrorKind::parse)?,
                    failing_since: from.time_if("failing_since")?,
                })
            })?;
            Ok(meta.map(|meta| (part, meta)))
        };
        let parts = CatalogPart::ALL.into_iter().filter_map(|found| part(found).transpose());
        Ok(Self { revision: from.u64(REVISION)?, parts: parts.collect::<Result<_, _>>()? })
    }
}

const fn shipped(origin: &PartOrigin) -> Option<(&Date, &Region)> {
    match origin {
        PartOrigin::Answered => None,
        PartOrigin::Shipped { as_of, region } => Some((as_of, region)),
    }
}

fn origin(from: Fields<'_>) -> Result<PartOrigin, FieldError> {
    if from.value_if("origin").is_none() {
        return Ok(PartOrigin::Answered);
    }
    from.word("origin", |word| (word == SHIPPED).then_some(()))?;
    Ok(PartOrigin::Shipped { as_of: from.parsed("as_of")?, region: from.parsed("of_region")? })
}
