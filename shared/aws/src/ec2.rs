//! The EC2 port over the SDK.
//!
//! Decides the paging of each call, and the meaning of a dry run's two refusals. Page sizes are the port's; beside a
//! list of ids or names EC2 accepts none, and answers on one page. `launch_sessions` takes launch roles.

use std::error::Error;
use std::time::SystemTime;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::config::{BehaviorVersion, Builder};
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types as sdk;
use aws_smithy_types::DateTime;
use aws_types::SdkConfig;
use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::id::InstanceId;
use tenon_ec2::port::{
    AvailabilityZone, CapacityReservation, CapacityReservationFilter, CreateFleetRequest,
    CreateLaunchTemplate, DryRunOutcome, FleetResult, Image, ImageFilter, Instance, InstanceFilter,
    InstanceStateChange, InstanceStatus, InstanceStatusFilter, InstanceTypeInfo, LaunchRole, LaunchTemplate,
    LaunchTemplateFilter, LocationType, Page, PageToken, PlacementGroup, ResourceFilter, RunInstancesProbe,
    SecurityGroup, SpotPrice, Subnet, Tags, TypeOffering, VolumeSnapshot,
};
use tenon_ec2::{Ec2, Ec2Error, LaunchRights};

use crate::call::{self, CallEffect, FailedCall, FailedCallSink};
use crate::filters::{self, list};
use crate::launch_sessions::LaunchSessions;
use crate::paging::{AllPages, size, spot_place, token};
use crate::reading::{Malformed, next};
use crate::settings::{retries, timeouts};
use crate::templates::NumberTooLarge;
use crate::{fleet, images, instances, network, placement, prices, reservations, templates, types};

/// Page sizes of the port, each EC2's largest.
const TYPES_PAGE: i32 = 100;
const TEMPLATES_PAGE: i32 = 200;
const LARGE_PAGE: i32 = 1000;
/// Products of Linux spot prices; the second is for accounts that had EC2-Classic.
const LINUX: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

/// EC2 of an account and region.
#[derive(Clone)]
pub struct AwsEc2 {
    client: Client,
    sessions: LaunchSessions,
    report: Option<FailedCallSink>,
}

impl std::fmt::Debug for AwsEc2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsEc2").finish_non_exhaustive()
    }
}

impl AwsEc2 {
    /// EC2 of the region and account of `config`. Its retries and timeouts are replaced: no retries, and 40 s a call.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        let client = Client::from_conf(client_settings(config).build());
        Self { client, sessions: LaunchSessions::new(config), report: None }
    }

    /// Reports every failed call, with its request id.
    #[must_use]
    pub fn reporting(mut self, report: FailedCallSink) -> Self {
        self.report = Some(report);
        self
    }

    fn failed<E>(&self, action: &'static str, error: &SdkError<E, HttpResponse>) -> FailedCall
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let failed = FailedCall::of(action, error);
        if let Some(report) = &self.report {
            report(&failed);
        }
        failed
    }

    /// The answer of a call, or the port's error.
    fn answer<T, E>(
        &self,
        action: &'static str,
        sent: Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<T, Ec2Error>
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        call::answer(self.report.as_ref(), action, sent)
    }

    /// The result of a dry run: EC2 returns both outcomes as errors.
    fn dry_run<T, E>(
        &self,
        action: &'static str,
        sent: Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<DryRunOutcome, Ec2Error>
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let Err(error) = sent else {
            // A success contradicts the API, and the call may have launched.
            return Err(Malformed::new("DryRunOperation", "is missing: EC2 answered a dry run as a call")
                .into_error(action));
        };
        let failed = FailedCall::of(action, &error);
        match (failed.effect, failed.code.as_str()) {
            (CallEffect::Answered, "DryRunOperation") => Ok(DryRunOutcome::WouldSucceed),
            (CallEffect::Answered, "UnauthorizedOperation") => Ok(DryRunOutcome::Unauthorized {
                action: action.to_owned(),
                decoded: None,
                message: failed.message,
            }),
            _ => Err(self.failed(action, &error).into_error()),
        }
    }

    /// The moment of a call, by the client's clock.
    fn now(&self) -> DateTime {
        let clock = self.client.config().time_source();
        DateTime::from(clock.map_or_else(SystemTime::now, |clock| clock.now()))
    }
}

/// The settings of every client of EC2.
pub(crate) fn client_settings(config: &SdkConfig) -> Builder {
    Builder::from(config)
        .behavior_version(BehaviorVersion::v2026_01_12())
        .retry_config(retries())
        .timeout_config(timeouts())
}

impl LaunchRights for AwsEc2 {
    type Launcher = Self;

    async fn launching(&self, role: &LaunchRole) -> Result<Self, Ec2Error> {
        let client = self.sessions.client(role, self.now().secs(), self.report.as_ref()).await?;
        Ok(Self { client, ..self.clone() })
    }
}

/// Reads a list; an error names the call and the field.
fn read<T, U>(
    action: &str,
    items: &[T],
    read: impl Fn(&T) -> Result<U, Malformed>,
) -> Result<Vec<U>, Ec2Error> {
    items.iter().map(read).collect::<Result<_, _>>().map_err(|malformed| malformed.into_error(action))
}

fn unwritable(action: &'static str) -> impl Fn(NumberTooLarge) -> Ec2Error {
    move |error| Ec2Error::Invalid {
        action: action.to_owned(),
        code: "InvalidParameterValue".to_owned(),
        message: error.to_string(),
    }
}

impl Ec2 for AwsEc2 {
    async fn describe_instance_types(
        &self,
        page: Option<PageToken>,
    ) -> Result<Page<InstanceTypeInfo>, Ec2Error> {
        let call = self.client.describe_instance_types().max_results(TYPES_PAGE).set_next_token(token(page));
        let answer = self.answer("DescribeInstanceTypes", call.send().await)?;
        let next = next(answer.next_token.as_deref());
        let mut items: Vec<_> =
            answer.instance_types.unwrap_or_default().into_iter().map(types::instance_type).collect();
        items.sort_by(|a, b| a.instance_type.cmp(&b.instance_type));
        Ok(Page { items, next })
    }

    async fn describe_instance_type_offerings(
        &self,
        location: LocationType,
        page: Option<PageToken>,
    ) -> Result<Page<TypeOffering>, Ec2Error> {
        let action = "DescribeInstanceTypeOfferings";
        let location = match location {
            LocationType::AvailabilityZone => sdk::LocationType::AvailabilityZone,
            LocationType::AvailabilityZoneId => sdk::LocationType::AvailabilityZoneId,
        };
        let call = self.client.describe_instance_type_offerings().location_type(location);
        let call = call.max_results(LARGE_PAGE).set_next_token(token(page));
        let answer = self.answer(action, call.send().await)?;
        let items = read(action, answer.instance_type_offerings(), types::offering)?;
        Ok(Page { items, next: next(answer.next_token.as_deref()) })
    }

    async fn describe_availability_zones(&self) -> Result<Vec<AvailabilityZone>, Ec2Error> {
        let action = "DescribeAvailabilityZones";
        let answer = self.answer(action, self.client.describe_availability_zones().send().await)?;
        types::zones(answer.availability_zones()).map_err(|malformed| malformed.into_error(action))
    }

    async fn describe_spot_price_history(
        &self,
        page: Option<PageToken>,
    ) -> Result<Page<SpotPrice>, Ec2Error> {
        let action = "DescribeSpotPriceHistory";
        let (start, token) = spot_place(page, self.now());
        let call = self.client.describe_spot_price_history().start_time(start).end_time(start);
        let linux = LINUX.map(str::to_owned).to_vec();
        let call = call.set_product_descriptions(Some(linux)).max_results(LARGE_PAGE).set_next_token(token);
        let answer = self.answer(action, call.send().await)?;
        let items = read(action, answer.spot_price_history(), prices::spot_price)?;
        let next = next(answer.next_token.as_deref());
        let next = next.map(|PageToken(token)| PageToken(format!("{} {token}", start.secs())));
        Ok(Page { items, next })
    }

    async fn describe_images(
        &self,
        filter: &ImageFilter,
        page: Option<PageToken>,
    ) -> Result<Page<Image>, Ec2Error> {
        let action = "DescribeImages";
        let include_disabled = match filter.disabled {
            tenon_ec2::port::DisabledImages::Include => true,
            tenon_ec2::port::DisabledImages::Omit => false,
        };
        let ids: Vec<String> = filter.ids.iter().map(ToString::to_string).collect();
        let call = self
            .client
            .describe_images()
            .set_max_results(size(LARGE_PAGE, ids.len()))
            .set_image_ids(list(ids))
            .set_owners(list(filter.owners.clone()))
            .set_filters(list(filters::images(filter)))
            .include_deprecated(true)
            .include_disabled(include_disabled)
            .set_next_token(token(page));
        let answer = self.answer(action, call.send().await)?;
        let items = read(action, answer.images(), images::image)?;
        Ok(Page { items, next: next(answer.next_token.as_deref()) })
    }

    async fn describe_subnets(&self, filter: &ResourceFilter) -> Result<Vec<Subnet>, Ec2Error> {
        let action = "DescribeSubnets";
        let mut pages = AllPages::new(action);
        loop {
            let call = self
                .client
                .describe_subnets()
                .set_max_results(size(LARGE_PAGE, filter.ids.len()))
                .set_subnet_ids(list(filter.ids.clone()))
                .set_filters(list(filters::tags(&filter.tags)))
                .set_next_token(pages.token());
            let answer = self.answer(action, call.send().await)?;
            let page = read(action, answer.subnets(), network::subnet)?;
            if let Some(all) = pages.add(page, next(answer.next_token.as_deref()))? {
                return Ok(all);
            }
        }
    }

    async fn describe_security_groups(
        &self,
        filter: &ResourceFilter,
    ) -> Result<Vec<SecurityGroup>, Ec2Error> {
        let action = "DescribeSecurityGroups";
        let mut pages = AllPages::new(action);
        loop {
            let call = self
                .client
                .describe_security_groups()
                .set_max_results(size(LARGE_PAGE, filter.ids.len()))
                .set_group_ids(list(filter.ids.clone()))
                .set_filters(list(filters::groups(filter)))
                .set_next_token(pages.token());
            let answer = self.answer(action, call.send().await)?;
            let page = read(action, answer.security_groups(), network::security_group)?;
            if let Some(all) = pages.add(page, next(answer.next_token.as_deref()))? {
                return Ok(all);
            }
        }
    }

    async fn describe_snapshots(&self, filter: &ResourceFilter) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
        let action = "DescribeSnapshots";
        let mut pages = AllPages::new(action);
        loop {
            let call = self
                .client
                .describe_snapshots()
                .set_max_results(size(LARGE_PAGE, filter.ids.len()))
                .set_snapshot_ids(list(filter.ids.clone()))
                .set_filters(list(filters::tags(&filter.tags)))
                .set_next_token(pages.token());
            let answer = self.answer(action, call.send().await)?;
            let page = read(action, answer.snapshots(), images::snapshot)?;
            if let Some(all) = pages.add(page, next(answer.next_token.as_deref()))? {
                return Ok(all);
            }
        }
    }

    async fn describe_capacity_reservations(
        &self,
        filter: &CapacityReservationFilter,
    ) -> Result<Vec<CapacityReservation>, Ec2Error> {
        let action = "DescribeCapacityReservations";
        let mut pages = AllPages::new(action);
        loop {
            let call = self
                .client
                .describe_capacity_reservations()
                .set_max_results(size(LARGE_PAGE, filter.ids.len()))
                .set_capacity_reservation_ids(list(filter.ids.clone()))
                .set_filters(list(filters::reservations(filter)))
                .set_next_token(pages.token());
            let answer = self.answer(action, call.send().await)?;
            let page = read(action, answer.capacity_reservations(), reservations::reservation)?;
            if let Some(all) = pages.add(page, next(answer.next_token.as_deref()))? {
                return Ok(all);
            }
        }
    }

    async fn describe_placement_groups(
        &self,
        of: &PlacementGroupSelector,
    ) -> Result<Vec<PlacementGroup>, Ec2Error> {
        let action = "DescribePlacementGroups";
        let call = self.client.describe_placement_groups().set_filters(list(filters::placement_groups()));
        let call = match of {
            PlacementGroupSelector::Id(id) => call.group_ids(id.as_str()),
            PlacementGroupSelector::Name(name) => call.group_names(name),
        };
        let answer = self.answer(action, call.send().await)?;
        read(action, answer.placement_groups(), placement::placement_group)
    }

    async fn create_launch_template(
        &self,
        template: &CreateLaunchTemplate,
    ) -> Result<LaunchTemplate, Ec2Error> {
        let action = "CreateLaunchTemplate";
        let request = templates::request(template).map_err(unwritable(action))?;
        let answer = self.answer(action, request.send_with(&self.client).await)?;
        crate::reading::required(answer.launch_template, "LaunchTemplate")
            .and_then(|made| templates::template(&made))
            .map_err(|malformed| malformed.into_error(action))
    }

    async fn describe_launch_templates(
        &self,
        filter: &LaunchTemplateFilter,
        page: Option<PageToken>,
    ) -> Result<Page<LaunchTemplate>, Ec2Error> {
        let action = "DescribeLaunchTemplates";
        let call = self
            .client
            .describe_launch_templates()
            .set_max_results(size(TEMPLATES_PAGE, filter.names.len()))
            .set_launch_template_names(list(filter.names.clone()))
            .set_filters(list(filters::tags(&filter.tags)))
            .set_next_token(token(page));
        let answer = self.answer(action, call.send().await)?;
        let items = read(action, answer.launch_templates(), templates::template)?;
        Ok(Page { items, next: next(answer.next_token.as_deref()) })
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), Ec2Error> {
        let call = self.client.delete_launch_template().launch_template_name(name);
        self.answer("DeleteLaunchTemplate", call.send().await).map(|_| ())
    }

    async fn create_fleet(&self, request: &CreateFleetRequest) -> Result<FleetResult, Ec2Error> {
        let action = "CreateFleet";
        let call = fleet::request(request).map_err(unwritable(action))?;
        let answer = self.answer(action, call.send_with(&self.client).await)?;
        fleet::result(request, &answer).map_err(|malformed| malformed.into_error(action))
    }

    async fn dry_run_create_fleet(&self, request: &CreateFleetRequest) -> Result<DryRunOutcome, Ec2Error> {
        let action = "CreateFleet";
        let call = fleet::request(request).map_err(unwritable(action))?.dry_run(true);
        self.dry_run(action, call.send_with(&self.client).await)
    }

    async fn dry_run_run_instances(&self, probe: &RunInstancesProbe) -> Result<DryRunOutcome, Ec2Error> {
        let action = "RunInstances";
        let call = fleet::probe(probe).map_err(unwritable(action))?;
        self.dry_run(action, call.send_with(&self.client).await)
    }

    async fn describe_instances(
        &self,
        filter: &InstanceFilter,
        page: Option<PageToken>,
    ) -> Result<Page<Instance>, Ec2Error> {
        let action = "DescribeInstances";
        let ids: Vec<String> = filter.ids.iter().map(ToString::to_string).collect();
        let call = self
            .client
            .describe_instances()
            .set_max_results(size(LARGE_PAGE, ids.len()))
            .set_instance_ids(list(ids))
            .set_filters(list(filters::instances(filter)))
            .set_next_token(token(page));
        let answer = self.answer(action, call.send().await)?;
        let mut items = Vec::new();
        for reservation in answer.reservations() {
            items.extend(read(action, reservation.instances(), instances::instance)?);
        }
        Ok(Page { items, next: next(answer.next_token.as_deref()) })
    }

    async fn describe_instance_status(
        &self,
        filter: InstanceStatusFilter,
        page: Option<PageToken>,
    ) -> Result<Page<InstanceStatus>, Ec2Error> {
        let action = "DescribeInstanceStatus";
        let call = self
            .client
            .describe_instance_status()
            .max_results(LARGE_PAGE)
            .set_filters(list(filters::instance_status(filter)))
            .set_next_token(token(page));
        let answer = self.answer(action, call.send().await)?;
        let items = read(action, answer.instance_statuses(), instances::status)?;
        Ok(Page { items, next: next(answer.next_token.as_deref()) })
    }

    async fn console_output(&self, id: &InstanceId) -> Result<Option<String>, Ec2Error> {
        let action = "GetConsoleOutput";
        let call = self.client.get_console_output().instance_id(id.as_str());
        let answer = self.answer(action, call.send().await)?;
        let text = answer.output().map(instances::console).transpose();
        text.map_err(|malformed| malformed.into_error(action))
    }

    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<Vec<InstanceStateChange>, Ec2Error> {
        let action = "TerminateInstances";
        let ids = ids.iter().map(ToString::to_string).collect();
        let call = self.client.terminate_instances().set_instance_ids(Some(ids));
        let answer = self.answer(action, call.send().await)?;
        read(action, answer.terminating_instances(), instances::state_change)
    }

    async fn create_tags(&self, ids: &[InstanceId], tags: &Tags) -> Result<(), Ec2Error> {
        let ids = ids.iter().map(ToString::to_string).collect();
        let call =
            self.client.create_tags().set_resources(Some(ids)).set_tags(Some(templates::tag_list(tags)));
        self.answer("CreateTags", call.send().await).map(|_| ())
    }
}
