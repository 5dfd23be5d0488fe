//! `--catalog`: a user's catalogue, part by part.
//!
//! Decides the file's form (docs/catalog-file.md), and its errors. A given part replaces the built-in one as a whole;
//! other parts stay.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use tenon_domain::catalog::ZoneOfferings;
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits};
use tenon_domain::id::{InstanceType, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

use super::{PriceOrigin, RegionCatalog, TypesScope, names, read_facts};
use crate::errors::{Failure, Problem, did_you_mean};

/// The most that a packed file may be unpacked: the whole catalogue of a region has about 2 MB.
const UNPACKED_MAX: u64 = 256 << 20;

/// The parts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileParts {
    /// DescribeInstanceTypes' `InstanceTypes[]`.
    #[serde(alias = "InstanceTypes")]
    instance_types: Option<Vec<InstanceTypeInfo>>,
    /// Zones' ids by name.
    zones: Option<BTreeMap<String, String>>,
    /// Zones by instance type.
    offerings: Option<BTreeMap<String, Vec<String>>>,
    /// USD per hour by instance type.
    on_demand_prices: Option<BTreeMap<String, Price>>,
    /// USD per hour by instance type and zone.
    spot_prices: Option<BTreeMap<String, BTreeMap<String, Price>>>,
}

/// A price as text, or as a number with its literal digits.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Price {
    Text(String),
    Number(serde_json::Number),
}

/// A file, read.
pub(super) struct CatalogFile {
    name: String,
    text: String,
    parts: FileParts,
}

/// Reads a file, plain or gzip'd.
///
/// # Errors
/// [`Failure`] names the line.
pub(super) fn read(path: &Path) -> Result<CatalogFile, Failure> {
    let name = crate::input::name_of(path);
    let bytes = crate::input::read_bytes(path)?;
    let wrong = |message: String, remedy: &str| Problem::new(message, remedy).in_file(&name);
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = String::new();
        let mut unpacked = flate2::read::GzDecoder::new(bytes.as_slice()).take(UNPACKED_MAX);
        unpacked.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string())
    } else {
        String::from_utf8(bytes).map_err(|error| error.to_string())
    };
    let text =
        text.map_err(|error| wrong(format!("can't be read: {error}"), "give JSON, plain or gzip'd"))?;
    let parts = serde_json::from_str(&text).map_err(|error| {
        let line = u32::try_from(error.line()).ok();
        wrong(error.to_string(), "see docs/catalog-file.md for the form").on_line(line)
    })?;
    Ok(CatalogFile { name, text, parts })
}

impl CatalogFile {
    /// Puts its parts instead of the catalogue's.
    pub(super) fn apply(
        self,
        catalog: &mut RegionCatalog,
        limits: &Limits,
        scope: TypesScope,
    ) -> Result<(), Failure> {
        let mut reading = FileReading { name: &self.name, text: &self.text, problems: Vec::new() };
        let FileParts { instance_types, zones, offerings, on_demand_prices, spot_prices } = self.parts;
        if let Some(infos) = &instance_types {
            match read_facts(infos.iter(), limits, scope) {
                Ok(types) => {
                    catalog.offerings.offered.retain(|name, _| types.contains_key(name));
                    catalog.types = types;
                }
                Err(Failure(problems)) => {
                    for problem in problems {
                        let name = problem.field.clone().unwrap_or_default();
                        reading.add("instanceTypes", &name, problem);
                    }
                }
            }
        }
        if let Some(zones) = zones {
            catalog.offerings.zones = reading.zones(zones);
        }
        // All types of the file or the build may be named, including those that no node can have.
        let known: BTreeSet<String> = match &instance_types {
            Some(infos) => infos.iter().filter_map(|info| info.instance_type.clone()).collect(),
            None => built_in_names(catalog),
        };
        if let Some(offerings) = offerings {
            let offered = reading.types("offerings", offerings, &known, |reading, name, zones| {
                let zones = zones.iter();
                Some(
                    zones
                        .filter_map(|zone| reading.zone("offerings", name, zone, &catalog.offerings))
                        .collect(),
                )
            });
            catalog.offerings.offered =
                offered.into_iter().filter(|(name, _)| catalog.types.contains_key(name)).collect();
        }
        if let Some(prices) = on_demand_prices {
            catalog.on_demand = reading.types("onDemandPrices", prices, &known, |reading, name, price| {
                reading.price("onDemandPrices", name, &price)
            });
            catalog.origin = PriceOrigin::Own;
        }
        if let Some(prices) = spot_prices {
            let zones = catalog.offerings.clone();
            catalog.spot = Some(reading.types("spotPrices", prices, &known, |reading, name, prices| {
                let priced = prices.into_iter().filter_map(|(zone, price)| {
                    let zone = reading.zone("spotPrices", name, &zone, &zones)?;
                    Some((zone, reading.price("spotPrices", name, &price)?))
                });
                Some(priced.collect())
            }));
        }
        reading.problems.sort_by_key(|problem| problem.line);
        if reading.problems.is_empty() { Ok(()) } else { Err(Failure(reading.problems)) }
    }
}

fn built_in_names(catalog: &RegionCatalog) -> BTreeSet<String> {
    let built_in = tenon_ec2::data::Ec2Data::get().map(|data| names(data.types.keys())).unwrap_or_default();
    built_in.into_iter().chain(names(catalog.types.keys())).map(str::to_owned).collect()
}

/// The problems, as they are found.
struct FileReading<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl FileReading<'_> {
    fn add(&mut self, part: &str, entry: &str, problem: Problem) {
        let line = self.line_of(part, entry);
        self.problems.push(problem.in_file(self.name).on_line(line).at(format!("{part}.{entry}")));
    }

    /// The line of the first mention of an entry after its part's name.
    fn line_of(&self, part: &str, entry: &str) -> Option<u32> {
        let part = self.text.find(&format!("\"{part}\"")).unwrap_or(0);
        let entry = self.text.get(part..)?.find(&format!("\"{entry}\""))?;
        let before = self.text.get(..part + entry)?;
        u32::try_from(before.bytes().filter(|byte| *byte == b'\n').count() + 1).ok()
    }

    /// A part by type, without entries that can't be read; types that nothing describes are problems.
    fn types<T, U>(
        &mut self,
        part: &str,
        entries: BTreeMap<String, T>,
        known: &BTreeSet<String>,
        mut read: impl FnMut(&mut Self, &str, T) -> Option<U>,
    ) -> BTreeMap<InstanceType, U> {
        let mut types = BTreeMap::new();
        for (name, entry) in entries {
            match InstanceType::parse(&name) {
                Ok(parsed) if known.contains(&name) => {
                    types.extend(read(self, &name, entry).map(|value| (parsed, value)));
                }
                Ok(_) | Err(_) => {
                    let remedy = did_you_mean(
                        &name,
                        known.iter().map(String::as_str),
                        "describe it in `instanceTypes`, or leave it out",
                    );
                    self.add(part, &name, Problem::new(format!("unknown instance type `{name}`"), remedy));
                }
            }
        }
        types
    }

    fn zone(&mut self, part: &str, entry: &str, zone: &str, known: &ZoneOfferings) -> Option<Zone> {
        let found = known.zones.keys().find(|known| known.as_str() == zone);
        if found.is_none() {
            let names: Vec<&str> = known.zones.keys().map(Zone::as_str).collect();
            let remedy = format!("use one of `{}`, or add it to `zones` with its id", names.join("`, `"));
            self.add(part, entry, Problem::new(format!("unknown zone `{zone}`"), remedy));
        }
        found.cloned()
    }

    fn price(&mut self, part: &str, entry: &str, price: &Price) -> Option<UsdPerHour> {
        let text = match price {
            Price::Text(text) => text.clone(),
            Price::Number(number) => number.to_string(),
        };
        UsdPerHour::parse(&text)
            .map_err(|error| {
                self.add(
                    part,
                    entry,
                    Problem::new(error.to_string(), "write USD per hour, such as \"0.096\""),
                );
            })
            .ok()
    }

    fn zones(&mut self, zones: BTreeMap<String, String>) -> BTreeMap<Zone, ZoneId> {
        let mut read = BTreeMap::new();
        for (name, id) in zones {
            match (Zone::parse(&name), ZoneId::parse(id)) {
                (Ok(zone), Ok(id)) => {
                    read.insert(zone, id);
                }
                (Err(error), _) | (_, Err(error)) => {
                    let remedy = "write a zone's name and id, such as \"us-east-1a\": \"use1-az2\"";
                    self.add("zones", &name, Problem::new(error.to_string(), remedy));
                }
            }
        }
        read
    }
}
