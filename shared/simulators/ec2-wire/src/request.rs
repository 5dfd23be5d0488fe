//! Requests: from a form to the port's arguments.
//!
//! Decides the parameters of each call. Page sizes are the port's; a requested one must be within EC2's limits.

use std::str::FromStr;

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::id::{InstanceId, ParseIdError, PlacementGroupId};
use tenon_domain::reservation::MatchCriteria;
use tenon_ec2::port::{
    CapacityReservationFilter, CreateFleetRequest, CreateLaunchTemplate, DisabledImages, ImageFilter,
    ImageState, InstanceFilter, InstanceState, InstanceStatusFilter, LaunchTemplateFilter, LocationType,
    PageToken, ResourceFilter, RunInstancesProbe, ScheduledEventCode, StatusCheck, TagFilter, Tags,
};

use crate::error::{WireError, invalid, malformed, missing, refused};
use crate::fleet::{fleet, probe};
use crate::form::FormFields;
use crate::template::template;

const LARGE_PAGE: u32 = 1000;

/// Whether a call is a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    Real,
    Dry,
}

/// A call of the port.
#[derive(Debug)]
pub(crate) enum WireRequest {
    InstanceTypes(Option<PageToken>),
    Offerings(LocationType, Option<PageToken>),
    Zones,
    SpotPrices(Option<PageToken>),
    Images(ImageFilter, Option<PageToken>),
    Subnets(ResourceFilter),
    SecurityGroups(ResourceFilter),
    Snapshots(ResourceFilter),
    Reservations(CapacityReservationFilter),
    PlacementGroups(PlacementGroupSelector),
    CreateTemplate(CreateLaunchTemplate),
    Templates(LaunchTemplateFilter, Option<PageToken>),
    DeleteTemplate(String),
    CreateFleet(CreateFleetRequest, RunMode),
    ProbeInstances(RunInstancesProbe),
    Instances(InstanceFilter, Option<PageToken>),
    InstanceStatus(InstanceStatusFilter, Option<PageToken>),
    Console(InstanceId),
    Terminate(Vec<InstanceId>),
    CreateTags(Vec<InstanceId>, Tags),
}

impl WireRequest {
    /// Reads a request's form to its end.
    pub(crate) fn read(action: &str, mut form: FormFields) -> Result<Self, WireError> {
        let request = read(action, &mut form)?;
        form.finish()?;
        Ok(request)
    }
}

fn read(action: &str, form: &mut FormFields) -> Result<WireRequest, WireError> {
    Ok(match action {
        "DescribeInstanceTypes" => {
            page_size(form, 100)?;
            WireRequest::InstanceTypes(form.page())
        }
        "DescribeInstanceTypeOfferings" => {
            page_size(form, LARGE_PAGE)?;
            WireRequest::Offerings(location(form)?, form.page())
        }
        "DescribeAvailabilityZones" => WireRequest::Zones,
        "DescribeSpotPriceHistory" => spot_prices(form)?,
        "DescribeImages" => images(form)?,
        "DescribeSubnets" => WireRequest::Subnets(resources(form, "SubnetId", [])?),
        "DescribeSecurityGroups" => WireRequest::SecurityGroups(resources(form, "GroupId", ["group-name"])?),
        "DescribeSnapshots" => WireRequest::Snapshots(resources(form, "SnapshotId", [])?),
        "DescribeCapacityReservations" => reservations(form)?,
        "DescribePlacementGroups" => placement_groups(form)?,
        "CreateLaunchTemplate" => {
            // A name is used once, so the token has no effect.
            form.text("ClientToken");
            WireRequest::CreateTemplate(template(form)?)
        }
        "DescribeLaunchTemplates" => {
            page_size(form, 200)?;
            let names = form.list("LaunchTemplateName");
            let (tags, []) = filters(form, [])?;
            WireRequest::Templates(LaunchTemplateFilter { names, tags }, form.page())
        }
        "DeleteLaunchTemplate" => WireRequest::DeleteTemplate(form.required("LaunchTemplateName")?),
        "CreateFleet" => {
            let run = if form.parsed("DryRun")?.unwrap_or(false) { RunMode::Dry } else { RunMode::Real };
            WireRequest::CreateFleet(fleet(form)?, run)
        }
        "RunInstances" => WireRequest::ProbeInstances(probe(form)?),
        "DescribeInstances" => instances(form)?,
        "DescribeInstanceStatus" => instance_status(form)?,
        "GetConsoleOutput" => WireRequest::Console(console(form)?),
        "TerminateInstances" => WireRequest::Terminate(ids(form, "InstanceId")?),
        "CreateTags" => WireRequest::CreateTags(ids(form, "ResourceId")?, form.tags()?),
        other => {
            return Err(refused(
                "InvalidAction",
                format!("The action {other} is not valid for this web service."),
            ));
        }
    })
}

/// Ids that are of their form.
pub(crate) fn ids<T: FromStr<Err = ParseIdError>>(
    form: &mut FormFields,
    name: &str,
) -> Result<Vec<T>, WireError> {
    form.list(name).iter().map(|id| id.parse().map_err(|error| malformed(&error))).collect()
}

fn page_size(form: &mut FormFields, max: u32) -> Result<(), WireError> {
    match form.parsed::<u32>("MaxResults")? {
        Some(size) if !(1..=max).contains(&size) => Err(invalid("MaxResults", &size.to_string())),
        Some(_) | None => Ok(()),
    }
}

/// EC2 takes no page size beside a list of ids.
fn page_size_without(form: &mut FormFields, named: usize) -> Result<(), WireError> {
    let asked = form.parsed::<u32>("MaxResults")?;
    if asked.is_some() && named > 0 {
        return Err(refused("InvalidParameterCombination", "MaxResults cannot be used with a list of ids"));
    }
    match asked {
        Some(size) if !(5..=LARGE_PAGE).contains(&size) => Err(invalid("MaxResults", &size.to_string())),
        Some(_) | None => Ok(()),
    }
}

fn location(form: &mut FormFields) -> Result<LocationType, WireError> {
    match form.required("LocationType")?.as_str() {
        "availability-zone" => Ok(LocationType::AvailabilityZone),
        "availability-zone-id" => Ok(LocationType::AvailabilityZoneId),
        other => Err(invalid("LocationType", other)),
    }
}

/// Without a start EC2 returns prices of three months, which the port never asks for.
fn spot_prices(form: &mut FormFields) -> Result<WireRequest, WireError> {
    page_size(form, LARGE_PAGE)?;
    let (start, end) = (form.required("StartTime")?, form.required("EndTime")?);
    if start != end {
        return Err(invalid("EndTime", &end));
    }
    if !form.list("ProductDescription").iter().any(|product| product == "Linux/UNIX") {
        return Err(missing("ProductDescription"));
    }
    Ok(WireRequest::SpotPrices(form.page()))
}

fn images(form: &mut FormFields) -> Result<WireRequest, WireError> {
    let ids = ids(form, "ImageId")?;
    page_size_without(form, ids.len())?;
    // The port's answers hold deprecated images.
    if form.parsed("IncludeDeprecated")? != Some(true) {
        return Err(missing("IncludeDeprecated"));
    }
    let disabled = match form.parsed("IncludeDisabled")? {
        Some(true) => DisabledImages::Include,
        Some(false) | None => DisabledImages::Omit,
    };
    let (tags, [names, words]) = filters(form, ["name", "state"])?;
    let mut states = words.iter().map(|word| image_state(word)).collect::<Result<Vec<_>, _>>()?;
    states.dedup();
    let filter = ImageFilter { ids, owners: form.list("Owner"), names, tags, states, disabled };
    Ok(WireRequest::Images(filter, form.page()))
}

fn image_state(word: &str) -> Result<ImageState, WireError> {
    match word {
        "transient" | "error" => Ok(ImageState::Invalid),
        word => ImageState::parse(word).ok_or_else(|| invalid("state", word)),
    }
}

/// Resources by ids, tags and, for security groups, names.
fn resources<const N: usize>(
    form: &mut FormFields,
    ids: &str,
    names: [&str; N],
) -> Result<ResourceFilter, WireError> {
    let ids = form.list(ids);
    page_size_without(form, ids.len())?;
    let (tags, names) = filters(form, names)?;
    Ok(ResourceFilter { ids, names: names.into_iter().flatten().collect(), tags })
}

/// The port asks only for active reservations.
fn reservations(form: &mut FormFields) -> Result<WireRequest, WireError> {
    let ids = form.list("CapacityReservationId");
    page_size_without(form, ids.len())?;
    let (tags, [states, owners, criteria]) = filters(form, ["state", "owner-id", "instance-match-criteria"])?;
    if states != ["active"] {
        return Err(missing("Filter.state"));
    }
    let known =
        |word: &String| MatchCriteria::parse(word).ok_or_else(|| invalid("instance-match-criteria", word));
    let match_criteria = criteria.first().map(known).transpose()?;
    let owner = owners.into_iter().next();
    Ok(WireRequest::Reservations(CapacityReservationFilter { ids, owner, match_criteria, tags }))
}

/// The port asks only for available groups, and for one at a time.
fn placement_groups(form: &mut FormFields) -> Result<WireRequest, WireError> {
    let (groups, names) = (ids::<PlacementGroupId>(form, "GroupId")?, form.list("GroupName"));
    let (tags, [states]) = filters(form, ["state"])?;
    if states != ["available"] || !tags.is_empty() {
        return Err(missing("Filter.state"));
    }
    match (groups.as_slice(), names.as_slice()) {
        ([id], []) => Ok(WireRequest::PlacementGroups(PlacementGroupSelector::Id(id.clone()))),
        ([], [name]) => Ok(WireRequest::PlacementGroups(PlacementGroupSelector::Name(name.clone()))),
        _ => Err(missing("GroupId")),
    }
}

fn instances(form: &mut FormFields) -> Result<WireRequest, WireError> {
    let ids = ids(form, "InstanceId")?;
    page_size_without(form, ids.len())?;
    let (tags, [words]) = filters(form, ["instance-state-name"])?;
    let state =
        |word: &String| InstanceState::parse(word).ok_or_else(|| invalid("instance-state-name", word));
    let states = words.iter().map(state).collect::<Result<_, _>>()?;
    Ok(WireRequest::Instances(InstanceFilter { ids, tags, states }, form.page()))
}

fn console(form: &mut FormFields) -> Result<InstanceId, WireError> {
    form.required("InstanceId")?.parse().map_err(|error| malformed(&error))
}

/// The port asks for one thing at a time: EC2 ANDs filters of different names.
fn instance_status(form: &mut FormFields) -> Result<WireRequest, WireError> {
    page_size(form, LARGE_PAGE)?;
    let names = ["instance-status.status", "system-status.status", "event.code"];
    let (_, [instance, system, codes]) = filters(form, names)?;
    let asked = match (instance.as_slice(), system.as_slice(), codes.as_slice()) {
        ([status], [], []) if status == "impaired" => InstanceStatusFilter::Impaired(StatusCheck::Instance),
        ([], [status], []) if status == "impaired" => InstanceStatusFilter::Impaired(StatusCheck::System),
        ([], [], codes) if codes.len() == ScheduledEventCode::ALL.len() => {
            InstanceStatusFilter::ScheduledEvents
        }
        _ => return Err(missing("Filter.instance-status.status")),
    };
    Ok(WireRequest::InstanceStatus(asked, form.page()))
}

/// Filters by tag, and the values of those of these names.
fn filters<const N: usize>(
    form: &mut FormFields,
    known: [&str; N],
) -> Result<(Vec<TagFilter>, [Vec<String>; N]), WireError> {
    let pair = |form: &mut FormFields| Ok((form.required("Name")?, form.list("Value")));
    let (mut tags, mut found) = (Vec::new(), known.map(|name| (name, Vec::new())));
    for (name, values) in form.structures("Filter", pair)? {
        let place = found.iter_mut().find(|(known, _)| *known == name);
        match (place, name.strip_prefix("tag:")) {
            (Some((_, place)), _) => place.extend(values),
            (None, Some(key)) => tags.push(TagFilter { key: key.to_owned(), values }),
            (None, None) if name == "tag-key" => tags.extend(values.into_iter().map(TagFilter::exists)),
            (None, None) => {
                return Err(refused("InvalidParameterValue", format!("The filter '{name}' is invalid")));
            }
        }
    }
    Ok((tags, found.map(|(_, values)| values)))
}
