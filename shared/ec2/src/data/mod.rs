//! Facts about EC2 that come with the code (`data/README.md` tells their date and gaps).
//!
//! Decides how the files are read. Invariant: each is read once a process.

mod corrections;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use tenon_domain::catalog::describe::Limits;
use tenon_domain::evidence::Date;
use tenon_domain::id::{InstanceType, Region, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

use crate::port::{AvailabilityZone, InstanceTypeInfo};
use corrections::{Correction, correct};

/// The day of which the data are: November 2026.
pub const AS_OF: Date = Date::constant(2026, 11, 1);

/// Data that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// A file that came with the code is broken.
    #[error("the data file `{file}` is unreadable: {reason}")]
    Unreadable {
        /// The file.
        file: &'static str,
        /// Why.
        reason: String,
    },
    /// A region that there are no offerings for.
    #[error("unknown region `{region}`: use one of {known}")]
    UnknownRegion {
        /// The requested region.
        region: Region,
        /// Those that are, each in backticks.
        known: String,
    },
}

/// The offerings of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionOfferings {
    /// The region's zones, by name.
    pub zones: Vec<AvailabilityZone>,
    /// The zones, by name, in which each type is offered.
    pub types: BTreeMap<InstanceType, BTreeSet<Zone>>,
}

/// Everything that came with the code.
#[derive(Debug)]
pub struct Ec2Data {
    /// Instance types by name, in the form of DescribeInstanceTypes and corrected.
    pub types: BTreeMap<InstanceType, Arc<InstanceTypeInfo>>,
    /// The offerings of each region.
    pub regions: BTreeMap<Region, RegionOfferings>,
    /// On-demand prices (Linux, shared tenancy, USD) of one region; the only ones that are known.
    pub on_demand: BTreeMap<InstanceType, UsdPerHour>,
    /// The region of the on-demand prices: us-east-1.
    pub on_demand_region: Region,
    /// Interfaces and bandwidth, which DescribeInstanceTypes doesn't serve; corrected.
    pub limits: Limits,
}

impl Ec2Data {
    /// The data, read at the first call.
    ///
    /// # Errors
    /// [`DataError::Unreadable`] when a file that came with the code is broken.
    pub fn get() -> Result<&'static Self, DataError> {
        static DATA: OnceLock<Result<Ec2Data, DataError>> = OnceLock::new();
        DATA.get_or_init(Self::read).as_ref().map_err(Clone::clone)
    }

    /// The offerings of a region.
    ///
    /// # Errors [`DataError::UnknownRegion`] for a region without data.
    pub fn region(&self, region: &Region) -> Result<&RegionOfferings, DataError> {
        self.regions.get(region).ok_or_else(|| DataError::UnknownRegion {
            region: region.clone(),
            known: self.regions.keys().map(|r| format!("`{r}`")).collect::<Vec<_>>().join(", "),
        })
    }

    fn read() -> Result<Self, DataError> {
        let (mut types, mut limits) = (types()?, limits()?);
        correct(&corrections()?, &mut types, &mut limits);
        let offerings: BTreeMap<String, RegionFile> =
            gzip("offerings.json.gz", include_bytes!("../../data/offerings.json.gz"))?;
        let types = types
            .into_iter()
            .map(|info| {
                let name = id("instance-types.json.gz", info.instance_type.as_deref().unwrap_or_default())?;
                Ok((name, Arc::new(info)))
            })
            .collect::<Result<_, DataError>>()?;
        let mut regions = BTreeMap::new();
        for (region, file) in offerings {
            let region = Region::parse(region).map_err(|e| unreadable("offerings.json.gz", &e))?;
            regions.insert(region, file.parse()?);
        }
        let (on_demand_region, on_demand) = prices()?;
        Ok(Self { types, regions, on_demand, on_demand_region, limits })
    }
}

#[derive(Deserialize)]
struct RegionFile {
    zones: BTreeMap<String, Vec<String>>,
    zone_ids: BTreeMap<String, Vec<String>>,
}

impl RegionFile {
    /// Zones' names and ids come in separate lists; a zone's id is the one under which the same types are offered.
    fn parse(self) -> Result<RegionOfferings, DataError> {
        let file = "offerings.json.gz";
        let by_id = invert(&self.zone_ids);
        let mut zones = Vec::new();
        for (name, offered) in invert(&self.zones) {
            let same = by_id.iter().find(|(_, types)| **types == offered).map(|(id, _)| *id);
            let zone_id = same.ok_or_else(|| unreadable(file, &format!("zone `{name}` has no id")))?;
            zones.push(AvailabilityZone {
                name: Zone::parse(name).map_err(|e| unreadable(file, &e))?,
                id: ZoneId::parse(zone_id).map_err(|e| unreadable(file, &e))?,
            });
        }
        let types = self
            .zones
            .iter()
            .map(|(name, zones)| {
                let zones = zones.iter().map(|z| Zone::parse(z).map_err(|e| unreadable(file, &e)));
                Ok((id(file, name)?, zones.collect::<Result<_, _>>()?))
            })
            .collect::<Result<_, DataError>>()?;
        Ok(RegionOfferings { zones, types })
    }
}

/// The recorded descriptions.
fn types() -> Result<Vec<InstanceTypeInfo>, DataError> {
    gzip("instance-types.json.gz", include_bytes!("../../data/instance-types.json.gz"))
}

/// A price list, and the one region that it is of.
fn prices() -> Result<(Region, BTreeMap<InstanceType, UsdPerHour>), DataError> {
    let file = "on-demand-prices.json.gz";
    let regions: BTreeMap<String, BTreeMap<String, serde_json::Number>> =
        gzip(file, include_bytes!("../../data/on-demand-prices.json.gz"))?;
    let mut regions = regions.into_iter();
    let (Some((region, prices)), None) = (regions.next(), regions.next()) else {
        return Err(unreadable(file, &"it isn't of exactly one region"));
    };
    let price = |(name, price): (String, serde_json::Number)| {
        let price = UsdPerHour::parse(&price.to_string()).map_err(|e| unreadable(file, &e))?;
        Ok((id(file, &name)?, price))
    };
    let prices = prices.into_iter().map(price).collect::<Result<_, DataError>>()?;
    Ok((Region::parse(region).map_err(|e| unreadable(file, &e))?, prices))
}

/// The recorded limits.
fn limits() -> Result<Limits, DataError> {
    let (eni, bandwidth) =
        (include_str!("../../data/eni-limits.json"), include_str!("../../data/network-bandwidth-mbps.json"));
    Limits::parse(eni, bandwidth)
        .map_err(|e| unreadable("eni-limits.json or network-bandwidth-mbps.json", &e))
}

fn corrections() -> Result<Vec<Correction>, DataError> {
    serde_json::from_str(include_str!("../../data/corrections.json"))
        .map_err(|e| unreadable("corrections.json", &e))
}

fn invert(types: &BTreeMap<String, Vec<String>>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut inverted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, locations) in types {
        for location in locations {
            inverted.entry(location).or_default().insert(name);
        }
    }
    inverted
}

fn id(file: &'static str, name: &str) -> Result<InstanceType, DataError> {
    InstanceType::parse(name).map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &'static str, reason: &impl ToString) -> DataError {
    DataError::Unreadable { file, reason: reason.to_string() }
}

fn gzip<T: for<'a> Deserialize<'a>>(file: &'static str, bytes: &[u8]) -> Result<T, DataError> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).map_err(|e| unreadable(file, &e))?;
    serde_json::from_slice(&text).map_err(|e| unreadable(file, &e))
}

/// The default number of vCPUs of a type.
#[must_use]
pub fn vcpus(info: &InstanceTypeInfo) -> u32 {
    info.vcpu_info.as_ref().and_then(|v| v.default_vcpus).unwrap_or(0)
}

/// The processor architectures that a type supports.
#[must_use]
pub fn architectures(info: &InstanceTypeInfo) -> &[String] {
    info.processor_info.as_ref().and_then(|p| p.supported_architectures.as_deref()).unwrap_or_default()
}

/// Whether a type supports a usage class: `spot`, `on-demand`, `capacity-block`.
#[must_use]
pub fn supports_usage_class(info: &InstanceTypeInfo, class: &str) -> bool {
    info.supported_usage_classes.iter().flatten().any(|c| c == class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> &'static Ec2Data {
        Ec2Data::get().unwrap()
    }

    #[test]
    fn all_types_are_read_and_have_facts() {
        assert_eq!(data().types.len(), 1395);
        let m5 = &data().types[&InstanceType::parse("m5.large").unwrap()];
        assert_eq!((vcpus(m5), architectures(m5)), (2, &["x86_64".to_owned()][..]));
        assert!(supports_usage_class(m5, "spot") && !supports_usage_class(m5, "capacity-block"));
        assert_eq!(data().limits.eni["m5.large"].ipv4_per_interface, 10);
        for info in data().types.values() {
            let facts = tenon_domain::catalog::describe::facts(info, &data().limits).unwrap();
            assert!(facts.vcpus > 0 && facts.memory_mib > 0, "{}", facts.name);
            assert_eq!(facts.is_for_nodes(), info.is_for_nodes(), "{}", facts.name);
            assert_eq!(facts.is_for_nodes(), !facts.name.as_str().starts_with("mac"), "{}", facts.name);
        }
    }

    #[test]
    fn zones_get_the_id_under_which_the_same_types_are_offered() {
        let region = data().region(&Region::parse("us-east-1").unwrap()).unwrap();
        let zones: Vec<_> = region.zones.iter().map(|z| format!("{}={}", z.name, z.id)).collect();
        assert_eq!(
            zones.join(" "),
            "us-east-1a=use1-az2 us-east-1b=use1-az4 us-east-1c=use1-az6 us-east-1d=use1-az1 us-east-1e=use1-az3 us-east-1f=use1-az5"
        );
    }

    #[test]
    fn prices_are_exact() {
        assert_eq!(data().on_demand[&InstanceType::parse("m5.large").unwrap()].to_string(), "0.096");
        assert_eq!((data().on_demand.len(), data().on_demand_region.as_str()), (1367, "us-east-1"));
    }

    #[test]
    fn an_unknown_region_is_refused_with_those_that_are_known() {
        let error = data().region(&Region::parse("eu-north-1").unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown region `eu-north-1`: use one of `ap-southeast-1`, `eu-central-1`, `eu-west-1`, `us-east-1`, `us-west-2`"
        );
    }
}
