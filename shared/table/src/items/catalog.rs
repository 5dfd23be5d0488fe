//! `CATALOG`: per part of the catalogue, which generation holds, since when, and what its last refresh ran into.
//!
//! Decides nothing of staleness: that is the domain's evidence. The item is under a `revision`, so that two refreshes
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
    /// Counts up with every refresh, and every failure of one; 0 where there is no item yet.
    pub revision: u64,
    /// Its parts, as far as they were ever asked for.
    pub parts: BTreeMap<CatalogPart, PartMeta>,
}

/// What is known of one part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartMeta {
    /// Counts up with every change of its content; 0 before the first.
    pub generation: u64,
    /// When EC2 last said that this is how it is.
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
    /// What its prices are in; none where it has none.
    pub currency: Option<Currency>,
    /// What the last refresh ran into, if it failed.
    pub last_error: Option<String>,
    /// The kind of that; none where a writer didn't say.
    pub last_error_kind: Option<ErrorKind>,
    /// Since when refreshes fail.
    pub failing_since: Option<Timestamp>,
}

/// The word of a part that came with the release; what AWS answered has none.
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
                    currency: word_if(from, "currency", Currency::parse)?,
                    last_error: from.string_if("last_error")?,
                    last_error_kind: word_if(from, "last_error_kind", ErrorKind::parse)?,
                    failing_since: from.time_if("failing_since")?,
                })
            })?;
            Ok(meta.map(|meta| (part, meta)))
        };
        let parts = CatalogPart::ALL.into_iter().filter_map(|found| part(found).transpose());
        Ok(Self { revision: from.u64(REVISION)?, parts: parts.collect::<Result<_, _>>()? })
    }
}

fn word_if<T>(
    from: Fields<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, FieldError> {
    from.value_if(name).map(|_| from.word(name, parse)).transpose()
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
