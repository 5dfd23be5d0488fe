//! Spot prices of EC2, and on-demand prices of the Pricing API's price list.
//!
//! Decides which entry of a price list is the price of an hour. A product with a price of zero has none: such entries
//! belong to prepaid capacity.

use std::collections::BTreeMap;

use aws_sdk_ec2::types as sdk;
use serde::Deserialize;
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_ec2::port::{OnDemandPrice, SpotPrice};

use crate::reading::{Malformed, moment, parsed};

pub(crate) fn spot_price(from: &sdk::SpotPrice) -> Result<SpotPrice, Malformed> {
    Ok(SpotPrice {
        instance_type: parsed(from.instance_type.as_ref().map(AsRef::as_ref), "InstanceType")?,
        zone: parsed(from.availability_zone.as_deref(), "AvailabilityZone")?,
        price: price(from.spot_price.as_deref().unwrap_or_default(), "SpotPrice")?,
        since: moment(from.timestamp.as_ref(), "Timestamp")?,
    })
}

fn price(text: &str, field: &'static str) -> Result<UsdPerHour, Malformed> {
    UsdPerHour::parse(text).map_err(|error| Malformed::new(field, format!("can't be read: {error}")))
}

/// One element of GetProducts' `PriceList`, as far as it is needed.
#[derive(Deserialize)]
struct PriceListItem {
    product: Product,
    terms: PriceTerms,
}

#[derive(Deserialize)]
struct Product {
    attributes: ProductAttributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProductAttributes {
    instance_type: Option<String>,
}

#[derive(Deserialize)]
struct PriceTerms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, PriceTerm>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PriceTerm {
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    price_per_unit: BTreeMap<String, String>,
}

/// The price in an element of the price list; none if it has no on-demand price in the currency, or no type.
pub(crate) fn on_demand_price(json: &str, currency: Currency) -> Result<Option<OnDemandPrice>, Malformed> {
    let item: PriceListItem = serde_json::from_str(json)
        .map_err(|error| Malformed::new("PriceList", format!("can't be read: {error}")))?;
    let Some(name) = item.product.attributes.instance_type else { return Ok(None) };
    let dimensions = item.terms.on_demand.into_values().flat_map(|term| term.price_dimensions.into_values());
    for dimension in dimensions {
        let Some(text) = dimension.price_per_unit.get(currency.as_str()) else { continue };
        let price = price(text, "PriceList.terms.OnDemand.priceDimensions.pricePerUnit")?;
        if price != UsdPerHour::ZERO {
            let instance_type = parsed(Some(&name), "PriceList.product.attributes.instanceType")?;
            return Ok(Some(OnDemandPrice { instance_type, price }));
        }
    }
    Ok(None)
}
