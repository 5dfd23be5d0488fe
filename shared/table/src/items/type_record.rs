//! `TYPE#`: an instance type, for people. No function plans from it. `lifecycle` takes Nodes' labels from it, and
//! derives them equally if the item is missing. `TYPES`: the right to write most of them.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::catalog::node_labels::labels_of_type;
use tenon_domain::catalog::{InstanceTypeFacts, NodeSettings, node_shape};
use tenon_domain::id::{InstanceType, Region};
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::resources::ResourceList;

use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};
use crate::key::REVISION;

/// An instance type, as the default class sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRecord {
    /// Its name.
    pub name: InstanceType,
    /// The labels of its nodes with one value.
    pub labels: BTreeMap<String, String>,
    /// The capacity of its nodes.
    pub capacity: ResourceList,
    /// Names of the zones that offer it.
    pub zones: Vec<String>,
    /// The currency of its prices, which is a part of their attributes' names.
    pub currency: Currency,
    /// Its on-demand price, if known.
    pub on_demand: Option<UsdPerHour>,
    /// The region of the on-demand price, if it is another region's.
    pub on_demand_of: Option<Region>,
    /// Its spot prices by zone; refreshed twice a day, not with every spot price.
    pub spot: BTreeMap<String, UsdPerHour>,
}

impl TypeRecord {
    /// A type's attributes that don't depend on the zone.
    #[must_use]
    pub fn described(facts: &InstanceTypeFacts) -> Self {
        let settings = NodeSettings::default();
        let labels = labels_of_type(facts, settings.ami_family);
        Self {
            name: facts.name.clone(),
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            capacity: node_shape(facts, &settings, None).capacity.resources(),
            zones: Vec::new(),
            currency: Currency::default(),
            on_demand: None,
            on_demand_of: None,
            spot: BTreeMap::new(),
        }
    }
}

/// The right to write most types of a region: several runs of `catalog` at once would write each of them several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypesClaim {
    /// The count of claims and their ends; the next one is conditional on it.
    pub revision: u64,
    /// Until when it holds.
    pub until: Timestamp,
}

impl ItemForm for TypesClaim {
    fn write(&self, to: &mut Attributes) {
        to.number(REVISION, self.revision);
        to.time("until", self.until);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self { revision: from.u64(REVISION)?, until: from.time("until")? })
    }
}

const ON_DEMAND_OF: &str = "on_demand_of_region";

/// The attributes of on-demand and spot prices.
const fn prices(currency: Currency) -> (&'static str, &'static str) {
    match currency {
        Currency::Usd => ("on_demand_usd_per_hour", "spot_usd_per_hour"),
        Currency::Cny => ("on_demand_cny_per_hour", "spot_cny_per_hour"),
    }
}

impl ItemForm for TypeRecord {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.labels("labels", &self.labels);
        to.resources("capacity", &self.capacity);
        to.texts("zones", &self.zones);
        for currency in Currency::ALL {
            let (on_demand, spot) = prices(currency);
            if currency == self.currency {
                to.text_if(on_demand, self.on_demand.map(|price| price.to_string()));
                let by_zone = self.spot.iter().map(|(zone, price)| (zone.clone(), price.to_string()));
                to.labels(spot, &by_zone.collect());
            } else {
                to.text_if(on_demand, None::<&str>);
                to.text_if(spot, None::<&str>);
            }
        }
        to.text_if(ON_DEMAND_OF, self.on_demand_of.as_ref());
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let held = |currency: &Currency| from.value_if(prices(*currency).1).is_some();
        let currency = Currency::ALL.into_iter().find(held).unwrap_or_default();
        let (on_demand, spot) = prices(currency);
        let price = |name: &str, text: &str| {
            UsdPerHour::parse(text)
                .map_err(|error| FieldError::at(name, FieldProblem::Invalid(error.to_string())))
        };
        let by_zone = from.labels(spot)?.into_iter().map(|(zone, text)| Ok((zone, price(spot, &text)?)));
        Ok(Self {
            name: from.parsed("name")?,
            labels: from.labels("labels")?,
            capacity: from.resources("capacity")?,
            zones: from.texts("zones")?,
            currency,
            on_demand: from.text_if(on_demand)?.map(|text| price(on_demand, text)).transpose()?,
            on_demand_of: from.parsed_if(ON_DEMAND_OF)?,
            spot: by_zone.collect::<Result<_, _>>()?,
        })
    }
}
