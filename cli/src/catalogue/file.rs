//! `--catalog`: a user's catalogue, part by part.
//!
//! Decides the file's form (docs/catalog-file.md), and its errors. A given part replaces the built-in one as a whole;
//! other parts stay.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tenon_domain::catalog::ZoneOfferings;
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::id::{InstanceType, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

use super::{OfferedOrigin, PriceOrigin, RegionCatalog, TypesScope, names, read_facts};
use crate::errors::{Failure, Problem, did_you_mean};

/// The most that a packed file may be unpacked: the whole catalogue of a region has about 2 MB.
const UNPACKED_MAX: u64 = 256 << 20;

/// The parts. Their values are read one by one, so that each error has its place.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileParts {
    /// DescribeInstanceTypes' `InstanceTypes[]`.
    #[serde(alias = "InstanceTypes")]
    instance_types: Option<Value>,
    /// Zones' ids by name.
    zones: Option<Value>,
    /// Zones by instance type.
    offerings: Option<Value>,
    /// USD per hour by instance type.
    on_demand_prices: Option<Value>,
    /// USD per hour by instance type and zone.
    spot_prices: Option<Value>,
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
    let form = "see docs/catalog-file.md for the form";
    let unreadable = |error: serde_json::Error| {
        let line = u32::try_from(error.line()).ok();
        wrong(error.to_string(), form).on_line(line)
    };
    // serde would take a list's elements for the parts.
    if !text.trim_start().starts_with('{') {
        let other: Value = serde_json::from_str(&text).map_err(unreadable)?;
        return Err(wrong(format!("expected an object, found {}", found(&other)), form).into());
    }
    let parts = serde_json::from_str(&text).map_err(unreadable)?;
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
        // All types of the file or the build may be named, including those that no node can have.
        let known = match &instance_types {
            Some(given) => described(given),
            None => built_in_names(catalog),
        };
        if let Some(given) = instance_types {
            let infos = reading.infos(&given, limits);
            let types = read_facts(infos.iter(), limits, scope)?;
            catalog.offerings.offered.retain(|name, _| types.contains_key(name));
            catalog.types = types;
        }
        if let Some(zones) = zones.and_then(|given| reading.entries("zones", given)) {
            catalog.offerings.zones = reading.zones(zones);
        }
        if let Some(offerings) = offerings.and_then(|given| reading.entries("offerings", given)) {
            let offered = reading.types("offerings", offerings, &known, |reading, name, zones| {
                let Value::Array(zones) = &zones else {
                    reading.wrong_form("offerings", name, "a list of zones", &zones);
                    return None;
                };
                let read = |zone| reading.zone_of("offerings", name, zone, &catalog.offerings);
                Some(zones.iter().filter_map(read).collect())
            });
            catalog.offerings.offered =
                offered.into_iter().filter(|(name, _)| catalog.types.contains_key(name)).collect();
            catalog.offered_origin = OfferedOrigin::Given;
        }
        if let Some(prices) = on_demand_prices.and_then(|given| reading.entries("onDemandPrices", given)) {
            catalog.on_demand = reading.types("onDemandPrices", prices, &known, |reading, name, price| {
                reading.price("onDemandPrices", name, &price)
            });
            catalog.origin = PriceOrigin::Own;
        }
        if let Some(prices) = spot_prices.and_then(|given| reading.entries("spotPrices", given)) {
            let zones = catalog.offerings.clone();
            catalog.spot = Some(reading.types("spotPrices", prices, &known, |reading, name, prices| {
                let Value::Object(prices) = &prices else {
                    reading.wrong_form("spotPrices", name, "prices by zone", &prices);
                    return None;
                };
                let priced = prices.iter().filter_map(|(zone, price)| {
                    let zone = reading.zone("spotPrices", name, zone, &zones)?;
                    Some((zone, reading.price("spotPrices", name, price)?))
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

/// The names of a file's types, also of those that can't be read.
fn described(given: &Value) -> BTreeSet<String> {
    let name = |info: &Value| info.get("InstanceType").and_then(Value::as_str).map(str::to_owned);
    given.as_array().into_iter().flatten().filter_map(name).collect()
}

/// A value in words, for a message about its form.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(given) => format!("`{given}`"),
        Value::Number(number) => format!("the number `{number}`"),
        Value::String(text) => format!("the string `{text}`"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The problems, as they are found.
struct FileReading<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl FileReading<'_> {
    fn add(&mut self, part: &str, entry: &str, problem: Problem) {
        let line = self.line_of(part, entry).or_else(|| self.line_of(part, part));
        self.problems.push(problem.in_file(self.name).on_line(line).at(format!("{part}.{entry}")));
    }

    /// A problem of a value's form; one of the whole part has no entry.
    fn wrong_form(&mut self, part: &str, entry: &str, expected: &str, value: &Value) {
        let message = format!("expected {expected}, found {}", found(value));
        let problem = Problem::new(message, "see docs/catalog-file.md for the form");
        if entry.is_empty() {
            let line = self.line_of(part, part);
            self.problems.push(problem.in_file(self.name).on_line(line).at(part));
        } else {
            self.add(part, entry, problem);
        }
    }

    /// The entries of a part by name; `None` if it has another form.
    fn entries(&mut self, part: &str, value: Value) -> Option<BTreeMap<String, Value>> {
        match value {
            Value::Object(entries) => Some(entries.into_iter().collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.wrong_form(part, "", "an object", &value);
                None
            }
        }
    }

    /// The descriptions of instance types that facts can be made from, also for types that no node can have: half a
    /// description doesn't say which types these are.
    fn infos(&mut self, given: &Value, limits: &Limits) -> Vec<InstanceTypeInfo> {
        // DescribeInstanceTypes' answer has it under its own name.
        let part = ["instanceTypes", "InstanceTypes"]
            .into_iter()
            .find(|part| self.text.contains(&format!("\"{part}\"")))
            .unwrap_or("instanceTypes");
        let Value::Array(list) = given else {
            self.wrong_form(part, "", "a list of instance types", given);
            return Vec::new();
        };
        let mut infos = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let name = value.get("InstanceType").and_then(Value::as_str);
            let name = name.map_or_else(|| format!("[{index}]"), str::to_owned);
            let remedy = "give it as DescribeInstanceTypes does";
            if !value.is_object() {
                self.wrong_form(part, &name, "an instance type", value);
                continue;
            }
            let read = InstanceTypeInfo::deserialize(value).map_err(|error| error.to_string());
            let described = read.and_then(|info| {
                facts(&info, limits).map_err(|error| error.to_string())?;
                Ok(info)
            });
            match described {
                Ok(info) => infos.push(info),
                Err(message) => self.add(part, &name, Problem::new(message, remedy)),
            }
        }
        infos
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

    /// A zone that must be written as text.
    fn zone_of(&mut self, part: &str, entry: &str, zone: &Value, known: &ZoneOfferings) -> Option<Zone> {
        let Some(zone) = zone.as_str() else {
            self.wrong_form(part, entry, "a zone's name", zone);
            return None;
        };
        self.zone(part, entry, zone, known)
    }

    /// A price as text, or as a number with its literal digits.
    fn price(&mut self, part: &str, entry: &str, price: &Value) -> Option<UsdPerHour> {
        let text = match price {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong_form(part, entry, "a price", price);
                return None;
            }
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

    fn zones(&mut self, zones: BTreeMap<String, Value>) -> BTreeMap<Zone, ZoneId> {
        let mut read = BTreeMap::new();
        for (name, id) in zones {
            let Some(id) = id.as_str() else {
                self.wrong_form("zones", &name, "a zone's id", &id);
                continue;
            };
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
