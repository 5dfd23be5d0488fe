//! CreateFleet of type `instant`, and the dry run of RunInstances.
//!
//! Decides the bytes of a request from the port's request alone, so that a stored request is replayed unchanged.
//! Decides which override an item of the answer is about: EC2 echoes the override with more fields, and the template
//! by its id.

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetInputBuilder;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesInputBuilder;
use aws_sdk_ec2::types as sdk;
use tenon_domain::id::InstanceId;
use tenon_ec2::port::{
    CreateFleetRequest, FleetInstances, FleetItemError, FleetLaunchTemplate, FleetOverride, FleetResult,
    FleetTags, InstanceMetadataOptions, MetadataTags, MetadataTokens, NetworkInterfaceSpec,
    OnDemandAllocation, RunInstancesProbe, SpotAllocation, TargetCapacityType,
};

use crate::filters::list;
use crate::reading::{Malformed, optional, parsed, required};
use crate::templates::{NumberTooLarge, tag_specification, tracking, whole};

/// The code of a fleet's error that EC2 sends without one.
const NO_CODE: &str = "NoCode";

pub(crate) fn request(request: &CreateFleetRequest) -> Result<CreateFleetInputBuilder, NumberTooLarge> {
    let target = sdk::TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(whole(request.target_capacity, "TotalTargetCapacity")?)
        .default_target_capacity_type(match request.capacity_type {
            TargetCapacityType::OnDemand => sdk::DefaultTargetCapacityType::OnDemand,
            TargetCapacityType::Spot => sdk::DefaultTargetCapacityType::Spot,
        })
        .build();
    let builder = CreateFleetInputBuilder::default()
        .r#type(sdk::FleetType::Instant)
        .client_token(request.client_token.as_str())
        .target_capacity_specification(target)
        .set_launch_template_configs(Some(request.launch_templates.iter().map(template).collect()))
        .set_tag_specifications(list(fleet_tags(&request.tags)))
        .set_context(request.context.clone());
    Ok(match request.capacity_type {
        TargetCapacityType::OnDemand => builder.on_demand_options(
            sdk::OnDemandOptionsRequest::builder()
                .allocation_strategy(on_demand(request.on_demand_allocation))
                .build(),
        ),
        TargetCapacityType::Spot => builder.spot_options(
            sdk::SpotOptionsRequest::builder().allocation_strategy(spot(request.spot_allocation)).build(),
        ),
    })
}

fn on_demand(allocation: OnDemandAllocation) -> sdk::FleetOnDemandAllocationStrategy {
    match allocation {
        OnDemandAllocation::LowestPrice => sdk::FleetOnDemandAllocationStrategy::LowestPrice,
        OnDemandAllocation::Prioritized => sdk::FleetOnDemandAllocationStrategy::Prioritized,
    }
}

fn spot(allocation: SpotAllocation) -> sdk::SpotAllocationStrategy {
    match allocation {
        SpotAllocation::LowestPrice => sdk::SpotAllocationStrategy::LowestPrice,
        SpotAllocation::PriceCapacityOptimized => sdk::SpotAllocationStrategy::PriceCapacityOptimized,
        SpotAllocation::CapacityOptimizedPrioritized => {
            sdk::SpotAllocationStrategy::CapacityOptimizedPrioritized
        }
    }
}

/// All kinds that the template or a fleet tags. EC2 has no fleet here.
fn probe_tags(probe: &RunInstancesProbe) -> Vec<sdk::TagSpecification> {
    let kinds = [
        (sdk::ResourceType::Instance, &probe.tags.instance),
        (sdk::ResourceType::Volume, &probe.tags.volume),
        (sdk::ResourceType::NetworkInterface, &probe.network_interface_tags),
        (sdk::ResourceType::SpotInstancesRequest, &probe.spot_request_tags),
    ];
    kinds.into_iter().filter_map(|(kind, tags)| tag_specification(kind, tags)).collect()
}

fn fleet_tags(tags: &FleetTags) -> Vec<sdk::TagSpecification> {
    let kinds = [
        (sdk::ResourceType::Instance, &tags.instance),
        (sdk::ResourceType::Volume, &tags.volume),
        (sdk::ResourceType::Fleet, &tags.fleet),
    ];
    kinds.into_iter().filter_map(|(kind, tags)| tag_specification(kind, tags)).collect()
}

fn template(template: &FleetLaunchTemplate) -> sdk::FleetLaunchTemplateConfigRequest {
    let specification = sdk::FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(&template.name)
        .version(&template.version)
        .build();
    sdk::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(specification)
        .set_overrides(list(template.overrides.iter().map(override_request).collect()))
        .build()
}

fn override_request(from: &FleetOverride) -> sdk::FleetLaunchTemplateOverridesRequest {
    sdk::FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(from.instance_type.as_str().into())
        .set_subnet_id(from.subnet.as_ref().map(ToString::to_string))
        .set_availability_zone(from.zone.as_ref().map(ToString::to_string))
        .set_image_id(from.image.as_ref().map(ToString::to_string))
        .set_priority(from.priority.map(f64::from))
        .build()
}

/// A dry run of RunInstances: fleets of the same template would launch the same way. The metadata options are the
/// template's own: condition keys look at the request.
pub(crate) fn probe(probe: &RunInstancesProbe) -> Result<RunInstancesInputBuilder, NumberTooLarge> {
    let template = sdk::LaunchTemplateSpecification::builder()
        .launch_template_name(&probe.launch_template)
        .version(&probe.version)
        .build();
    let placement = probe
        .with
        .zone
        .as_ref()
        .map(|zone| sdk::Placement::builder().availability_zone(zone.as_str()).build());
    let builder = RunInstancesInputBuilder::default()
        .dry_run(true)
        .min_count(1)
        .max_count(1)
        .launch_template(template)
        .instance_type(probe.with.instance_type.as_str().into())
        .set_placement(placement)
        .set_image_id(probe.with.image.as_ref().map(ToString::to_string))
        .set_metadata_options(probe.metadata_options.as_ref().map(metadata_options).transpose()?)
        .set_tag_specifications(list(probe_tags(probe)));
    let builder = match probe.capacity_type {
        TargetCapacityType::OnDemand => builder,
        TargetCapacityType::Spot => builder.instance_market_options(
            sdk::InstanceMarketOptionsRequest::builder().market_type(sdk::MarketType::Spot).build(),
        ),
    };
    let subnet = probe.with.subnet.as_ref().map(ToString::to_string);
    if probe.network_interfaces.is_empty() {
        return Ok(builder.set_subnet_id(subnet));
    }
    let groups: Vec<String> = probe.security_groups.iter().map(ToString::to_string).collect();
    let interfaces = probe.network_interfaces.iter().map(|spec| interface(spec, &groups, subnet.clone()));
    Ok(builder.set_network_interfaces(Some(interfaces.collect::<Result<_, _>>()?)))
}

fn interface(
    spec: &NetworkInterfaceSpec,
    groups: &[String],
    subnet: Option<String>,
) -> Result<sdk::InstanceNetworkInterfaceSpecification, NumberTooLarge> {
    let optional = |value: Option<u32>, field| value.map(|value| whole(value, field)).transpose();
    Ok(sdk::InstanceNetworkInterfaceSpecification::builder()
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
        .set_subnet_id(subnet)
        .build())
}

fn metadata_options(
    options: &InstanceMetadataOptions,
) -> Result<sdk::InstanceMetadataOptionsRequest, NumberTooLarge> {
    let tokens = match options.http_tokens {
        MetadataTokens::Required => sdk::HttpTokensState::Required,
        MetadataTokens::Optional => sdk::HttpTokensState::Optional,
    };
    let tags = match options.tags {
        MetadataTags::Disabled => Some(sdk::InstanceMetadataTagsState::Disabled),
        MetadataTags::AccountDefault => None,
    };
    Ok(sdk::InstanceMetadataOptionsRequest::builder()
        .http_endpoint(options.http_endpoint.as_str().into())
        .http_protocol_ipv6(options.http_protocol_ipv6.as_str().into())
        .http_put_response_hop_limit(whole(options.http_put_response_hop_limit, "HttpPutResponseHopLimit")?)
        .http_tokens(tokens)
        .set_instance_metadata_tags(tags)
        .build())
}

pub(crate) fn result(
    request: &CreateFleetRequest,
    answer: &CreateFleetOutput,
) -> Result<FleetResult, Malformed> {
    let mut result = FleetResult {
        fleet_id: parsed(answer.fleet_id.as_deref(), "FleetId")?,
        instances: Vec::new(),
        errors: Vec::new(),
    };
    for item in answer.instances() {
        let group = instances(request, item)?;
        let same = |known: &&mut FleetInstances| {
            known.from == group.from
                && known.launch_template == group.launch_template
                && known.capacity_type == group.capacity_type
        };
        match result.instances.iter_mut().find(same) {
            Some(known) => known.ids.extend(group.ids),
            None => result.instances.push(group),
        }
    }
    for group in &mut result.instances {
        group.ids.sort();
    }
    for item in answer.errors() {
        let from = blamed(request, Echo::of(item.launch_template_and_overrides.as_ref()))?;
        result.errors.push(FleetItemError {
            code: item.error_code.clone().unwrap_or_else(|| NO_CODE.to_owned()),
            message: item.error_message.clone().unwrap_or_default(),
            from,
            capacity_type: capacity_type(item.lifecycle.as_ref(), request),
        });
    }
    Ok(result)
}

fn instances(
    request: &CreateFleetRequest,
    item: &sdk::CreateFleetInstance,
) -> Result<FleetInstances, Malformed> {
    let named = item.instance_type.as_ref().map(AsRef::as_ref);
    let mut echo = Echo::of(item.launch_template_and_overrides.as_ref());
    echo.instance_type = echo.instance_type.or(named);
    let (launch_template, from) = origin(request, echo)?;
    let id = |id: &String| parsed::<InstanceId>(Some(id), "InstanceIds");
    Ok(FleetInstances {
        ids: item.instance_ids().iter().map(id).collect::<Result<_, _>>()?,
        instance_type: optional(named, "InstanceType")?.unwrap_or_else(|| from.instance_type.clone()),
        capacity_type: capacity_type(item.lifecycle.as_ref(), request),
        from,
        launch_template,
    })
}

fn capacity_type(
    lifecycle: Option<&sdk::InstanceLifecycle>,
    request: &CreateFleetRequest,
) -> TargetCapacityType {
    lifecycle
        .and_then(|lifecycle| TargetCapacityType::parse(lifecycle.as_str()))
        .unwrap_or(request.capacity_type)
}

/// EC2's echo of an item's override; absent fields are `None`.
#[derive(Debug, Clone, Copy, Default)]
struct Echo<'a> {
    template: Option<&'a str>,
    instance_type: Option<&'a str>,
    subnet: Option<&'a str>,
    zone: Option<&'a str>,
    image: Option<&'a str>,
}

impl<'a> Echo<'a> {
    fn of(from: Option<&'a sdk::LaunchTemplateAndOverridesResponse>) -> Self {
        let Some(from) = from else { return Self::default() };
        let template = from.launch_template_specification.as_ref();
        let with = from.overrides.as_ref();
        Self {
            template: template.and_then(|t| t.launch_template_name.as_deref()),
            instance_type: with.and_then(|o| o.instance_type.as_ref()).map(AsRef::as_ref),
            subnet: with.and_then(|o| o.subnet_id.as_deref()),
            zone: with.and_then(|o| o.availability_zone.as_deref()),
            image: with.and_then(|o| o.image_id.as_deref()),
        }
    }

    /// The override in EC2's echo.
    fn told(&self) -> Result<FleetOverride, Malformed> {
        Ok(FleetOverride {
            instance_type: parsed(self.instance_type, "Overrides.InstanceType")?,
            subnet: optional(self.subnet, "Overrides.SubnetId")?,
            zone: optional(self.zone, "Overrides.AvailabilityZone")?,
            image: optional(self.image, "Overrides.ImageId")?,
            priority: None,
        })
    }

    /// Whether it may be this override: all fields that both have are equal.
    fn is_about(&self, template: &FleetLaunchTemplate, from: &FleetOverride) -> bool {
        fn agree(said: Option<&str>, asked: Option<&str>) -> bool {
            said.zip(asked).is_none_or(|(said, asked)| said == asked)
        }
        agree(self.template, Some(&template.name))
            && agree(self.instance_type, Some(from.instance_type.as_str()))
            && agree(self.subnet, from.subnet.as_ref().map(AsRef::as_ref))
            && agree(self.zone, from.zone.as_ref().map(AsRef::as_ref))
            && agree(self.image, from.image.as_ref().map(AsRef::as_ref))
    }
}

/// The override of an error, as in the request. If several match, none is blamed: the result is EC2's echo, or `None`
/// if the echo has no type.
fn blamed(request: &CreateFleetRequest, echo: Echo<'_>) -> Result<Option<FleetOverride>, Malformed> {
    let asked = request.launch_templates.iter().flat_map(|t| t.overrides.iter().map(move |o| (t, o)));
    let mut about = asked.filter(|(template, from)| echo.is_about(template, from));
    match (about.next(), about.next(), echo.instance_type) {
        (Some((_, from)), None, Some(_)) => Ok(Some(from.clone())),
        (_, _, Some(_)) => echo.told().map(Some),
        (_, _, None) => Ok(None),
    }
}

/// The template's name and the override, as in the request. If none matches, as for a template with its own type, the
/// result is EC2's echo.
fn origin(request: &CreateFleetRequest, echo: Echo<'_>) -> Result<(String, FleetOverride), Malformed> {
    let asked = request.launch_templates.iter().flat_map(|t| t.overrides.iter().map(move |o| (t, o)));
    if let Some((template, from)) = asked.into_iter().find(|(t, o)| echo.is_about(t, o)) {
        return Ok((template.name.clone(), from.clone()));
    }
    let first = request.launch_templates.first().map(|template| template.name.as_str());
    let template = required(echo.template.or(first), "LaunchTemplateSpecification.LaunchTemplateName")?;
    Ok((template.to_owned(), echo.told()?))
}
