//! The forms in which parts of the catalogue are packed: rows of plain values in postcard.
//!
//! Decides how a domain value is flattened. A change of any row's shape is a new variant of [`PartForm`] at its end,
//! since postcard names no fields.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenon_domain::catalog::facts::{
    Architecture, Ebs, Gpu, Hypervisor, InferenceAccelerator, InstanceStore, InstanceTypeFacts, Network,
    NetworkCard, NeuronDevice, PlacementStrategy, Processor, Support, UsageClass,
};
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::id::{InstanceType, ParseIdError, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

use super::packed_spot::SpotForm;

/// A part, packed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PartForm {
    InstanceTypes(Vec<FactsForm>),
    Offerings { zones: Vec<(String, String)>, offered: Vec<(String, Vec<String>)> },
    OnDemandPrices(Vec<(String, u64)>),
    SpotPrices(SpotForm),
}

/// A packed value that isn't one of the domain's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormsError {
    #[error(transparent)]
    Id(#[from] ParseIdError),
    #[error("`{0}` is no placement strategy")]
    Strategy(String),
    #[error("`{0}` is no level of support")]
    Support(u8),
    #[error("its columns don't fit together")]
    Columns,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FactsForm {
    name: String,
    vcpus: u32,
    memory_mib: u64,
    architectures: Vec<String>,
    manufacturer: Option<String>,
    clock_speed_mhz: Option<u32>,
    features: Vec<String>,
    gpus: Vec<(String, String, u32, u64)>,
    neuron_devices: Vec<(String, u32, u32)>,
    inference_accelerators: Vec<(String, String, u32)>,
    instance_store: Option<(u64, u8)>,
    ebs: (u8, Option<u32>),
    network: NetworkForm,
    hypervisor: Option<String>,
    bare_metal: bool,
    nitro_enclaves: bool,
    burstable: bool,
    current_generation: bool,
    usage_classes: Vec<String>,
    placement_strategies: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NetworkForm {
    ena: u8,
    default_card_interfaces: u32,
    cards: Vec<(u32, u32)>,
    ipv4_per_interface: u32,
    max_efa_interfaces: u32,
    encryption_in_transit: bool,
    bandwidth_mbps: Option<u32>,
    branch_interfaces: u32,
}

impl PartForm {
    pub(super) fn of(data: &PartData) -> Self {
        match data {
            PartData::InstanceTypes(types) => {
                Self::InstanceTypes(types.values().map(|facts| FactsForm::of(facts)).collect())
            }
            PartData::Offerings(offerings) => {
                let zones = offerings.zones.iter().map(|(zone, id)| (zone.to_string(), id.to_string()));
                let offered = offerings
                    .offered
                    .iter()
                    .map(|(name, zones)| (name.to_string(), zones.iter().map(ToString::to_string).collect()));
                Self::Offerings { zones: zones.collect(), offered: offered.collect() }
            }
            PartData::OnDemandPrices(prices) => Self::OnDemandPrices(
                prices.iter().map(|(name, price)| (name.to_string(), price.nanos())).collect(),
            ),
            PartData::SpotPrices(prices) => Self::SpotPrices(SpotForm::of(prices)),
        }
    }

    pub(super) fn data(self) -> Result<PartData, FormsError> {
        Ok(match self {
            Self::InstanceTypes(rows) => {
                let facts = rows.into_iter().map(|row| {
                    let facts = row.facts()?;
                    Ok((facts.name.clone(), Arc::new(facts)))
                });
                PartData::InstanceTypes(facts.collect::<Result<_, FormsError>>()?)
            }
            Self::Offerings { zones, offered } => {
                let zone = |(zone, id)| Ok((Zone::parse(zone)?, ZoneId::parse(id)?));
                let row = |(name, zones): (String, Vec<String>)| {
                    let zones = zones.into_iter().map(Zone::parse).collect::<Result<_, _>>()?;
                    Ok((InstanceType::parse(name)?, zones))
                };
                PartData::Offerings(ZoneOfferings {
                    zones: zones.into_iter().map(zone).collect::<Result<_, FormsError>>()?,
                    offered: offered.into_iter().map(row).collect::<Result<_, FormsError>>()?,
                })
            }
            Self::OnDemandPrices(rows) => {
                let row = |(name, nanos)| Ok((InstanceType::parse(name)?, UsdPerHour::from_nanos(nanos)));
                PartData::OnDemandPrices(rows.into_iter().map(row).collect::<Result<_, FormsError>>()?)
            }
            Self::SpotPrices(form) => PartData::SpotPrices(form.data()?),
        })
    }
}

impl FactsForm {
    fn of(facts: &InstanceTypeFacts) -> Self {
        let gpu = |gpu: &Gpu| (gpu.name.clone(), gpu.manufacturer.clone(), gpu.count, gpu.memory_mib);
        let neuron = |device: &NeuronDevice| (device.name.clone(), device.count, device.cores);
        let accelerator =
            |found: &InferenceAccelerator| (found.name.clone(), found.manufacturer.clone(), found.count);
        Self {
            name: facts.name.to_string(),
            vcpus: facts.vcpus,
            memory_mib: facts.memory_mib,
            architectures: facts.architectures.iter().map(|found| found.as_str().to_owned()).collect(),
            manufacturer: facts.processor.manufacturer.clone(),
            clock_speed_mhz: facts.processor.clock_speed_mhz,
            features: facts.processor.features.clone(),
            gpus: facts.gpus.iter().map(gpu).collect(),
            neuron_devices: facts.neuron_devices.iter().map(neuron).collect(),
            inference_accelerators: facts.inference_accelerators.iter().map(accelerator).collect(),
            instance_store: facts.instance_store.map(|store| (store.total_gb, support_number(store.nvme))),
            ebs: (support_number(facts.ebs.optimized), facts.ebs.max_bandwidth_mbps),
            network: NetworkForm::of(&facts.network),
            hypervisor: facts.hypervisor.as_ref().map(|found| found.as_str().to_owned()),
            bare_metal: facts.bare_metal,
            nitro_enclaves: facts.nitro_enclaves,
            burstable: facts.burstable,
            current_generation: facts.current_generation,
            usage_classes: facts
                .usage_classes
                .iter()
                .map(|class| usage_class_word(class).to_owned())
                .collect(),
            placement_strategies: facts.placement_strategies.iter().map(|s| s.as_str().to_owned()).collect(),
        }
    }

    fn facts(self) -> Result<InstanceTypeFacts, FormsError> {
        let strategy = |word: String| {
            PlacementStrategy::from_ec2(&word).ok_or_else(|| FormsError::Strategy(word.clone()))
        };
        let store = |(total_gb, nvme)| Ok::<_, FormsError>(InstanceStore { total_gb, nvme: support(nvme)? });
        let gpu = |(name, manufacturer, count, memory_mib)| Gpu { name, manufacturer, count, memory_mib };
        let neuron = |(name, count, cores)| NeuronDevice { name, count, cores };
        let accelerator = |(name, manufacturer, count)| InferenceAccelerator { name, manufacturer, count };
        Ok(InstanceTypeFacts {
            name: InstanceType::parse(self.name)?,
            vcpus: self.vcpus,
            memory_mib: self.memory_mib,
            architectures: self.architectures.iter().map(|word| Architecture::from_ec2(word)).collect(),
            processor: Processor {
                manufacturer: self.manufacturer,
                clock_speed_mhz: self.clock_speed_mhz,
                features: self.features,
            },
            gpus: self.gpus.into_iter().map(gpu).collect(),
            neuron_devices: self.neuron_devices.into_iter().map(neuron).collect(),
            inference_accelerators: self.inference_accelerators.into_iter().map(accelerator).collect(),
            instance_store: self.instance_store.map(store).transpose()?,
            ebs: Ebs { optimized: support(self.ebs.0)?, max_bandwidth_mbps: self.ebs.1 },
            network: self.network.network()?,
            hypervisor: self.hypervisor.as_deref().map(Hypervisor::from_ec2),
            bare_metal: self.bare_metal,
            nitro_enclaves: self.nitro_enclaves,
            burstable: self.burstable,
            current_generation: self.current_generation,
            usage_classes: self.usage_classes.iter().map(|word| UsageClass::from_ec2(word)).collect(),
            placement_strategies: self
                .placement_strategies
                .into_iter()
                .map(strategy)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl NetworkForm {
    fn of(network: &Network) -> Self {
        Self {
            ena: support_number(network.ena),
            default_card_interfaces: network.default_card_interfaces,
            cards: network.cards.iter().map(|card| (card.index, card.max_interfaces)).collect(),
            ipv4_per_interface: network.ipv4_per_interface,
            max_efa_interfaces: network.max_efa_interfaces,
            encryption_in_transit: network.encryption_in_transit,
            bandwidth_mbps: network.bandwidth_mbps,
            branch_interfaces: network.branch_interfaces,
        }
    }

    fn network(self) -> Result<Network, FormsError> {
        Ok(Network {
            ena: support(self.ena)?,
            default_card_interfaces: self.default_card_interfaces,
            cards: self
                .cards
                .into_iter()
                .map(|(index, max_interfaces)| NetworkCard { index, max_interfaces })
                .collect(),
            ipv4_per_interface: self.ipv4_per_interface,
            max_efa_interfaces: self.max_efa_interfaces,
            encryption_in_transit: self.encryption_in_transit,
            bandwidth_mbps: self.bandwidth_mbps,
            branch_interfaces: self.branch_interfaces,
        })
    }
}

const fn support_number(support: Support) -> u8 {
    match support {
        Support::Unsupported => 0,
        Support::Supported => 1,
        Support::Always => 2,
    }
}

const fn support(number: u8) -> Result<Support, FormsError> {
    match number {
        0 => Ok(Support::Unsupported),
        1 => Ok(Support::Supported),
        2 => Ok(Support::Always),
        other => Err(FormsError::Support(other)),
    }
}

fn usage_class_word(class: &UsageClass) -> &str {
    match class {
        UsageClass::OnDemand => "on-demand",
        UsageClass::Spot => "spot",
        UsageClass::CapacityBlock => "capacity-block",
        UsageClass::Other(word) => word,
    }
}
