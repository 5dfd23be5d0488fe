//! The Pricing API: GetProducts over the twin's list prices.
//!
//! Decides which products a query finds. The twin has one price for each type, so only queries for an hour of plain
//! Linux find any. Bare metal is its own product family.

use serde::Deserialize;
use serde_json::{Value, json};
use tenon_ec2::Pricing as _;
use tenon_ec2::port::{OnDemandPrice, PageToken};
use tenon_twin::RegionTwin;

use crate::error::{WireError, of_call, refused};

/// The header that names the operation.
pub(crate) const TARGET_HEADER: &str = "x-amz-target";
const GET_PRODUCTS: &[u8] = b"AWSPriceListService.GetProducts";

/// The API's limit, and its default.
const PAGE_MOST: u32 = 100;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct GetProducts {
    service_code: String,
    #[serde(default)]
    filters: Vec<PriceFilter>,
    #[serde(default)]
    next_token: Option<String>,
    #[serde(default)]
    max_results: Option<u32>,
    #[serde(default)]
    format_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PriceFilter {
    r#type: String,
    field: String,
    value: String,
}

/// The answer to a request: status and document; none if no answer comes.
pub(crate) async fn answer(twin: &RegionTwin, target: &[u8], body: &[u8]) -> Option<(u16, String)> {
    match products(twin, target, body).await {
        Ok(document) => Some((200, document.to_string())),
        Err(Some(refusal)) => {
            let document = json!({ "__type": refusal.code, "Message": refusal.message });
            Some((refusal.status, document.to_string()))
        }
        Err(None) => None,
    }
}

async fn products(twin: &RegionTwin, target: &[u8], body: &[u8]) -> Result<Value, Option<WireError>> {
    let wrong = |message: String| Some(refused("InvalidParameterException", message));
    if target != GET_PRODUCTS {
        let operation = String::from_utf8_lossy(target);
        return Err(Some(refused("UnknownOperationException", format!("{operation} isn't served"))));
    }
    let asked: GetProducts = serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
    if asked.service_code != "AmazonEC2" {
        return Err(wrong(format!("{} isn't served", asked.service_code)));
    }
    if asked.max_results.is_some_and(|most| most == 0 || most > PAGE_MOST) {
        return Err(wrong(format!("MaxResults is 1 to {PAGE_MOST}")));
    }
    if asked.format_version.as_deref().is_some_and(|version| version != "aws_v1") {
        return Err(wrong("FormatVersion is aws_v1".to_owned()));
    }
    if let Some(other) = asked.filters.iter().find(|filter| filter.r#type != "TERM_MATCH") {
        return Err(wrong(format!("filters of type {} aren't served", other.r#type)));
    }
    let page = twin.on_demand_prices(asked.next_token.map(PageToken)).await.map_err(of_call)?;
    let found = page.items.iter().map(product).filter(|product| {
        // The twin's prices are every region's.
        let filters = asked.filters.iter().filter(|filter| filter.field != "regionCode");
        filters.into_iter().all(|filter| says(product, &filter.field) == Some(filter.value.as_str()))
    });
    let list: Vec<String> = found.map(|product| product.to_string()).collect();
    let mut document = json!({ "FormatVersion": "aws_v1", "PriceList": list });
    if let (Some(PageToken(token)), Some(fields)) = (page.next, document.as_object_mut()) {
        fields.insert("NextToken".to_owned(), Value::from(token));
    }
    Ok(document)
}

/// A product's value for a filter's field.
fn says<'a>(product: &'a Value, field: &str) -> Option<&'a str> {
    let of_product = product.get("product")?;
    let attribute = || of_product.pointer("/attributes")?.get(field);
    let found = if field == "productFamily" { of_product.get(field) } else { attribute() };
    found?.as_str()
}

/// A product with its one term, as far as the twin knows the API's attributes.
fn product(price: &OnDemandPrice) -> Value {
    let name = price.instance_type.as_str();
    let bare = name.split_once('.').is_some_and(|(_, size)| size.starts_with("metal"));
    let (family, tenancy) =
        if bare { ("Compute Instance (bare metal)", "Dedicated") } else { ("Compute Instance", "Shared") };
    let dimension = json!({
        "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": { "USD": price.price.to_string() },
    });
    json!({
        "serviceCode": "AmazonEC2",
        "product": {
            "sku": name,
            "productFamily": family,
            "attributes": {
                "instanceType": name,
                "tenancy": tenancy,
                "operatingSystem": "Linux",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
            },
        },
        "terms": { "OnDemand": { "term": { "sku": name, "priceDimensions": { "hour": dimension } } } },
    })
}
