//! Launch templates.
//!
//! Decides how a template is written for EC2. EC2 accepts security groups either in the template or in its network
//! interfaces. They are in interfaces only if the template has some, because a dry run of RunInstances can name a
//! subnet only for a template without an interface.

use aws_sdk_ec2::operation::create_launch_template::builders::CreateLaunchTemplateInputBuilder;
use aws_sdk_ec2::types as sdk;
use tenon_domain::catalog::settings::{ConnectionTracking, NestedVirtualization};
use tenon_ec2::port::{
    BlockDeviceMapping, CreateLaunchTemplate, InstanceMetadataOptions, InstanceProfileSpec, LaunchTemplate,
    LaunchTemplateData, MetadataTags, MetadataTokens, Monitoring, NetworkInterfaceSpec, Tags,
};

use crate::filters::list;
use crate::reading::{Malformed, moment, number, required, tags};
use crate::{placement, reservations};

/// A request that can't be written: a number that EC2 has no room for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}: EC2 takes at most 2147483647")]
pub(crate) struct NumberTooLarge {
    field: &'static str,
    value: u32,
}

pub(crate) fn whole(value: u32, field: &'static str) -> Result<i32, NumberTooLarge> {
    i32::try_from(value).map_err(|_| NumberTooLarge { field, value })
}

/// Tags for resources of a kind, where there are any.
pub(crate) fn tag_specification(of: sdk::ResourceType, tags: &Tags) -> Option<sdk::TagSpecification> {
    let builder = sdk::TagSpecification::builder().resource_type(of).set_tags(Some(tag_list(tags)));
    (!tags.is_empty()).then(|| builder.build())
}

pub(crate) fn tag_list(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

pub(crate) fn request(
    template: &CreateLaunchTemplate,
) -> Result<CreateLaunchTemplateInputBuilder, NumberTooLarge> {
    let own = tag_specification(sdk::ResourceType::LaunchTemplate, &template.tags);
    Ok(CreateLaunchTemplateInputBuilder::default()
        .launch_template_name(&template.name)
        .launch_template_data(data(&template.data)?)
        .set_tag_specifications(own.map(|own| vec![own])))
}

fn data(data: &LaunchTemplateData) -> Result<sdk::RequestLaunchTemplateData, NumberTooLarge> {
    let devices = data.block_devices.iter().map(block_device).collect::<Result<_, _>>()?;
    let tagged = [
        (sdk::ResourceType::NetworkInterface, &data.network_interface_tags),
        (sdk::ResourceType::SpotInstancesRequest, &data.spot_request_tags),
    ];
    let tags = tagged.into_iter().filter(|(_, tags)| !tags.is_empty()).map(|(of, tags)| {
        sdk::LaunchTemplateTagSpecificationRequest::builder()
            .resource_type(of)
            .set_tags(Some(tag_list(tags)))
            .build()
    });
    let groups: Vec<String> = data.security_groups.iter().map(ToString::to_string).collect();
    let builder = sdk::RequestLaunchTemplateData::builder()
        .set_image_id(data.image.as_ref().map(ToString::to_string))
        .set_iam_instance_profile(data.instance_profile.as_ref().map(profile))
        .set_user_data(data.user_data.clone())
        .set_block_device_mappings(list(devices))
        .set_metadata_options(data.metadata_options.as_ref().map(metadata_options).transpose()?)
        .set_monitoring(data.monitoring.map(monitoring))
        .set_placement(placement::specification(data.placement.as_ref(), data.tenancy)?)
        .set_cpu_options(data.nested_virtualization.map(cpu_options))
        .set_capacity_reservation_specification(data.reservations.as_ref().map(reservations::specification))
        .set_tag_specifications(list(tags.collect()));
    if data.network_interfaces.is_empty() {
        return Ok(builder.set_security_group_ids(list(groups)).build());
    }
    let interfaces = data.network_interfaces.iter().map(|spec| interface(spec, &groups));
    Ok(builder.set_network_interfaces(Some(interfaces.collect::<Result<_, _>>()?)).build())
}

fn interface(
    spec: &NetworkInterfaceSpec,
    groups: &[String],
) -> Result<sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, NumberTooLarge> {
    let optional = |value: Option<u32>, field| value.map(|value| whole(value, field)).transpose();
    Ok(sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .set_network_card_index(optional(spec.card, "NetworkCardIndex")?)
        .device_index(whole(spec.device, "DeviceIndex")?)
        .set_interface_type(spec.kind.map(|kind| kind.as_str().to_owned()))
        .set_associate_public_ip_address(spec.associate_public_ip)
        .set_ipv4_prefix_count(optional(spec.ipv4_prefix_count, "Ipv4PrefixCount")?)
        .set_primary_ipv6(spec.ipv6.map(|_| true))
        .set_ipv6_address_count(spec.ipv6.map(|_| 1))
        .set_ipv6_prefix_count(optional(spec.ipv6.and_then(|ipv6| ipv6.prefix_count), "Ipv6PrefixCount")?)
        .set_connection_tracking_specification(spec.connection_tracking.map(tracking).transpose()?)
        .set_delete_on_termination(spec.delete_on_termination)
        .set_groups(list(groups.to_vec()))
        .build())
}

pub(crate) fn tracking(
    timeouts: ConnectionTracking,
) -> Result<sdk::ConnectionTrackingSpecificationRequest, NumberTooLarge> {
    let ConnectionTracking {
        tcp_established_timeout_seconds,
        udp_stream_timeout_seconds,
        udp_timeout_seconds,
    } = timeouts;
    let optional = |value: Option<u32>, field| value.map(|value| whole(value, field)).transpose();
    Ok(sdk::ConnectionTrackingSpecificationRequest::builder()
        .set_tcp_established_timeout(optional(tcp_established_timeout_seconds, "TcpEstablishedTimeout")?)
        .set_udp_stream_timeout(optional(udp_stream_timeout_seconds, "UdpStreamTimeout")?)
        .set_udp_timeout(optional(udp_timeout_seconds, "UdpTimeout")?)
        .build())
}

fn cpu_options(nested: NestedVirtualization) -> sdk::LaunchTemplateCpuOptionsRequest {
    let nested = match nested {
        NestedVirtualization::Enabled => sdk::NestedVirtualizationSpecification::Enabled,
        NestedVirtualization::Disabled => sdk::NestedVirtualizationSpecification::Disabled,
    };
    sdk::LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(nested).build()
}

fn profile(profile: &InstanceProfileSpec) -> sdk::LaunchTemplateIamInstanceProfileSpecificationRequest {
    let builder = sdk::LaunchTemplateIamInstanceProfileSpecificationRequest::builder();
    match profile {
        InstanceProfileSpec::Name(name) => builder.name(name),
        InstanceProfileSpec::Arn(arn) => builder.arn(arn),
    }
    .build()
}

fn monitoring(monitoring: Monitoring) -> sdk::LaunchTemplatesMonitoringRequest {
    let enabled = match monitoring {
        Monitoring::Detailed => true,
        Monitoring::Basic => false,
    };
    sdk::LaunchTemplatesMonitoringRequest::builder().enabled(enabled).build()
}

fn metadata_options(
    options: &InstanceMetadataOptions,
) -> Result<sdk::LaunchTemplateInstanceMetadataOptionsRequest, NumberTooLarge> {
    let tokens = match options.http_tokens {
        MetadataTokens::Required => sdk::LaunchTemplateHttpTokensState::Required,
        MetadataTokens::Optional => sdk::LaunchTemplateHttpTokensState::Optional,
    };
    let tags = match options.tags {
        MetadataTags::Disabled => Some(sdk::LaunchTemplateInstanceMetadataTagsState::Disabled),
        MetadataTags::AccountDefault => None,
    };
    Ok(sdk::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(options.http_endpoint.as_str().into())
        .http_protocol_ipv6(options.http_protocol_ipv6.as_str().into())
        .http_put_response_hop_limit(whole(options.http_put_response_hop_limit, "HttpPutResponseHopLimit")?)
        .http_tokens(tokens)
        .set_instance_metadata_tags(tags)
        .build())
}

fn block_device(
    device: &BlockDeviceMapping,
) -> Result<sdk::LaunchTemplateBlockDeviceMappingRequest, NumberTooLarge> {
    let whole = |value: Option<u32>, field| value.map(|value| whole(value, field)).transpose();
    let ebs = sdk::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(whole(device.volume_size_gib, "VolumeSize")?)
        .set_volume_type(device.volume_type.as_deref().map(Into::into))
        .set_iops(whole(device.iops, "Iops")?)
        .set_throughput(whole(device.throughput_mib, "Throughput")?)
        .set_encrypted(device.encrypted)
        .set_kms_key_id(device.kms_key_id.clone())
        .set_snapshot_id(device.snapshot_id.clone())
        .set_volume_initialization_rate(whole(device.initialization_rate_mib, "VolumeInitializationRate")?)
        .set_delete_on_termination(device.delete_on_termination)
        .build();
    Ok(sdk::LaunchTemplateBlockDeviceMappingRequest::builder()
        .device_name(&device.device_name)
        .ebs(ebs)
        .build())
}

pub(crate) fn template(from: &sdk::LaunchTemplate) -> Result<LaunchTemplate, Malformed> {
    Ok(LaunchTemplate {
        id: required(from.launch_template_id.clone(), "LaunchTemplateId")?,
        name: required(from.launch_template_name.clone(), "LaunchTemplateName")?,
        version: number(from.default_version_number, "DefaultVersionNumber")?,
        created_at: moment(from.create_time.as_ref(), "CreateTime")?,
        tags: tags(from.tags()),
    })
}
