//! Reads the pointers, and queries EC2 for due parts.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use tenon_domain::evidence::{CatalogPart, ErrorKind, PartOrigin, RefreshFailure};
use tenon_domain::id::Region;
use tenon_domain::money::Currency;
use tenon_domain::wake::FunctionName;
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::{LocationType, MALFORMED_ANSWER, NO_PRICING_API, Page, PageToken};
use tenon_ec2::{Ec2, Ec2Error, Pricing};
use tenon_runtime::error::chain;
use tenon_runtime::{HandlerError, Ports};
use tenon_table::items::packed::{self, each_part};
use tenon_table::items::{
    self, CatalogCache, CatalogError, CatalogMeta, SeenRecord, TypeRecord, TypesClaim, keys,
};
use tenon_table::{Consistency, Query, SkRange, Table, query_all};

use crate::plan::{CatalogInput, Shipped, in_turn};
use crate::read::CatalogAnswer;
use crate::types;

/// The most pages of one answer: 100,000 entries, several times what the largest region has.
const PAGES: usize = 100;

/// The due parts, in the order of their queries.
pub(crate) async fn due_parts<P: Ports>(
    ports: &P,
    asked: &BTreeSet<CatalogPart>,
) -> Result<Vec<CatalogPart>, HandlerError> {
    Ok(in_turn(&meta(ports).await?, asked, ports.now()))
}

/// Queries EC2 for a due part.
pub(crate) async fn observe<P: Ports>(
    ports: &P,
    part: CatalogPart,
    cache: &CatalogCache,
) -> Result<CatalogInput<'static>, HandlerError> {
    let data = Ec2Data::get().map_err(|error| HandlerError::Internal(chain(&error)))?;
    let region = &ports.installation().region;
    let meta = meta(ports).await?;
    let found = each_part(ports.table(), region, &meta, compared(part), cache).await?;
    // An unreadable part can't be compared with a new answer, which replaces it.
    let broken = found.iter().filter(|(_, found)| found.is_err()).map(|(part, _)| *part).collect();
    let before = found.into_iter().filter_map(|(part, found)| Some((part, found.ok()?))).collect();
    let answer = ask(ports.ec2(), part).await.map_err(|error| failure(&error));
    let answers = BTreeMap::from([(part, answer)]);
    let shipped = Shipped::of(data, region);
    Ok(CatalogInput { now: ports.now(), meta, before, broken, answers, limits: &data.limits, shipped })
}

/// The parts whose old content a part is compared with: itself, and for prices the types and offerings.
const fn compared(part: CatalogPart) -> &'static [CatalogPart] {
    use CatalogPart::{InstanceTypes, Offerings, OnDemandPrices, SpotPrices};
    match part {
        InstanceTypes => &[InstanceTypes],
        Offerings => &[Offerings],
        OnDemandPrices => &[InstanceTypes, Offerings, OnDemandPrices],
        SpotPrices => &[InstanceTypes, Offerings, SpotPrices],
    }
}

fn failure(error: &Ec2Error) -> RefreshFailure {
    let kind = match error {
        Ec2Error::NoAnswer { .. } => ErrorKind::NoAnswer,
        Ec2Error::Throttled { .. } => ErrorKind::Throttled,
        Ec2Error::Unauthorized { .. } => ErrorKind::Denied,
        Ec2Error::ServerError { code, .. } if code == MALFORMED_ANSWER => ErrorKind::Malformed,
        Ec2Error::ServerError { .. } => ErrorKind::Server,
        Ec2Error::Invalid { code, .. } if code == NO_PRICING_API => ErrorKind::NoApi,
        Ec2Error::NotFound { .. }
        | Ec2Error::AlreadyExists { .. }
        | Ec2Error::IdempotentParameterMismatch { .. }
        | Ec2Error::Refused { .. }
        | Ec2Error::Invalid { .. }
        | Ec2Error::Unknown { .. } => ErrorKind::Malformed,
    };
    RefreshFailure { kind, message: chain(error) }
}

/// The pointers as they are now; a lagging read would only lose the race for them.
pub(crate) async fn meta<P: Ports>(ports: &P) -> Result<CatalogMeta, HandlerError> {
    let region = &ports.installation().region;
    packed::read_meta(ports.table(), region, Consistency::Strong).await.map_err(catalog_error)
}

/// Queries all pages of one part. An interrupted list is no answer.
async fn ask<E: Ec2 + Pricing>(ec2: &E, part: CatalogPart) -> Result<CatalogAnswer, Ec2Error> {
    Ok(match part {
        CatalogPart::InstanceTypes => {
            let call = "DescribeInstanceTypes";
            CatalogAnswer::InstanceTypes(all(call, |page| ec2.describe_instance_types(page)).await?)
        }
        CatalogPart::Offerings => {
            let by = LocationType::AvailabilityZone;
            let call = "DescribeInstanceTypeOfferings";
            let offerings = all(call, |page| ec2.describe_instance_type_offerings(by, page)).await?;
            CatalogAnswer::Offerings(offerings, ec2.describe_availability_zones().await?)
        }
        CatalogPart::OnDemandPrices => {
            CatalogAnswer::OnDemandPrices(all("GetProducts", |page| ec2.on_demand_prices(page)).await?)
        }
        CatalogPart::SpotPrices => {
            let call = "DescribeSpotPriceHistory";
            CatalogAnswer::SpotPrices(all(call, |page| ec2.describe_spot_price_history(page)).await?)
        }
    })
}

async fn all<T, F>(call: &str, ask: impl Fn(Option<PageToken>) -> F) -> Result<Vec<T>, Ec2Error>
where
    F: Future<Output = Result<Page<T>, Ec2Error>>,
{
    let mut items = Vec::new();
    let mut next = None;
    for _ in 0..PAGES {
        let page = ask(next).await?;
        items.extend(page.items);
        next = page.next;
        if next.is_none() {
            return Ok(items);
        }
    }
    Err(Ec2Error::Invalid {
        action: call.to_owned(),
        code: "TooManyPages".to_owned(),
        message: format!("the answer has more than {PAGES} pages"),
    })
}

/// The input for the items for people; `None` if no pass is due.
pub(crate) async fn observe_types<P: Ports>(
    ports: &P,
    cache: &CatalogCache,
) -> Result<Option<types::TypesInput>, HandlerError> {
    let now = ports.now();
    let (table, region) = (ports.table(), &ports.installation().region);
    let (catalog_key, seen_key) = (keys::catalog(region), keys::region_seen(region, FunctionName::Catalog));
    let read = table.batch_get(&[catalog_key.clone(), seen_key.clone()], Consistency::Strong).await?;
    let meta: CatalogMeta = match read.get(&catalog_key) {
        Some(item) => items::from_item(&catalog_key, item).map_err(form)?,
        None => return Ok(None),
    };
    let seen: Option<SeenRecord> =
        read.get(&seen_key).map(|item| items::from_item(&seen_key, item)).transpose().map_err(form)?;
    let generations = meta.generations(&CatalogPart::ALL);
    if !types::due(&generations, seen.as_ref(), now) {
        return Ok(None);
    }
    // Unreadable prices are too old to show. Without types or zones no item is written, and the items stay until a
    // new answer.
    let parts = each_part(table, region, &meta, &CatalogPart::ALL, cache).await?;
    let lacks = |part: CatalogPart| parts.get(&part).is_none_or(Result::is_err);
    if lacks(CatalogPart::InstanceTypes) || lacks(CatalogPart::Offerings) {
        return Ok(None);
    }
    // Before the items: a run that ends in between has raised the claim's revision.
    let claim_key = keys::types_claim(region);
    let read = table.batch_get(std::slice::from_ref(&claim_key), Consistency::Strong).await?;
    let claimed: Option<TypesClaim> =
        read.get(&claim_key).map(|item| items::from_item(&claim_key, item)).transpose().map_err(form)?;
    let range = SkRange::Prefix(keys::TYPE.to_owned());
    let query = Query::new(keys::region_pk(region), range, Consistency::Eventual);
    let written = query_all(table, &query).await?;
    let records: Vec<TypeRecord> = items::from_items(&written).map_err(form)?;
    Ok(Some(types::TypesInput {
        now,
        parts: parts.into_iter().filter_map(|(part, found)| Some((part, found.ok()?.data))).collect(),
        generations,
        currency: Currency::of_region(region),
        on_demand_of: borrowed_from(&meta, region),
        claimed,
        written: records.into_iter().map(|record| (record.name.clone(), record)).collect(),
    }))
}

/// The region of the on-demand prices, if it is another one.
fn borrowed_from(meta: &CatalogMeta, region: &Region) -> Option<Region> {
    match &meta.parts.get(&CatalogPart::OnDemandPrices)?.origin {
        PartOrigin::Answered => None,
        PartOrigin::Shipped { region: of, .. } => (of != region).then(|| of.clone()),
    }
}

pub(crate) fn catalog_error(error: CatalogError) -> HandlerError {
    match error {
        CatalogError::Read(error) => HandlerError::Read(error),
        CatalogError::Form(error) => form(error),
        other @ (CatalogError::Missing { .. } | CatalogError::Corrupt { .. } | CatalogError::Pack { .. }) => {
            HandlerError::Internal(chain(&other))
        }
    }
}

pub(crate) fn form(error: items::FormError) -> HandlerError {
    HandlerError::Item { key: error.key.to_string(), source: Box::new(error) }
}
