//! `TYPE#`: an instance type for people. No function plans from it; `lifecycle` takes what Nodes are labelled with from it.

use std::collections::BTreeMap;

use tenon_domain::id::InstanceType;
use tenon_domain::money::UsdPerHour;
use tenon_domain::resources::ResourceList;

use super::form::{Attributes, FieldError, Fields, Form, Problem};

/// An instance type, as the default class sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRecord {
    /// Its name.
    pub name: InstanceType,
    /// What its nodes are labelled with, where that is one value.
    pub labels: BTreeMap<String, String>,
    /// The capacity of its nodes.
    pub capacity: ResourceList,
    /// Names of the zones that offer it.
    pub zones: Vec<String>,
    /// Its on-demand price, where it is known.
    pub on_demand: Option<UsdPerHour>,
    /// Its spot prices by zone; refreshed twice a day, not with every spot price.
    pub spot: BTreeMap<String, UsdPerHour>,
}

impl Form for TypeRecord {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.labels("labels", &self.labels);
        to.resources("capacity", &self.capacity);
        to.texts("zones", &self.zones);
        to.text_if("on_demand_usd_per_hour", self.on_demand.map(|price| price.to_string()));
        let spot = self.spot.iter().map(|(zone, price)| (zone.clone(), price.to_string())).collect();
        to.labels("spot_usd_per_hour", &spot);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let price = |name: &str, text: &str| {
            UsdPerHour::parse(text).map_err(|error| FieldError::at(name, Problem::Invalid(error.to_string())))
        };
        let spot = from.labels("spot_usd_per_hour")?;
        let spot = spot.into_iter().map(|(zone, text)| Ok((zone, price("spot_usd_per_hour", &text)?)));
        Ok(Self {
            name: from.parsed("name")?,
            labels: from.labels("labels")?,
            capacity: from.resources("capacity")?,
            zones: from.texts("zones")?,
            on_demand: from
                .text_if("on_demand_usd_per_hour")?
                .map(|text| price("on_demand_usd_per_hour", text))
                .transpose()?,
            spot: spot.collect::<Result<_, _>>()?,
        })
    }
}
