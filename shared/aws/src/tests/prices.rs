//! Spot prices and the price list.

use tenon_ec2::{Ec2, ErrorClass, Pricing};

use super::{block_on, ec2, forms, pricing};

fn spot_page(next: &str) -> String {
    format!(
        "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet><item><instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription><spotPrice>0.038500</spotPrice><timestamp>2026-05-04T03:02:01.000Z</timestamp><availabilityZone>us-east-1a</availabilityZone></item></spotPriceHistorySet><nextToken>{next}</nextToken></DescribeSpotPriceHistoryResponse>"
    )
}

#[test]
fn every_page_of_spot_prices_is_of_one_moment() {
    let (ec2, http) = ec2(&[(200, &spot_page("n")), (200, &spot_page(""))]);
    let first = block_on(ec2.describe_spot_price_history(None)).unwrap();
    assert_eq!(first.items[0].price.to_string(), "0.0385");
    assert_eq!(first.items[0].since.to_string(), "2026-05-04T03:02:01Z");
    let second = block_on(ec2.describe_spot_price_history(first.next)).unwrap();
    assert_eq!(second.next, None);
    let forms = forms(&http);
    assert_eq!(forms[0]["StartTime"], forms[0]["EndTime"]);
    assert_eq!(forms[0]["StartTime"], forms[1]["StartTime"]);
    assert_eq!(forms[1]["NextToken"], "n");
    assert_eq!(forms[0]["ProductDescription.1"], "Linux/UNIX");
}

fn product(name: &str, usd: &str) -> String {
    let item = serde_json::json!({
        "product": {"productFamily": "Compute Instance", "sku": "S", "attributes": {"instanceType": name, "regionCode": "us-east-1"}},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"S.T": {"sku": "S", "priceDimensions": {"S.T.D": {
            "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "description": "$ per hour",
            "pricePerUnit": {"USD": usd}
        }}}}}
    });
    item.to_string()
}

fn answer(products: &[String], next: Option<&str>) -> String {
    serde_json::json!({"FormatVersion": "aws_v1", "PriceList": products, "NextToken": next}).to_string()
}

#[test]
fn both_price_lists_are_read_to_their_ends() {
    let free = serde_json::json!({"product": {"attributes": {}}, "terms": {}}).to_string();
    let pages = [
        answer(&[product("m5.large", "0.0960000000"), product("m5.xlarge", "0.0000000000")], Some("n")),
        answer(&[free], None),
        answer(&[product("m5.metal", "4.608")], None),
    ];
    let pages: Vec<(u16, &str)> = pages.iter().map(|page| (200, page.as_str())).collect();
    let (pricing, http) = pricing("eu-west-1", &pages);
    let (mut found, mut next) = (Vec::new(), None);
    loop {
        let page = block_on(pricing.on_demand_prices(next)).unwrap();
        found.extend(page.items.into_iter().map(|p| format!("{} {}", p.instance_type, p.price)));
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(found, ["m5.large 0.096", "m5.metal 4.608"]);
    let requests = http.sent();
    assert!(requests[0].uri.contains("api.pricing.eu-central-1.amazonaws.com"), "{}", requests[0].uri);
    let asked = |n: usize| -> serde_json::Value { serde_json::from_slice(&requests[n].body).unwrap() };
    assert_eq!((&asked(0)["ServiceCode"], &asked(0)["MaxResults"]), (&"AmazonEC2".into(), &100.into()));
    assert_eq!(asked(1)["NextToken"], "n");
    let has = |n: usize, field: &str, value: &str| {
        asked(n)["Filters"].as_array().unwrap().iter().any(|f| f["Field"] == field && f["Value"] == value)
    };
    assert!(
        has(0, "regionCode", "eu-west-1")
            && has(0, "tenancy", "Shared")
            && has(0, "operatingSystem", "Linux")
    );
    assert!(has(2, "tenancy", "Dedicated"));
}

#[test]
fn a_throttled_price_list_is_throttled() {
    let body = r#"{"__type": "ThrottlingException", "Message": "Rate exceeded"}"#;
    let (pricing, http) = pricing("us-east-1", &[(400, body), (400, body)]);
    assert_eq!(block_on(pricing.on_demand_prices(None)).unwrap_err().class(), ErrorClass::Throttled);
    assert_eq!(http.sent().len(), 1);
}

#[test]
fn where_there_is_no_pricing_api_nothing_is_sent() {
    let (pricing, http) = pricing("us-gov-west-1", &[]);
    let error = block_on(pricing.on_demand_prices(None)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`GetProducts`: the partition of region `us-gov-west-1` has no Pricing API (`NoPricingApi`)"
    );
    assert_eq!(http.sent().len(), 0);
}
