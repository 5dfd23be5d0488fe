//! `tenon types`: instance types as Tenon sees them.
//!
//! Decides the document's form. An offering without a known price is available, with a price of null.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tenon_domain::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::node_labels::published_labels;
use tenon_domain::catalog::{
    Availability, CapacityType, Exhaustion, InstanceTypeOption, NodeSettings, Offering, Places,
    Unavailability,
};
use tenon_domain::id::InstanceType;
use tenon_domain::labels;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::unavailable::Marks;

use crate::args::TypesArgs;
use crate::catalogue::{PriceOrigin, RegionCatalog, TypesScope};
use crate::errors::{CommandOutcome, Failure, Problem, did_you_mean};
use crate::input;
use crate::output::{self, API_VERSION, Columns, OutputFormat};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TypesDocument {
    api_version: &'static str,
    region: String,
    types: BTreeMap<String, TypeDocument>,
}

#[derive(Debug, Serialize)]
struct TypeDocument {
    labels: BTreeMap<&'static str, String>,
    capacity: BTreeMap<String, String>,
    allocatable: BTreeMap<String, String>,
    offerings: Vec<OfferingDocument>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferingDocument {
    zone: String,
    zone_id: String,
    capacity_type: &'static str,
    price_usd_per_hour: Option<String>,
    available: bool,
}

/// Runs the command.
pub(crate) fn run(args: &TypesArgs) -> Result<CommandOutcome, Failure> {
    let mut catalog = RegionCatalog::built_in(&args.region.resolve()?, TypesScope::Known)?;
    select(&mut catalog, &args.types)?;
    let mut warnings = Vec::new();
    if catalog.origin == PriceOrigin::Borrowed {
        catalog.on_demand.clear();
        warnings.push(format!("no prices of region `{}` in this build", catalog.region));
    }
    let class = match &args.filename {
        Some(path) => {
            let read = input::read_manifests(std::slice::from_ref(path))?;
            warnings.extend(input::warnings_of(&read));
            Some(only_class(read.manifests.node_classes, &input::name_of(path))?)
        }
        None => None,
    };
    let settings = class.as_ref().map(|class| class.settings.clone()).unwrap_or_default();
    let catalog = catalog.of_account(class.as_slice());
    let subnets = class.as_ref().map(|class| catalog.subnets_of(class)).transpose()?.flatten();
    let places = subnets.as_deref().map_or(Places::AllZones, Places::Subnets);
    let marks = Marks::default();
    let exhaustion = Exhaustion { marks: &marks, requests: &[], now: Timestamp::UNIX_EPOCH };
    let options = catalog.view()?.described(&settings, places, exhaustion);
    output::warn(&warnings);
    match args.output.format {
        OutputFormat::Table => output::write(&table(&options))?,
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            output::write(&output::document_text(format, &document(&catalog, &settings, &options)))?
        }
    };
    Ok(CommandOutcome::Done)
}

/// Keeps only the requested types.
fn select(catalog: &mut RegionCatalog, wanted: &[InstanceType]) -> Result<(), Failure> {
    let unknown = wanted.iter().filter(|name| !catalog.types.contains_key(name));
    let problems: Vec<Problem> = unknown
        .map(|name| {
            let known = catalog.types.keys().map(InstanceType::as_str);
            let remedy = did_you_mean(name.as_str(), known, "`tenon types` prints all that are known");
            Problem::new(format!("unknown instance type `{name}`"), remedy).at("TYPE")
        })
        .collect();
    if !problems.is_empty() {
        return Err(Failure(problems));
    }
    if !wanted.is_empty() {
        let wanted: BTreeSet<_> = wanted.iter().collect();
        catalog.types.retain(|name, _| wanted.contains(name));
    }
    Ok(())
}

fn only_class(classes: Vec<Ec2NodeClass>, file: &str) -> Result<Ec2NodeClass, Failure> {
    let count = classes.len();
    let mut classes = classes.into_iter();
    match (classes.next(), classes.next()) {
        (Some(class), None) => Ok(class),
        (Some(_) | None, _) => {
            let message = format!("{count} EC2NodeClasses: expected exactly one");
            Err(Problem::new(message, "give a file with one EC2NodeClass").in_file(file).into())
        }
    }
}

fn document(
    catalog: &RegionCatalog,
    settings: &NodeSettings,
    options: &[InstanceTypeOption],
) -> TypesDocument {
    let types = options
        .iter()
        .map(|option| {
            let document = TypeDocument {
                labels: published_labels(&option.facts, settings.ami_family),
                capacity: quantities(&option.capacity),
                allocatable: quantities(&option.allocatable),
                offerings: offerings(option),
            };
            (option.facts.name.to_string(), document)
        })
        .collect();
    TypesDocument { api_version: API_VERSION, region: catalog.region.to_string(), types }
}

/// By zone, then capacity type, bytewise.
fn offerings(option: &InstanceTypeOption) -> Vec<OfferingDocument> {
    let mut offerings: Vec<_> = option.offerings.iter().map(offering_document).collect();
    offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    offerings
}

fn offering_document(offering: &Offering) -> OfferingDocument {
    let available = match &offering.availability {
        Availability::Available | Availability::Unavailable(Unavailability::PriceUnknown) => true,
        Availability::Unavailable(_) => false,
    };
    OfferingDocument {
        zone: offering.zone.to_string(),
        zone_id: offering.zone_id.to_string(),
        capacity_type: offering.capacity_type.as_str(),
        price_usd_per_hour: offering.price.map(|price| price.to_string()),
        available,
    }
}

/// Quantities by resource; those of nothing are left out.
fn quantities(list: &ResourceList) -> BTreeMap<String, String> {
    let nonzero = list.iter().filter(|(_, quantity)| !quantity.is_zero());
    nonzero.map(|(name, quantity)| (name.as_str().to_owned(), quantity.to_string())).collect()
}

fn table(options: &[InstanceTypeOption]) -> String {
    let heads = ["TYPE", "ARCH", "CPU", "MEMORY", "PODS", "ALLOCATABLE CPU", "ALLOCATABLE MEMORY", "ZONES"];
    let heads: Vec<&str> = heads.into_iter().chain(["USD/H ON-DEMAND"]).collect();
    let mut table = Columns::new(&heads).right(&[2, 3, 4, 5, 6, 7, 8]);
    for option in options {
        let price = option.offerings.iter().find(|o| o.capacity_type == CapacityType::OnDemand);
        let zones: BTreeSet<_> = option.offerings.iter().map(|offering| &offering.zone).collect();
        let architecture = option.labels.get(labels::ARCH).and_then(|arch| arch.single_value());
        let of = |list: &ResourceList, name: &ResourceName| list.get(name).to_string();
        table.row([
            option.facts.name.to_string(),
            architecture.unwrap_or("-").to_owned(),
            of(&option.capacity, &ResourceName::CPU),
            of(&option.capacity, &ResourceName::MEMORY),
            of(&option.capacity, &ResourceName::PODS),
            of(&option.allocatable, &ResourceName::CPU),
            of(&option.allocatable, &ResourceName::MEMORY),
            zones.len().to_string(),
            price.and_then(|offering| offering.price).map_or("-".to_owned(), |price| price.to_string()),
        ]);
    }
    table.text()
}
