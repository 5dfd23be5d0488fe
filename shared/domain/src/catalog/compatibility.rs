//! Whether an instance type suits a class.
//!
//! Decides from facts and settings alone (aws/karpenter-provider-aws
//! `pkg/providers/instancetype/compatibility/compatibility.go`), without regard to capacity. An incompatible type
//! keeps its offerings as unavailable, because running nodes of the type need a price.

use crate::catalog::facts::{Hypervisor, InstanceTypeFacts, PlacementStrategy, Support};
use crate::catalog::node_labels::architecture;
use crate::catalog::settings::{
    AmiFamily, InterfaceType, NestedVirtualization, NetworkInterface, NodeSettings,
};

/// The first thing in a class that a type can't do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Incompatibility {
    /// AL2023 doesn't boot on the first Graviton.
    #[error("AMI family `AL2023` doesn't boot on `a1`")]
    ImageNotBootable,
    /// Windows has no images for the type's architecture.
    #[error("Windows has images for `amd64` only")]
    NoWindowsImage,
    /// `networkInterfaces` need the Elastic Network Adapter.
    #[error("`networkInterfaces` need an Elastic Network Adapter, which the type doesn't have")]
    NoNetworkAdapter,
    /// `networkInterfaces` name a card that the type doesn't have.
    #[error("`networkInterfaces` name network card `{card}`, which the type doesn't have")]
    NoSuchNetworkCard {
        /// The card's index.
        card: u32,
    },
    /// `networkInterfaces` name a device that the card doesn't take.
    #[error(
        "`networkInterfaces` name device `{device}` of network card `{card}`, which takes fewer interfaces"
    )]
    NoSuchDevice {
        /// The card's index.
        card: u32,
        /// The device's index.
        device: u32,
    },
    /// More `efa-only` interfaces than the type takes.
    #[error("`networkInterfaces` have `{wanted}` of type `efa-only`, and the type takes `{supported}`")]
    TooManyEfaInterfaces {
        /// How many the class wants.
        wanted: usize,
        /// How many the type takes.
        supported: u32,
    },
    /// `cpuOptions.nestedVirtualization` is enabled.
    #[error("`cpuOptions.nestedVirtualization` is `enabled`, which the processor doesn't have")]
    NoNestedVirtualization,
    /// The placement group's strategy.
    #[error("the type can't be in a placement group of strategy `{}`", .0.as_str())]
    PlacementStrategy(PlacementStrategy),
    /// `connectionTracking` needs Nitro.
    #[error("`connectionTracking` needs the hypervisor `nitro`")]
    NoConnectionTracking,
}

/// Whether the type supports everything that the class requires.
///
/// # Errors The first [`Incompatibility`], in the order of the enum.
pub fn compatibility(facts: &InstanceTypeFacts, settings: &NodeSettings) -> Result<(), Incompatibility> {
    if settings.ami_family == AmiFamily::Al2023 && facts.name.as_str().starts_with("a1.") {
        return Err(Incompatibility::ImageNotBootable);
    }
    // The peer gives such a type an empty `kubernetes.io/os`. Pods that name no operating system match that.
    if settings.ami_family.windows_build().is_some() && architecture(facts) != "amd64" {
        return Err(Incompatibility::NoWindowsImage);
    }
    network_interfaces(facts, &settings.network_interfaces)?;
    if settings.nested_virtualization == Some(NestedVirtualization::Enabled)
        && !facts.processor.features.iter().any(|feature| feature == "nested-virtualization")
    {
        return Err(Incompatibility::NoNestedVirtualization);
    }
    if let Some(strategy) = settings.placement.as_ref().map(|group| group.strategy)
        && !facts.placement_strategies.contains(&strategy)
    {
        return Err(Incompatibility::PlacementStrategy(strategy));
    }
    if settings.connection_tracking.is_some() && facts.hypervisor != Some(Hypervisor::Nitro) {
        return Err(Incompatibility::NoConnectionTracking);
    }
    Ok(())
}

fn network_interfaces(facts: &InstanceTypeFacts, wanted: &[NetworkInterface]) -> Result<(), Incompatibility> {
    if wanted.is_empty() {
        return Ok(());
    }
    let network = &facts.network;
    if network.ena == Support::Unsupported {
        return Err(Incompatibility::NoNetworkAdapter);
    }
    for interface in wanted {
        let card = interface.network_card_index;
        let Some(found) = network.cards.iter().find(|found| found.index == card) else {
            return Err(Incompatibility::NoSuchNetworkCard { card });
        };
        if interface.device_index >= found.max_interfaces {
            return Err(Incompatibility::NoSuchDevice { card, device: interface.device_index });
        }
    }
    let efa_only =
        wanted.iter().filter(|interface| interface.interface_type == InterfaceType::EfaOnly).count();
    let supported = network.max_efa_interfaces;
    if u32::try_from(efa_only).is_ok_and(|count| count <= supported) {
        Ok(())
    } else {
        Err(Incompatibility::TooManyEfaInterfaces { wanted: efa_only, supported })
    }
}
