//! The network interfaces of a launch template, and their stored form.
//!
//! Decides which interfaces a class's instances are launched with. Without a word about them in the class the template
//! has none, and EC2 makes the primary one. It doesn't decide whether a type takes them.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/launchtemplate/launchtemplate.go`, `generateNetworkInterfaces`.

use serde::{Deserialize, Serialize};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::settings::{ConnectionTracking, InterfaceType, NetworkInterface};
use tenon_domain::registry::{IpFamily, Permission};
use tenon_ec2::port::{InterfaceKind, NetworkInterfaceSpec, PrimaryIpv6};

/// The interfaces of a class's instances, none with a public address where the cluster's stack denies them. A subnet may
/// give one by default, so a single interface asks for none. EC2 gives an instance with several interfaces no public
/// address at its launch, by the parameter as little as by the subnet's default, and refuses the parameter for it:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/working-with-ip-addresses.html>, "Considerations", and
/// aws/karpenter-provider-aws pull request 5666, read November 2026. So nothing else is checked for several.
pub(crate) fn interfaces(
    class: &Ec2NodeClass,
    family: IpFamily,
    efa: u32,
    public: Permission,
) -> Vec<NetworkInterfaceSpec> {
    let primary = primary(class, family);
    match public {
        Permission::Allowed => asked_for(class, primary, efa),
        Permission::Denied => {
            let none = NetworkInterfaceSpec { associate_public_ip: Some(false), ..primary };
            let made = asked_for(class, none, efa);
            if made.len() == 1 {
                return made;
            }
            made.into_iter()
                .map(|interface| NetworkInterfaceSpec { associate_public_ip: None, ..interface })
                .collect()
        }
    }
}

/// Those of `networkInterfaces`; otherwise the launch's EFA interfaces, one on each network card; otherwise the primary
/// one, if there is anything to say of it.
fn asked_for(class: &Ec2NodeClass, primary: NetworkInterfaceSpec, efa: u32) -> Vec<NetworkInterfaceSpec> {
    let own = &class.settings.network_interfaces;
    if !own.is_empty() {
        return own.iter().map(|interface| of_class(interface, primary)).collect();
    }
    if efa > 0 {
        // The device of the first card is the primary interface.
        let on_card = |card: u32| NetworkInterfaceSpec {
            card: Some(card),
            device: u32::from(card > 0),
            kind: Some(InterfaceKind::Efa),
            delete_on_termination: Some(true),
            ..primary
        };
        return (0..efa).map(on_card).collect();
    }
    if primary == NetworkInterfaceSpec::default() { Vec::new() } else { vec![primary] }
}

/// What is said of an interface with addresses. In an IPv6 cluster the prefixes are IPv6 ones, and the node needs an
/// IPv6 address of its own.
fn primary(class: &Ec2NodeClass, family: IpFamily) -> NetworkInterfaceSpec {
    let prefix_count = class.ip_prefix_count;
    let (ipv4_prefix_count, ipv6) = match family {
        IpFamily::Ipv4 => (prefix_count, None),
        IpFamily::Ipv6 => (None, Some(PrimaryIpv6 { prefix_count })),
    };
    NetworkInterfaceSpec {
        associate_public_ip: class.associate_public_ip,
        ipv4_prefix_count,
        ipv6,
        connection_tracking: class.settings.connection_tracking,
        ..NetworkInterfaceSpec::default()
    }
}

fn of_class(interface: &NetworkInterface, with_addresses: NetworkInterfaceSpec) -> NetworkInterfaceSpec {
    let (kind, rest) = match interface.interface_type {
        InterfaceType::Interface => (InterfaceKind::Interface, with_addresses),
        InterfaceType::EfaOnly => (InterfaceKind::EfaOnly, NetworkInterfaceSpec::default()),
    };
    NetworkInterfaceSpec {
        card: Some(interface.network_card_index),
        device: interface.device_index,
        kind: Some(kind),
        // No interface outlives its instance, whatever EC2's default for the second one is.
        delete_on_termination: Some(true),
        ..rest
    }
}

/// The primary interface, if there is no other and nothing is said of it but its public address.
pub(crate) fn primary_alone(interfaces: &[NetworkInterfaceSpec]) -> Option<NetworkInterfaceSpec> {
    let said = match interfaces {
        [] => return Some(NetworkInterfaceSpec::default()),
        [one] => NetworkInterfaceSpec {
            associate_public_ip: one.associate_public_ip,
            ..NetworkInterfaceSpec::default()
        },
        _ => return None,
    };
    (said.associate_public_ip.is_some() && *interfaces == [said]).then_some(said)
}

/// The interfaces of a stored template.
pub(crate) fn restored(public: Option<bool>, stored: Vec<StoredInterface>) -> Vec<NetworkInterfaceSpec> {
    if public.is_some() && stored.is_empty() {
        return vec![NetworkInterfaceSpec { associate_public_ip: public, ..NetworkInterfaceSpec::default() }];
    }
    stored.into_iter().map(NetworkInterfaceSpec::from).collect()
}

/// An interface's stored form; absent fields are unset.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredInterface {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    card: Option<u32>,
    device: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<StoredKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    associate_public_ip: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv4_prefix_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv6: Option<StoredIpv6>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection_tracking: Option<StoredTracking>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delete_on_termination: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct StoredIpv6 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix_count: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredKind {
    Interface,
    Efa,
    EfaOnly,
}

#[derive(Serialize, Deserialize)]
struct StoredTracking {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tcp_established_timeout_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    udp_stream_timeout_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    udp_timeout_seconds: Option<u32>,
}

impl From<NetworkInterfaceSpec> for StoredInterface {
    fn from(spec: NetworkInterfaceSpec) -> Self {
        Self {
            card: spec.card,
            device: spec.device,
            kind: spec.kind.map(|kind| match kind {
                InterfaceKind::Interface => StoredKind::Interface,
                InterfaceKind::Efa => StoredKind::Efa,
                InterfaceKind::EfaOnly => StoredKind::EfaOnly,
            }),
            associate_public_ip: spec.associate_public_ip,
            ipv4_prefix_count: spec.ipv4_prefix_count,
            ipv6: spec.ipv6.map(|PrimaryIpv6 { prefix_count }| StoredIpv6 { prefix_count }),
            connection_tracking: spec.connection_tracking.map(|timeouts| StoredTracking {
                tcp_established_timeout_seconds: timeouts.tcp_established_timeout_seconds,
                udp_stream_timeout_seconds: timeouts.udp_stream_timeout_seconds,
                udp_timeout_seconds: timeouts.udp_timeout_seconds,
            }),
            delete_on_termination: spec.delete_on_termination,
        }
    }
}

impl From<StoredInterface> for NetworkInterfaceSpec {
    fn from(stored: StoredInterface) -> Self {
        Self {
            card: stored.card,
            device: stored.device,
            kind: stored.kind.map(|kind| match kind {
                StoredKind::Interface => InterfaceKind::Interface,
                StoredKind::Efa => InterfaceKind::Efa,
                StoredKind::EfaOnly => InterfaceKind::EfaOnly,
            }),
            associate_public_ip: stored.associate_public_ip,
            ipv4_prefix_count: stored.ipv4_prefix_count,
            ipv6: stored.ipv6.map(|StoredIpv6 { prefix_count }| PrimaryIpv6 { prefix_count }),
            connection_tracking: stored.connection_tracking.map(|timeouts| ConnectionTracking {
                tcp_established_timeout_seconds: timeouts.tcp_established_timeout_seconds,
                udp_stream_timeout_seconds: timeouts.udp_stream_timeout_seconds,
                udp_timeout_seconds: timeouts.udp_timeout_seconds,
            }),
            delete_on_termination: stored.delete_on_termination,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::class;

    const TRACKING: ConnectionTracking = ConnectionTracking {
        tcp_established_timeout_seconds: Some(350),
        udp_stream_timeout_seconds: Some(120),
        udp_timeout_seconds: Some(45),
    };

    fn check(change: impl FnOnce(&mut Ec2NodeClass), expected: &[NetworkInterfaceSpec]) {
        check_efa(0, change, expected);
    }

    fn check_efa(efa: u32, change: impl FnOnce(&mut Ec2NodeClass), expected: &[NetworkInterfaceSpec]) {
        let mut class = class("default");
        change(&mut class);
        check_made(&interfaces(&class, IpFamily::Ipv4, efa, Permission::Allowed), expected);
    }

    /// Also that the stored form reads back.
    fn check_made(made: &[NetworkInterfaceSpec], expected: &[NetworkInterfaceSpec]) {
        assert_eq!(made, expected);
        let stored: Vec<StoredInterface> = made.iter().copied().map(StoredInterface::from).collect();
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(restored(None, serde_json::from_str(&text).unwrap()), expected, "{text}");
    }

    #[test]
    fn a_class_that_says_nothing_leaves_the_interface_to_ec2() {
        check(|_| (), &[]);
        assert_eq!(primary_alone(&[]), Some(NetworkInterfaceSpec::default()));
    }

    #[test]
    fn each_field_of_the_primary_interface_makes_one() {
        let primary = NetworkInterfaceSpec::default();
        check(
            |class| class.associate_public_ip = Some(false),
            &[NetworkInterfaceSpec { associate_public_ip: Some(false), ..primary }],
        );
        check(
            |class| class.ip_prefix_count = Some(2),
            &[NetworkInterfaceSpec { ipv4_prefix_count: Some(2), ..primary }],
        );
        check(
            |class| class.settings.connection_tracking = Some(TRACKING),
            &[NetworkInterfaceSpec { connection_tracking: Some(TRACKING), ..primary }],
        );
    }

    #[test]
    fn interfaces_of_the_class_are_asked_for_one_by_one() {
        let interface = |network_card_index, device_index, interface_type| NetworkInterface {
            network_card_index,
            device_index,
            interface_type,
        };
        let with_addresses = NetworkInterfaceSpec {
            card: Some(0),
            device: 0,
            kind: Some(InterfaceKind::Interface),
            associate_public_ip: Some(false),
            ipv4_prefix_count: Some(1),
            ipv6: None,
            connection_tracking: Some(TRACKING),
            delete_on_termination: Some(true),
        };
        let efa_only = NetworkInterfaceSpec {
            card: Some(1),
            device: 1,
            kind: Some(InterfaceKind::EfaOnly),
            delete_on_termination: Some(true),
            ..NetworkInterfaceSpec::default()
        };
        check(
            |class| {
                class.associate_public_ip = Some(false);
                class.ip_prefix_count = Some(1);
                class.settings.connection_tracking = Some(TRACKING);
                class.settings.network_interfaces = vec![
                    interface(0, 0, InterfaceType::Interface),
                    interface(0, 1, InterfaceType::Interface),
                    interface(1, 1, InterfaceType::EfaOnly),
                ];
            },
            &[with_addresses, NetworkInterfaceSpec { device: 1, ..with_addresses }, efa_only],
        );
    }

    #[test]
    fn a_launch_for_efa_has_one_on_each_card_unless_the_class_names_its_interfaces() {
        let efa = |card, device| NetworkInterfaceSpec {
            card: Some(card),
            device,
            kind: Some(InterfaceKind::Efa),
            ipv4_prefix_count: Some(2),
            delete_on_termination: Some(true),
            ..NetworkInterfaceSpec::default()
        };
        let prefixes = |class: &mut Ec2NodeClass| class.ip_prefix_count = Some(2);
        check_efa(1, prefixes, &[efa(0, 0)]);
        check_efa(3, prefixes, &[efa(0, 0), efa(1, 1), efa(2, 1)]);
        let own = NetworkInterface {
            network_card_index: 0,
            device_index: 0,
            interface_type: InterfaceType::Interface,
        };
        let named = NetworkInterfaceSpec {
            card: Some(0),
            kind: Some(InterfaceKind::Interface),
            delete_on_termination: Some(true),
            ..NetworkInterfaceSpec::default()
        };
        check_efa(3, |class| class.settings.network_interfaces = vec![own], &[named]);
    }

    #[test]
    fn nodes_of_an_ipv6_cluster_have_an_ipv6_address_and_ipv6_prefixes() {
        let mut class = class("default");
        let ipv6 = |prefix_count| NetworkInterfaceSpec {
            ipv6: Some(PrimaryIpv6 { prefix_count }),
            ..NetworkInterfaceSpec::default()
        };
        let made = |class: &Ec2NodeClass, efa| interfaces(class, IpFamily::Ipv6, efa, Permission::Allowed);
        check_made(&made(&class, 0), &[ipv6(None)]);
        class.ip_prefix_count = Some(1);
        check_made(&made(&class, 0), &[ipv6(Some(1))]);
        let (kind, delete_on_termination) = (Some(InterfaceKind::Efa), Some(true));
        let card = NetworkInterfaceSpec { card: Some(0), kind, delete_on_termination, ..ipv6(Some(1)) };
        check_made(&made(&class, 1), &[card]);
    }

    #[test]
    fn where_public_addresses_are_denied_one_interface_asks_for_none_and_several_say_nothing() {
        let check = |public, efa, own: &[u32], expected: &[Option<bool>]| {
            let mut class = class("default");
            class.associate_public_ip = public;
            let interface = |device: &u32| NetworkInterface {
                network_card_index: 0,
                device_index: *device,
                interface_type: InterfaceType::Interface,
            };
            class.settings.network_interfaces = own.iter().map(interface).collect();
            let made = interfaces(&class, IpFamily::Ipv4, efa, Permission::Denied);
            let asked: Vec<_> = made.iter().map(|interface| interface.associate_public_ip).collect();
            assert_eq!(asked, expected, "{public:?}, {efa} for EFA, own {own:?}");
        };
        for public in [None, Some(false), Some(true)] {
            check(public, 0, &[], &[Some(false)]);
            check(public, 1, &[], &[Some(false)]);
            check(public, 2, &[], &[None, None]);
            check(public, 0, &[0], &[Some(false)]);
            check(public, 0, &[0, 1], &[None, None]);
        }
    }

    #[test]
    fn a_public_address_alone_is_stored_as_before() {
        let public =
            NetworkInterfaceSpec { associate_public_ip: Some(true), ..NetworkInterfaceSpec::default() };
        assert_eq!(primary_alone(&[public]), Some(public));
        assert_eq!(restored(Some(true), Vec::new()), [public]);
        assert_eq!(restored(None, Vec::new()), []);
        assert_eq!(primary_alone(&[NetworkInterfaceSpec { device: 1, ..public }]), None);
        assert_eq!(primary_alone(&[NetworkInterfaceSpec::default()]), None);
    }
}
