//! CreateFleet and RunInstances' dry run: requests and answers.

use tenon_ec2::port::{
    CreateFleetRequest, FleetLaunchTemplate, FleetOverride, FleetResult, FleetTags, OnDemandAllocation,
    RunInstancesProbe, SpotAllocation, TargetCapacityType,
};

use crate::error::{WireError, invalid, refused};
use crate::form::FormFields;
use crate::template::{interface, metadata_options, tags_of};
use crate::xml::Xml;

pub(crate) fn fleet(form: &mut FormFields) -> Result<CreateFleetRequest, WireError> {
    let kind = form.text("Type").unwrap_or_else(|| "maintain".to_owned());
    if kind != "instant" {
        return Err(invalid("Type", &kind));
    }
    let target = form.structure("TargetCapacitySpecification", |form| {
        Ok((form.parsed("TotalTargetCapacity")?.unwrap_or(0), form.required("DefaultTargetCapacityType")?))
    })?;
    let (target_capacity, word) = target
        .ok_or_else(|| refused("MissingParameter", "The request must contain TargetCapacitySpecification"))?;
    let capacity_type =
        TargetCapacityType::parse(&word).ok_or_else(|| invalid("DefaultTargetCapacityType", &word))?;
    let on_demand = form.structure("OnDemandOptions", |form| form.required("AllocationStrategy"))?;
    let spot = form.structure("SpotOptions", |form| form.required("AllocationStrategy"))?;
    Ok(CreateFleetRequest {
        client_token: form
            .required("ClientToken")?
            .parse()
            .map_err(|error| crate::error::malformed(&error))?,
        target_capacity,
        capacity_type,
        on_demand_allocation: on_demand_allocation(on_demand.as_deref())?,
        spot_allocation: spot_allocation(spot.as_deref())?,
        launch_templates: form.structures("LaunchTemplateConfigs", template)?,
        tags: tags(form)?,
        context: form.text("Context"),
    })
}

fn on_demand_allocation(word: Option<&str>) -> Result<OnDemandAllocation, WireError> {
    match word {
        None | Some("lowest-price") => Ok(OnDemandAllocation::LowestPrice),
        Some("prioritized") => Ok(OnDemandAllocation::Prioritized),
        Some(other) => Err(invalid("AllocationStrategy", other)),
    }
}

fn spot_allocation(word: Option<&str>) -> Result<SpotAllocation, WireError> {
    match word {
        None | Some("lowest-price") => Ok(SpotAllocation::LowestPrice),
        Some("price-capacity-optimized") => Ok(SpotAllocation::PriceCapacityOptimized),
        Some("capacity-optimized-prioritized") => Ok(SpotAllocation::CapacityOptimizedPrioritized),
        Some(other) => Err(invalid("AllocationStrategy", other)),
    }
}

/// Tags at creation, by kind.
fn tags(form: &mut FormFields) -> Result<FleetTags, WireError> {
    let mut found = FleetTags::default();
    let specification = |form: &mut FormFields| Ok((form.required("ResourceType")?, form.tags()?));
    for (kind, tags) in form.structures("TagSpecification", specification)? {
        match kind.as_str() {
            "instance" => found.instance = tags,
            "volume" => found.volume = tags,
            "fleet" => found.fleet = tags,
            other => return Err(invalid("ResourceType", other)),
        }
    }
    Ok(found)
}

fn named(form: &mut FormFields) -> Result<(String, String), WireError> {
    Ok((form.required("LaunchTemplateName")?, form.text("Version").unwrap_or_else(|| "$Default".to_owned())))
}

fn template(form: &mut FormFields) -> Result<FleetLaunchTemplate, WireError> {
    let specification = form.structure("LaunchTemplateSpecification", named)?;
    let (name, version) = specification
        .ok_or_else(|| refused("MissingParameter", "The request must contain LaunchTemplateSpecification"))?;
    Ok(FleetLaunchTemplate { name, version, overrides: form.structures("Overrides", with)? })
}

fn with(form: &mut FormFields) -> Result<FleetOverride, WireError> {
    let name = form.required("InstanceType")?;
    let priority = form.text("Priority");
    Ok(FleetOverride {
        instance_type: name.parse().map_err(|_| invalid("InstanceType", &name))?,
        subnet: form.parsed("SubnetId")?,
        zone: form.parsed("AvailabilityZone")?,
        image: form.parsed("ImageId")?,
        // EC2's number is a decimal, the port's is whole.
        priority: priority
            .map(|text| text.trim_end_matches(".0").parse().map_err(|_| invalid("Priority", &text)))
            .transpose()?,
    })
}

/// The twin launches through fleets alone: RunInstances is there for its dry run.
pub(crate) fn probe(form: &mut FormFields) -> Result<RunInstancesProbe, WireError> {
    if form.parsed("DryRun")? != Some(true) {
        return Err(refused("UnsupportedOperation", "RunInstances is served as a dry run only"));
    }
    form.text("ClientToken");
    for count in ["MinCount", "MaxCount"] {
        match form.parsed::<u32>(count)? {
            Some(1) => {}
            Some(other) => return Err(invalid(count, &other.to_string())),
            None => return Err(crate::error::missing(count)),
        }
    }
    let template = form.structure("LaunchTemplate", named)?;
    let (launch_template, version) =
        template.ok_or_else(|| refused("MissingParameter", "The request must contain LaunchTemplate"))?;
    let zone = form.structure("Placement", |form| form.parsed("AvailabilityZone"))?;
    let mut with = FleetOverride { zone: zone.flatten(), ..with(form)? };
    let (mut network_interfaces, mut security_groups) = (Vec::new(), Vec::new());
    let interfaces = form.structures("NetworkInterface", |form| {
        let subnet = form.parsed("SubnetId")?;
        Ok((subnet, interface(form)?))
    })?;
    for (subnet, (spec, groups)) in interfaces {
        with.subnet = subnet;
        security_groups = groups;
        network_interfaces.push(spec);
    }
    let metadata_options = form.structure("MetadataOptions", metadata_options)?;
    let market = form.structure("InstanceMarketOptions", |form| form.required("MarketType"))?;
    let capacity_type = match market.as_deref() {
        None => TargetCapacityType::OnDemand,
        Some("spot") => TargetCapacityType::Spot,
        Some(other) => return Err(invalid("MarketType", other)),
    };
    let [instance, volume, network_interface_tags, spot_request_tags] =
        tags_of(form, ["instance", "volume", "network-interface", "spot-instances-request"])?;
    Ok(RunInstancesProbe {
        launch_template,
        version,
        with,
        capacity_type,
        tags: FleetTags { instance, volume, ..FleetTags::default() },
        network_interface_tags,
        spot_request_tags,
        metadata_options,
        network_interfaces,
        security_groups,
    })
}

/// The answer. Like EC2, it names an item's template by id only, even if the request named it by name.
pub(crate) fn result(xml: &mut Xml, result: &FleetResult) {
    xml.text("fleetId", &result.fleet_id);
    xml.set("errorSet", &result.errors, |xml, error| {
        error.from.iter().for_each(|from| origin(xml, from));
        xml.text("lifecycle", error.capacity_type.as_str());
        xml.text("errorCode", &error.code);
        xml.text("errorMessage", &error.message);
    });
    xml.set("fleetInstanceSet", &result.instances, |xml, group| {
        origin(xml, &group.from);
        xml.text("lifecycle", group.capacity_type.as_str());
        xml.within("instanceIds", |xml| group.ids.iter().for_each(|id| xml.text("item", id)));
        xml.text("instanceType", &group.instance_type);
    });
}

fn origin(xml: &mut Xml, from: &FleetOverride) {
    xml.within("launchTemplateAndOverrides", |xml| {
        xml.within("overrides", |xml| {
            xml.text("instanceType", &from.instance_type);
            xml.maybe("subnetId", from.subnet.as_ref());
            xml.maybe("availabilityZone", from.zone.as_ref());
            xml.maybe("imageId", from.image.as_ref());
            xml.maybe("priority", from.priority);
        });
    });
}
