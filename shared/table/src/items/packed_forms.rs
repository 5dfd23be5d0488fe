//! The packed forms of the catalogue's parts: rows of plain values in postcard.
//!
//! Decides how a domain value is flattened. A change of a row's fields needs a new last variant of [`PartForm`],
//! because postcard has no field names. Texts are borrowed from the input: most become words of the domain, and a
//! string for each would dominate the time of a read.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenon_domain::catalog::facts::{
    Architecture, BootModes, Ebs, EbsAttachments, Gpu, Hypervisor, InferenceAccelerator, InstanceStore,
    InstanceTypeFacts, Network, NetworkCard, NeuronDevice, PlacementStrategy, Processor, Support, UsageClass,
};
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::id::{InstanceType, ParseIdError, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

use super::packed_spot::SpotForm;

/// A part, packed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PartForm<'a> {
    #[serde(borrow)]
    InstanceTypes(Vec<FactsForm<'a>>),
    Offerings {
        #[serde(borrow)]
        zones: Vec<(&'a str, &'a str)>,
        #[serde(borrow)]
        offered: Vec<(&'a str, Vec<&'a str>)>,
    },
    #[serde(borrow)]
    OnDemandPrices(Vec<(&'a str, u64)>),
    #[serde(borrow)]
    SpotPrices(SpotForm<'a>),
    /// Types with their boot modes, which the first variant lacks: a number for each row.
    BootingTypes {
        #[serde(borrow)]
        rows: Vec<FactsForm<'a>>,
        boot_modes: Vec<u8>,
    },
    /// The same with how many volumes they may attach: a number for each row.
    AttachingTypes {
        #[serde(borrow)]
        rows: Vec<FactsForm<'a>>,
        boot_modes: Vec<u8>,
        attachments: Vec<u32>,
    },
}

/// A packed value that isn't one of the domain's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormsError {
    #[error(transparent)]
    Id(#[from] ParseIdError),
    #[error("`{0}` isn't a placement strategy")]
    Strategy(String),
    #[error("`{0}` isn't a level of support")]
    Support(u8),
    #[error("`{0}` is no number for boot modes")]
    BootModes(u8),
    #[error("its columns don't match")]
    Columns,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FactsForm<'a> {
    name: &'a str,
    vcpus: u32,
    memory_mib: u64,
    #[serde(borrow)]
    architectures: Vec<&'a str>,
    #[serde(borrow)]
    manufacturer: Option<&'a str>,
    clock_speed_mhz: Option<u32>,
    #[serde(borrow)]
    features: Vec<&'a str>,
    #[serde(borrow)]
    gpus: Vec<(&'a str, &'a str, u32, u64)>,
    #[serde(borrow)]
    neuron_devices: Vec<(&'a str, u32, u32)>,
    #[serde(borrow)]
    inference_accelerators: Vec<(&'a str, &'a str, u32)>,
    instance_store: Option<(u64, u8)>,
    ebs: (u8, Option<u32>),
    network: NetworkForm,
    #[serde(borrow)]
    hypervisor: Option<&'a str>,
    bare_metal: bool,
    nitro_enclaves: bool,
    burstable: bool,
    current_generation: bool,
    #[serde(borrow)]
    usage_classes: Vec<&'a str>,
    #[serde(borrow)]
    placement_strategies: Vec<&'a str>,
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

impl<'a> PartForm<'a> {
    pub(super) fn of(data: &'a PartData) -> Self {
        match data {
            PartData::InstanceTypes(types) => Self::AttachingTypes {
                rows: types.values().map(|facts| FactsForm::of(facts)).collect(),
                boot_modes: types.values().map(|facts| boot_modes_number(facts.boot_modes)).collect(),
                attachments: types.values().map(|facts| attachments_number(facts.ebs.attachments)).collect(),
            },
            PartData::Offerings(offerings) => {
                let zones = offerings.zones.iter().map(|(zone, id)| (zone.as_str(), id.as_str()));
                let offered = offerings
                    .offered
                    .iter()
                    .map(|(name, zones)| (name.as_str(), zones.iter().map(Zone::as_str).collect()));
                Self::Offerings { zones: zones.collect(), offered: offered.collect() }
            }
            PartData::OnDemandPrices(prices) => Self::OnDemandPrices(
                prices.iter().map(|(name, price)| (name.as_str(), price.nanos())).collect(),
            ),
            PartData::SpotPrices(prices) => Self::SpotPrices(SpotForm::of(prices)),
        }
    }

    pub(super) fn data(self) -> Result<PartData, FormsError> {
        Ok(match self {
            Self::InstanceTypes(rows) => {
                let modes = vec![BootModes::Untold; rows.len()];
                types(rows, modes, &[])?
            }
            Self::BootingTypes { rows, boot_modes: numbers } => {
                let modes = numbers.into_iter().map(boot_modes).collect::<Result<Vec<_>, _>>()?;
                types(rows, modes, &[])?
            }
            Self::AttachingTypes { rows, boot_modes: numbers, attachments } => {
                if rows.len() != attachments.len() {
                    return Err(FormsError::Columns);
                }
                let modes = numbers.into_iter().map(boot_modes).collect::<Result<Vec<_>, _>>()?;
                types(rows, modes, &attachments)?
            }
            Self::Offerings { zones, offered } => {
                let zone = |(zone, id)| Ok((Zone::parse(zone)?, ZoneId::parse(id)?));
                let row = |(name, zones): (&str, Vec<&str>)| {
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

/// The types of rows with their other columns; rows without a number of attachments have none.
fn types(
    rows: Vec<FactsForm<'_>>,
    boot_modes: Vec<BootModes>,
    attached: &[u32],
) -> Result<PartData, FormsError> {
    if rows.len() != boot_modes.len() {
        return Err(FormsError::Columns);
    }
    let attached = attached.iter().copied().map(attachments).chain(std::iter::repeat(None));
    let facts = rows.into_iter().zip(boot_modes).zip(attached).map(|((row, boot_modes), attached)| {
        let mut facts = row.facts(boot_modes)?;
        facts.ebs.attachments = attached;
        Ok((facts.name.clone(), Arc::new(facts)))
    });
    Ok(PartData::InstanceTypes(facts.collect::<Result<_, FormsError>>()?))
}

/// Twice the number of volumes, and one more where it is shared; 0 where it isn't known.
fn attachments_number(attachments: Option<EbsAttachments>) -> u32 {
    match attachments {
        None => 0,
        Some(EbsAttachments::Dedicated(most)) => most.saturating_mul(2),
        Some(EbsAttachments::Shared(most)) => most.saturating_mul(2).saturating_add(1),
    }
}

fn attachments(number: u32) -> Option<EbsAttachments> {
    match (number, number % 2) {
        (0, _) => None,
        (_, 0) => Some(EbsAttachments::Dedicated(number / 2)),
        (_, _) => Some(EbsAttachments::Shared(number / 2)),
    }
}

impl<'a> FactsForm<'a> {
    fn of(facts: &'a InstanceTypeFacts) -> Self {
        let gpu = |gpu: &'a Gpu| (gpu.name.as_str(), gpu.manufacturer.as_str(), gpu.count, gpu.memory_mib);
        let neuron = |device: &'a NeuronDevice| (device.name.as_str(), device.count, device.cores);
        let accelerator =
            |found: &'a InferenceAccelerator| (found.name.as_str(), found.manufacturer.as_str(), found.count);
        Self {
            name: facts.name.as_str(),
            vcpus: facts.vcpus,
            memory_mib: facts.memory_mib,
            architectures: facts.architectures.iter().map(Architecture::as_str).collect(),
            manufacturer: facts.processor.manufacturer.as_deref(),
            clock_speed_mhz: facts.processor.clock_speed_mhz,
            features: facts.processor.features.iter().map(String::as_str).collect(),
            gpus: facts.gpus.iter().map(gpu).collect(),
            neuron_devices: facts.neuron_devices.iter().map(neuron).collect(),
            inference_accelerators: facts.inference_accelerators.iter().map(accelerator).collect(),
            instance_store: facts.instance_store.map(|store| (store.total_gb, support_number(store.nvme))),
            ebs: (support_number(facts.ebs.optimized), facts.ebs.max_bandwidth_mbps),
            network: NetworkForm::of(&facts.network),
            hypervisor: facts.hypervisor.as_ref().map(Hypervisor::as_str),
            bare_metal: facts.bare_metal,
            nitro_enclaves: facts.nitro_enclaves,
            burstable: facts.burstable,
            current_generation: facts.current_generation,
            usage_classes: facts.usage_classes.iter().map(usage_class_word).collect(),
            placement_strategies: facts.placement_strategies.iter().map(|s| s.as_str()).collect(),
        }
    }

    fn facts(self, boot_modes: BootModes) -> Result<InstanceTypeFacts, FormsError> {
        let strategy =
            |word: &str| PlacementStrategy::parse(word).ok_or_else(|| FormsError::Strategy(word.to_owned()));
        let store = |(total_gb, nvme)| Ok::<_, FormsError>(InstanceStore { total_gb, nvme: support(nvme)? });
        let gpu = |(name, manufacturer, count, memory_mib): (&str, &str, u32, u64)| Gpu {
            name: name.to_owned(),
            manufacturer: manufacturer.to_owned(),
            count,
            memory_mib,
        };
        let neuron =
            |(name, count, cores): (&str, u32, u32)| NeuronDevice { name: name.to_owned(), count, cores };
        let accelerator = |(name, manufacturer, count): (&str, &str, u32)| InferenceAccelerator {
            name: name.to_owned(),
            manufacturer: manufacturer.to_owned(),
            count,
        };
        Ok(InstanceTypeFacts {
            name: InstanceType::parse(self.name)?,
            vcpus: self.vcpus,
            memory_mib: self.memory_mib,
            architectures: self.architectures.into_iter().map(Architecture::from_ec2).collect(),
            processor: Processor {
                manufacturer: self.manufacturer.map(str::to_owned),
                clock_speed_mhz: self.clock_speed_mhz,
                features: self.features.into_iter().map(str::to_owned).collect(),
            },
            gpus: self.gpus.into_iter().map(gpu).collect(),
            neuron_devices: self.neuron_devices.into_iter().map(neuron).collect(),
            inference_accelerators: self.inference_accelerators.into_iter().map(accelerator).collect(),
            instance_store: self.instance_store.map(store).transpose()?,
            ebs: Ebs { optimized: support(self.ebs.0)?, max_bandwidth_mbps: self.ebs.1, attachments: None },
            network: self.network.network()?,
            hypervisor: self.hypervisor.map(Hypervisor::from_ec2),
            bare_metal: self.bare_metal,
            nitro_enclaves: self.nitro_enclaves,
            burstable: self.burstable,
            current_generation: self.current_generation,
            usage_classes: self.usage_classes.into_iter().map(UsageClass::from_ec2).collect(),
            placement_strategies: self
                .placement_strategies
                .into_iter()
                .map(strategy)
                .collect::<Result<_, _>>()?,
            boot_modes,
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

const fn boot_modes_number(modes: BootModes) -> u8 {
    match modes {
        BootModes::Untold => 0,
        BootModes::LegacyBios => 1,
        BootModes::Uefi => 2,
        BootModes::Both => 3,
    }
}

const fn boot_modes(number: u8) -> Result<BootModes, FormsError> {
    match number {
        0 => Ok(BootModes::Untold),
        1 => Ok(BootModes::LegacyBios),
        2 => Ok(BootModes::Uefi),
        3 => Ok(BootModes::Both),
        other => Err(FormsError::BootModes(other)),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};

    use super::*;

    fn types() -> PartData {
        let of = |name: &str, modes: &[&str]| {
            let info: InstanceTypeInfo = serde_json::from_value(serde_json::json!({
                "InstanceType": name,
                "VCpuInfo": {"DefaultVCpus": 2},
                "MemoryInfo": {"SizeInMiB": 8192},
                "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
                "SupportedBootModes": modes,
                "EbsInfo": {"MaximumEbsAttachments": 27, "AttachmentLimitType": "shared"},
                "NetworkInfo": {
                    "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3}],
                    "Ipv4AddressesPerInterface": 10
                }
            }))
            .unwrap();
            let facts = facts(&info, &Limits::default()).unwrap();
            (facts.name.clone(), Arc::new(facts))
        };
        PartData::InstanceTypes(BTreeMap::from([
            of("m4.large", &["legacy-bios"]),
            of("m5.large", &["legacy-bios", "uefi"]),
            of("m9.large", &["a-newer-mode"]),
        ]))
    }

    fn modes(data: PartData) -> Vec<BootModes> {
        let PartData::InstanceTypes(types) = data else { panic!("{data:?}") };
        types.values().map(|facts| facts.boot_modes).collect()
    }

    #[test]
    fn types_keep_their_boot_modes_and_those_of_an_older_release_have_none() {
        let data = types();
        let bytes = postcard::to_allocvec(&PartForm::of(&data)).unwrap();
        let read: PartForm<'_> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(modes(read.data().unwrap()), [BootModes::LegacyBios, BootModes::Both, BootModes::Untold]);
        let PartData::InstanceTypes(types) = &data else { panic!("{data:?}") };
        let older = PartForm::InstanceTypes(types.values().map(|facts| FactsForm::of(facts)).collect());
        let bytes = postcard::to_allocvec(&older).unwrap();
        let read: PartForm<'_> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(modes(read.data().unwrap()), [BootModes::Untold; 3]);
    }

    #[test]
    fn types_keep_their_attachments_and_those_of_an_older_release_have_none() {
        let data = types();
        let attachments = |form: &PartForm<'_>| {
            let bytes = postcard::to_allocvec(form).unwrap();
            let read = postcard::from_bytes::<PartForm<'_>>(&bytes).unwrap().data().unwrap();
            let PartData::InstanceTypes(types) = read else { panic!("{read:?}") };
            types.values().map(|facts| facts.ebs.attachments).collect::<Vec<_>>()
        };
        assert_eq!(attachments(&PartForm::of(&data)), [Some(EbsAttachments::Shared(27)); 3]);
        let PartForm::AttachingTypes { rows, boot_modes, .. } = PartForm::of(&data) else {
            panic!("{data:?}")
        };
        assert_eq!(attachments(&PartForm::BootingTypes { rows, boot_modes }), [None; 3]);
        for known in [None, Some(EbsAttachments::Dedicated(128)), Some(EbsAttachments::Shared(0))] {
            assert_eq!(super::attachments(attachments_number(known)), known);
        }
    }
}
