//! The Pricing port over the SDK.
//!
//! Decides the endpoint of the Pricing API for a region, and its queries. Source: aws/karpenter-provider-aws
//! `pkg/providers/pricing/pricing.go`.

use aws_sdk_pricing::Client;
use aws_sdk_pricing::config::{BehaviorVersion, Builder, Region as SdkRegion};
use aws_sdk_pricing::types::{Filter, FilterType};
use aws_types::SdkConfig;
use tenon_domain::id::Region;
use tenon_domain::money::Currency;
use tenon_ec2::port::{NO_PRICING_API, OnDemandPrice, Page, PageToken};
use tenon_ec2::{Ec2Error, Pricing};

use crate::call::{FailedCall, FailedCallSink};
use crate::prices::on_demand_price;
use crate::reading::next;
use crate::settings::{retries, timeouts};

const ACTION: &str = "GetProducts";
/// GetProducts' limit.
const PAGE: i32 = 100;
/// Filters of every query: Linux without licences, paid by the hour.
const COMMON: [(&str, &str); 4] = [
    ("preInstalledSw", "NA"),
    ("operatingSystem", "Linux"),
    ("capacitystatus", "Used"),
    ("marketoption", "OnDemand"),
];

tenon_domain::words! {
    /// The lists that make up a region's prices, one after the other. Bare metal isn't shared, and costs the same. Page
    /// tokens have its word.
    enum PriceList {
        Shared = "shared",
        BareMetal = "bare-metal",
    }
}

impl PriceList {
    const fn filters(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Shared => [("tenancy", "Shared"), ("productFamily", "Compute Instance")],
            Self::BareMetal => [("tenancy", "Dedicated"), ("productFamily", "Compute Instance (bare metal)")],
        }
    }

    const fn after(self) -> Option<Self> {
        match self {
            Self::Shared => Some(Self::BareMetal),
            Self::BareMetal => None,
        }
    }
}

/// Where the Pricing API answers for a region; none if the partition has no such API.
fn endpoint(region: &Region) -> Option<&'static str> {
    let region = region.as_str();
    if region.starts_with("us-gov-") || region.contains("-iso") {
        None
    } else if region.starts_with("cn-") {
        Some("cn-northwest-1")
    } else if region.starts_with("ap-") {
        Some("ap-south-1")
    } else if region.starts_with("eu-") {
        Some("eu-central-1")
    } else {
        Some("us-east-1")
    }
}

/// The Pricing API of an account.
#[derive(Clone)]
pub struct AwsPricing {
    client: Client,
    region: Region,
    endpoint: Option<&'static str>,
    report: Option<FailedCallSink>,
}

impl std::fmt::Debug for AwsPricing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsPricing").field("region", &self.region).finish_non_exhaustive()
    }
}

impl AwsPricing {
    /// Prices of a region, from the endpoint that serves them. The retries, timeouts and region of `config` are
    /// replaced. In partitions without a Pricing API (`aws-us-gov`, isolated ones) every call is refused without a
    /// request.
    ///
    /// Prices are in the region's currency.
    #[must_use]
    pub fn new(config: &SdkConfig, region: Region) -> Self {
        let endpoint = endpoint(&region);
        let config = Builder::from(config)
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(endpoint.map(SdkRegion::new))
            .retry_config(retries())
            .timeout_config(timeouts())
            .build();
        Self { client: Client::from_conf(config), region, endpoint, report: None }
    }

    /// Reports every failed call, with its request id.
    #[must_use]
    pub fn reporting(mut self, report: FailedCallSink) -> Self {
        self.report = Some(report);
        self
    }

    fn refused(&self) -> Ec2Error {
        Ec2Error::Invalid {
            action: ACTION.to_owned(),
            code: NO_PRICING_API.to_owned(),
            message: format!("the partition of region `{}` has no Pricing API", self.region),
        }
    }
}

/// The list that a page is of, and EC2's token in it.
fn place(page: Option<PageToken>) -> Result<(PriceList, Option<String>), Ec2Error> {
    let Some(PageToken(text)) = page else { return Ok((PriceList::Shared, None)) };
    let (list, token) = text.split_once(' ').unwrap_or((&text, ""));
    let list = [PriceList::Shared, PriceList::BareMetal]
        .into_iter()
        .find(|known| known.as_str() == list)
        .ok_or_else(|| {
            Ec2Error::from_code(ACTION, "InvalidNextToken", "the page token isn't one of this port's")
        })?;
    Ok((list, (!token.is_empty()).then(|| token.to_owned())))
}

fn filters(list: PriceList, region: &Region) -> Vec<Filter> {
    let of_list = list.filters();
    let all = COMMON.iter().chain(&of_list).copied().chain([("regionCode", region.as_str())]);
    let filter = |(field, value): (&str, &str)| {
        Filter::builder().r#type(FilterType::TermMatch).field(field).value(value).build()
    };
    // All three fields that the builder requires are set.
    all.filter_map(|pair| filter(pair).ok()).collect()
}

impl Pricing for AwsPricing {
    async fn on_demand_prices(&self, page: Option<PageToken>) -> Result<Page<OnDemandPrice>, Ec2Error> {
        if self.endpoint.is_none() {
            return Err(self.refused());
        }
        let currency = Currency::of_region(&self.region);
        let (list, token) = place(page)?;
        let sent = self
            .client
            .get_products()
            .service_code("AmazonEC2")
            .set_filters(Some(filters(list, &self.region)))
            .max_results(PAGE)
            .set_next_token(token)
            .send();
        let answer = sent.await.map_err(|error| {
            let failed = FailedCall::of(ACTION, &error);
            if let Some(report) = &self.report {
                report(&failed);
            }
            failed.into_error()
        })?;
        let prices = answer
            .price_list()
            .iter()
            .filter_map(|json| on_demand_price(json, currency).transpose())
            .collect::<Result<_, _>>()
            .map_err(|malformed| malformed.into_error(ACTION))?;
        let next = match next(answer.next_token.as_deref()) {
            Some(PageToken(token)) => Some(PageToken(format!("{} {token}", list.as_str()))),
            None => list.after().map(|list| PageToken(list.as_str().to_owned())),
        };
        Ok(Page { items: prices, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(region: &str, expected: Option<&str>) {
        assert_eq!(endpoint(&Region::parse(region).unwrap()), expected, "{region}");
    }

    #[test]
    fn a_region_is_asked_at_the_endpoint_that_has_its_prices() {
        check("us-east-1", Some("us-east-1"));
        check("eu-west-3", Some("eu-central-1"));
        check("ap-northeast-1", Some("ap-south-1"));
        check("sa-east-1", Some("us-east-1"));
        check("cn-north-1", Some("cn-northwest-1"));
        check("us-gov-west-1", None);
        check("us-iso-east-1", None);
    }

    #[test]
    fn a_page_token_says_which_list_it_is_of() {
        assert_eq!(place(None).unwrap(), (PriceList::Shared, None));
        assert_eq!(place(Some(PageToken("bare-metal".to_owned()))).unwrap(), (PriceList::BareMetal, None));
        let token = PageToken("shared a b".to_owned());
        assert_eq!(place(Some(token)).unwrap(), (PriceList::Shared, Some("a b".to_owned())));
        assert!(place(Some(PageToken("page-100".to_owned()))).is_err());
    }
}
