//! CreateLaunchTemplate's request.

use tenon_domain::catalog::settings::{ConnectionTracking, NestedVirtualization};
use tenon_domain::id::SecurityGroupId;
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_ec2::port::{
    BlockDeviceMapping, CreateLaunchTemplate, InstanceMetadataOptions, InstanceProfileSpec, InterfaceKind,
    LaunchTemplateData, MetadataTags, MetadataTokens, Monitoring, NetworkInterfaceSpec, PrimaryIpv6,
    ReservationPreference, Tags,
};

use crate::error::{WireError, invalid, missing};
use crate::form::FormFields;
use crate::request::ids;

pub(crate) fn template(form: &mut FormFields) -> Result<CreateLaunchTemplate, WireError> {
    let name = form.required("LaunchTemplateName")?;
    let data = form.structure("LaunchTemplateData", data)?.ok_or_else(|| missing("LaunchTemplateData"))?;
    let [tags] = tags_of(form, ["launch-template"])?;
    Ok(CreateLaunchTemplate { name, data, tags })
}

/// Tags for resources of the kinds that may be tagged there.
pub(crate) fn tags_of<const KINDS: usize>(
    form: &mut FormFields,
    kinds: [&str; KINDS],
) -> Result<[Tags; KINDS], WireError> {
    let specification = |form: &mut FormFields| Ok((form.required("ResourceType")?, form.tags()?));
    let mut found = kinds.map(|_| Tags::new());
    for (of, tags) in form.structures("TagSpecification", specification)? {
        let place = kinds.iter().position(|kind| *kind == of).and_then(|at| found.get_mut(at));
        place.ok_or_else(|| invalid("ResourceType", &of))?.extend(tags);
    }
    Ok(found)
}

/// An interface, and its groups.
pub(crate) fn interface(
    form: &mut FormFields,
) -> Result<(NetworkInterfaceSpec, Vec<SecurityGroupId>), WireError> {
    let spec = NetworkInterfaceSpec {
        card: form.parsed("NetworkCardIndex")?,
        device: form.parsed("DeviceIndex")?.ok_or_else(|| missing("DeviceIndex"))?,
        kind: word(form, "InterfaceType", InterfaceKind::parse)?,
        associate_public_ip: form.parsed("AssociatePublicIpAddress")?,
        ipv4_prefix_count: form.parsed("Ipv4PrefixCount")?,
        ipv6: ipv6(form)?,
        connection_tracking: form.structure("ConnectionTrackingSpecification", tracking)?,
        delete_on_termination: form.parsed("DeleteOnTermination")?,
    };
    let groups = ids(form, "SecurityGroupId")?;
    if spec.kind == Some(InterfaceKind::EfaOnly) && has_addresses(&spec) {
        return Err(invalid("InterfaceType", InterfaceKind::EfaOnly.as_str()));
    }
    Ok((spec, groups))
}

/// The port asks for one address, and it is the primary one.
fn ipv6(form: &mut FormFields) -> Result<Option<PrimaryIpv6>, WireError> {
    let (primary, count): (Option<bool>, Option<u32>) =
        (form.parsed("PrimaryIpv6")?, form.parsed("Ipv6AddressCount")?);
    let prefix_count = form.parsed("Ipv6PrefixCount")?;
    match (primary, count) {
        (Some(true), Some(1)) => Ok(Some(PrimaryIpv6 { prefix_count })),
        (None, None) if prefix_count.is_none() => Ok(None),
        _ => Err(missing("PrimaryIpv6")),
    }
}

/// An `efa-only` interface has no addresses to be public, prefixed or tracked.
const fn has_addresses(spec: &NetworkInterfaceSpec) -> bool {
    spec.associate_public_ip.is_some()
        || spec.ipv4_prefix_count.is_some()
        || spec.ipv6.is_some()
        || spec.connection_tracking.is_some()
}

fn tracking(form: &mut FormFields) -> Result<ConnectionTracking, WireError> {
    Ok(ConnectionTracking {
        tcp_established_timeout_seconds: form.parsed("TcpEstablishedTimeout")?,
        udp_stream_timeout_seconds: form.parsed("UdpStreamTimeout")?,
        udp_timeout_seconds: form.parsed("UdpTimeout")?,
    })
}

fn cpu_options(form: &mut FormFields) -> Result<NestedVirtualization, WireError> {
    word(form, "NestedVirtualization", NestedVirtualization::parse)?
        .ok_or_else(|| missing("CpuOptions.NestedVirtualization"))
}

fn word<T>(
    form: &mut FormFields,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, WireError> {
    form.text(name).map(|text| parse(&text).ok_or_else(|| invalid(name, &text))).transpose()
}

/// The interfaces and their groups. The port has one list of groups for all of them.
fn network(form: &mut FormFields) -> Result<(Vec<NetworkInterfaceSpec>, Vec<SecurityGroupId>), WireError> {
    let own = ids(form, "SecurityGroupId")?;
    let (interfaces, groups): (Vec<_>, Vec<_>) =
        form.structures("NetworkInterface", interface)?.into_iter().unzip();
    let Some(first) = groups.first() else { return Ok((interfaces, own)) };
    if !own.is_empty() {
        let message = "Network interfaces and security groups may not be specified on the same request";
        return Err(crate::error::refused("InvalidParameterCombination", message));
    }
    if groups.iter().any(|groups| groups != first) {
        return Err(invalid("NetworkInterface.SecurityGroupId", "groups that differ by interface"));
    }
    let groups = first.clone();
    Ok((interfaces, groups))
}

fn data(form: &mut FormFields) -> Result<LaunchTemplateData, WireError> {
    let (network_interfaces, security_groups) = network(form)?;
    let (placement, tenancy) = form.structure("Placement", placement)?.unwrap_or_default();
    let [network_interface_tags, spot_request_tags] =
        tags_of(form, ["network-interface", "spot-instances-request"])?;
    Ok(LaunchTemplateData {
        image: form.parsed("ImageId")?,
        security_groups,
        instance_profile: form.structure("IamInstanceProfile", profile)?,
        user_data: form.text("UserData"),
        block_devices: form.structures("BlockDeviceMapping", block_device)?,
        metadata_options: form.structure("MetadataOptions", metadata_options)?,
        monitoring: form.structure("Monitoring", monitoring)?,
        network_interfaces,
        nested_virtualization: form.structure("CpuOptions", cpu_options)?,
        network_interface_tags,
        spot_request_tags,
        reservations: form.structure("CapacityReservationSpecification", reservations)?,
        placement,
        tenancy,
    })
}

fn placement(form: &mut FormFields) -> Result<(Option<LaunchPlacement>, Tenancy), WireError> {
    let tenancy = word(form, "Tenancy", Tenancy::parse)?.unwrap_or_default();
    let partition = form.parsed("PartitionNumber")?;
    match (form.parsed("GroupId")?, partition) {
        (Some(group), partition) => Ok((Some(LaunchPlacement { group, partition }), tenancy)),
        (None, None) => Ok((None, tenancy)),
        (None, Some(_)) => Err(missing("Placement.GroupId")),
    }
}

fn reservations(form: &mut FormFields) -> Result<ReservationPreference, WireError> {
    let preference = form.required("CapacityReservationPreference")?;
    let target = form.structure("CapacityReservationTarget", |form| {
        form.parsed("CapacityReservationId")?.ok_or_else(|| missing("CapacityReservationId"))
    })?;
    match (preference.as_str(), target) {
        ("none", None) => Ok(ReservationPreference::None),
        ("capacity-reservations-only", Some(id)) => Ok(ReservationPreference::Only(id)),
        _ => Err(invalid("CapacityReservationPreference", &preference)),
    }
}

fn profile(form: &mut FormFields) -> Result<InstanceProfileSpec, WireError> {
    match form.text("Arn") {
        Some(arn) => Ok(InstanceProfileSpec::Arn(arn)),
        None => Ok(InstanceProfileSpec::Name(form.required("Name")?)),
    }
}

fn monitoring(form: &mut FormFields) -> Result<Monitoring, WireError> {
    match form.parsed("Enabled")? {
        Some(true) => Ok(Monitoring::Detailed),
        Some(false) => Ok(Monitoring::Basic),
        None => Err(missing("Monitoring.Enabled")),
    }
}

pub(crate) fn metadata_options(form: &mut FormFields) -> Result<InstanceMetadataOptions, WireError> {
    let tokens = form.required("HttpTokens")?;
    Ok(InstanceMetadataOptions {
        http_endpoint: form.required("HttpEndpoint")?,
        http_protocol_ipv6: form.required("HttpProtocolIpv6")?,
        http_put_response_hop_limit: form
            .parsed("HttpPutResponseHopLimit")?
            .ok_or_else(|| missing("HttpPutResponseHopLimit"))?,
        http_tokens: match tokens.as_str() {
            "required" => MetadataTokens::Required,
            "optional" => MetadataTokens::Optional,
            other => return Err(invalid("HttpTokens", other)),
        },
        tags: match form.text("InstanceMetadataTags").as_deref() {
            Some("disabled") => MetadataTags::Disabled,
            None => MetadataTags::AccountDefault,
            Some(other) => return Err(invalid("InstanceMetadataTags", other)),
        },
    })
}

fn block_device(form: &mut FormFields) -> Result<BlockDeviceMapping, WireError> {
    let device_name = form.required("DeviceName")?;
    let ebs = form.structure("Ebs", |form| {
        Ok(BlockDeviceMapping {
            device_name: String::new(),
            volume_size_gib: form.parsed("VolumeSize")?,
            volume_type: form.text("VolumeType"),
            iops: form.parsed("Iops")?,
            throughput_mib: form.parsed("Throughput")?,
            encrypted: form.parsed("Encrypted")?,
            kms_key_id: form.text("KmsKeyId"),
            snapshot_id: form.text("SnapshotId"),
            initialization_rate_mib: form.parsed("VolumeInitializationRate")?,
            delete_on_termination: form.parsed("DeleteOnTermination")?,
        })
    })?;
    Ok(BlockDeviceMapping { device_name, ..ebs.unwrap_or_default() })
}
