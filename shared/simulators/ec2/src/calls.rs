//! The ports on the twin: each call is admitted (meter, buckets, faults, rights), then answered from the state.

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::id::InstanceId;
use tenon_domain::zonal_shift::ShiftedZone;

use super::RegionTwin;
use super::buckets::{Cost, Narrowing};
use super::call::Call;
use super::faults::FaultEffect;
use super::state::{TwinState, error};
use tenon_ec2::data;
use tenon_ec2::port::{
    AvailabilityZone, CapacityReservation, CapacityReservationFilter, CreateFleetRequest,
    CreateLaunchTemplate, DryRunOutcome, Ec2, FleetResult, Image, ImageFilter, Instance, InstanceFilter,
    InstanceProfileFacts, InstanceProfiles, InstanceStateChange, InstanceStatus, InstanceStatusFilter,
    InstanceTypeInfo, LaunchTemplate, LaunchTemplateFilter, LocationType, OnDemandPrice, Page, PageToken,
    Parameter, Parameters, PlacementGroup, Pricing, ResourceFilter, RunInstancesProbe, SecurityGroup,
    SpotPrice, Subnet, Tags, TypeOffering, VolumeSnapshot, ZonalShift,
};
use tenon_ec2::{AuthorizationMessages, DecodedMessage, Ec2Error};

/// EC2's page sizes, as the adapters ask for them.
const TYPES_PAGE: usize = 100;
const TEMPLATES_PAGE: usize = 200;
const LARGE_PAGE: usize = 1000;

impl RegionTwin {
    /// Makes a call: its admission, its effect, its answer.
    pub(super) fn call<T>(
        &self,
        call: Call,
        cost: Cost,
        effect: impl FnOnce(&mut TwinState) -> Result<T, Ec2Error>,
    ) -> Result<T, Ec2Error> {
        self.with(|state| {
            let no_answer = || Err(Ec2Error::NoAnswer { action: call.as_str().to_owned() });
            match state.admit(call, cost)? {
                Some(FaultEffect::Refused(error)) => Err(error),
                Some(FaultEffect::RequestLost) => no_answer(),
                Some(FaultEffect::AnswerLost) => {
                    if state.authorise(call).is_ok() {
                        let _lost = effect(state);
                    }
                    no_answer()
                }
                None => {
                    state.authorise(call)?;
                    effect(state)
                }
            }
        })
    }

    /// A dry run: the rights are its outcome, and any other problem is an error.
    fn dry_run(
        &self,
        call: Call,
        cost: Cost,
        rights: impl FnOnce(&TwinState) -> Result<(), Ec2Error>,
        check: impl FnOnce(&TwinState) -> Result<(), Ec2Error>,
    ) -> Result<DryRunOutcome, Ec2Error> {
        self.with(|state| {
            match state.admit(call, cost)? {
                Some(FaultEffect::Refused(error)) => return Err(error),
                Some(FaultEffect::RequestLost | FaultEffect::AnswerLost) => {
                    return Err(Ec2Error::NoAnswer { action: call.as_str().to_owned() });
                }
                None => {}
            }
            if let Some(denied) = state.denied.get(&call) {
                return Ok(DryRunOutcome::Unauthorized {
                    action: call.as_str().to_owned(),
                    decoded: denied.decoded(),
                    message: denied.words(call),
                });
            }
            match rights(state) {
                Ok(()) => check(state).map(|()| DryRunOutcome::WouldSucceed),
                Err(Ec2Error::Unauthorized { action, decoded, message }) => {
                    Ok(DryRunOutcome::Unauthorized { action, decoded, message })
                }
                Err(other) => Err(other),
            }
        })
    }

    fn spot_prices(state: &TwinState) -> Vec<SpotPrice> {
        let mut all = Vec::new();
        for (instance_type, zones) in &state.offered {
            let spot = state.types.get(instance_type).is_some_and(|t| data::supports_usage_class(t, "spot"));
            let Some(on_demand) = state.on_demand.get(instance_type).filter(|_| spot) else { continue };
            for zone in zones {
                let price = state.spot_price(*on_demand, instance_type, zone);
                let since = state.priced_since();
                all.push(SpotPrice {
                    instance_type: instance_type.clone(),
                    zone: zone.clone(),
                    price,
                    since,
                });
            }
        }
        all
    }

    fn offerings(state: &TwinState, location: LocationType) -> Vec<TypeOffering> {
        let mut all = Vec::new();
        for (instance_type, zones) in &state.offered {
            for zone in state.zones.iter().filter(|z| zones.contains(&z.name)) {
                let location = match location {
                    LocationType::AvailabilityZone => zone.name.to_string(),
                    LocationType::AvailabilityZoneId => zone.id.to_string(),
                };
                all.push(TypeOffering { instance_type: instance_type.clone(), location });
            }
        }
        all.sort();
        all
    }
}

impl Ec2 for RegionTwin {
    async fn describe_instance_types(
        &self,
        page: Option<PageToken>,
    ) -> Result<Page<InstanceTypeInfo>, Ec2Error> {
        let call = Call::DescribeInstanceTypes;
        self.call(call, Cost::PLAIN, |state| {
            let all: Vec<_> = state.types.values().collect();
            let page = state.page(call, TYPES_PAGE, page.as_ref(), all)?;
            Ok(Page { items: page.items.into_iter().map(|t| (**t).clone()).collect(), next: page.next })
        })
    }

    async fn describe_instance_type_offerings(
        &self,
        location: LocationType,
        page: Option<PageToken>,
    ) -> Result<Page<TypeOffering>, Ec2Error> {
        let call = Call::DescribeInstanceTypeOfferings;
        self.call(call, Cost::PLAIN, |state| {
            state.page(call, LARGE_PAGE, page.as_ref(), Self::offerings(state, location))
        })
    }

    async fn describe_availability_zones(&self) -> Result<Vec<AvailabilityZone>, Ec2Error> {
        self.call(Call::DescribeAvailabilityZones, Cost::PLAIN, |state| Ok(state.zones.clone()))
    }

    async fn describe_spot_price_history(
        &self,
        page: Option<PageToken>,
    ) -> Result<Page<SpotPrice>, Ec2Error> {
        let call = Call::DescribeSpotPriceHistory;
        self.call(call, Cost::PLAIN, |state| {
            state.page(call, LARGE_PAGE, page.as_ref(), Self::spot_prices(state))
        })
    }

    async fn describe_images(
        &self,
        filter: &ImageFilter,
        page: Option<PageToken>,
    ) -> Result<Page<Image>, Ec2Error> {
        let call = Call::DescribeImages;
        self.call(call, Cost::PLAIN, |state| {
            state.page(call, LARGE_PAGE, page.as_ref(), state.images_matching(filter)?)
        })
    }

    async fn describe_subnets(&self, filter: &ResourceFilter) -> Result<Vec<Subnet>, Ec2Error> {
        self.call(Call::DescribeSubnets, Cost::PLAIN, |state| state.subnets_matching(filter))
    }

    async fn describe_security_groups(
        &self,
        filter: &ResourceFilter,
    ) -> Result<Vec<SecurityGroup>, Ec2Error> {
        let bare = *filter == ResourceFilter::default();
        let narrowing = if bare { Narrowing::None } else { Narrowing::FilteredOrPaged };
        let cost = Cost { narrowing, resources: 0 };
        self.call(Call::DescribeSecurityGroups, cost, |state| state.groups_matching(filter))
    }

    async fn describe_snapshots(&self, filter: &ResourceFilter) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
        self.call(Call::DescribeSnapshots, Cost::PLAIN, |state| state.snapshots_matching(filter))
    }

    async fn describe_capacity_reservations(
        &self,
        filter: &CapacityReservationFilter,
    ) -> Result<Vec<CapacityReservation>, Ec2Error> {
        let call = Call::DescribeCapacityReservations;
        self.call(call, Cost::PLAIN, |state| state.reservations_matching(filter))
    }

    async fn describe_placement_groups(
        &self,
        of: &PlacementGroupSelector,
    ) -> Result<Vec<PlacementGroup>, Ec2Error> {
        let call = Call::DescribePlacementGroups;
        self.call(call, Cost::PLAIN, |state| state.placement_groups_matching(of))
    }

    async fn create_launch_template(
        &self,
        template: &CreateLaunchTemplate,
    ) -> Result<LaunchTemplate, Ec2Error> {
        let by = self.by.as_ref();
        self.call(Call::CreateLaunchTemplate, Cost::PLAIN, |state| {
            state.may_make(by, template)?;
            state.create_template(template)
        })
    }

    async fn describe_launch_templates(
        &self,
        filter: &LaunchTemplateFilter,
        page: Option<PageToken>,
    ) -> Result<Page<LaunchTemplate>, Ec2Error> {
        let call = Call::DescribeLaunchTemplates;
        self.call(call, Cost::PLAIN, |state| {
            state.page(call, TEMPLATES_PAGE, page.as_ref(), state.templates_matching(filter)?)
        })
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), Ec2Error> {
        self.call(Call::DeleteLaunchTemplate, Cost::PLAIN, |state| state.delete_template(name))
    }

    async fn create_fleet(&self, request: &CreateFleetRequest) -> Result<FleetResult, Ec2Error> {
        let by = self.by.as_ref();
        self.call(Call::CreateFleet, Cost::PLAIN, |state| state.create_fleet(by, request))
    }

    async fn dry_run_create_fleet(&self, request: &CreateFleetRequest) -> Result<DryRunOutcome, Ec2Error> {
        let by = self.by.as_ref();
        self.dry_run(
            Call::CreateFleet,
            Cost::PLAIN,
            |state| state.may_create_fleet(by, request),
            |state| state.check_fleet(request),
        )
    }

    async fn dry_run_run_instances(&self, probe: &RunInstancesProbe) -> Result<DryRunOutcome, Ec2Error> {
        let call = Call::RunInstances;
        let cost = Cost { narrowing: Narrowing::FilteredOrPaged, resources: 1 };
        let rights = |state: &TwinState| state.may_run(self.by.as_ref(), probe);
        self.dry_run(call, cost, rights, |state| {
            state.template_version(call, &probe.launch_template, &probe.version)?;
            state
                .check_override(&probe.launch_template, &probe.with)
                .map_err(|(code, message)| error(call, &code, &message))
        })
    }

    async fn describe_instances(
        &self,
        filter: &InstanceFilter,
        page: Option<PageToken>,
    ) -> Result<Page<Instance>, Ec2Error> {
        // The port reads by pages, so it never pays for an unfiltered call.
        let call = Call::DescribeInstances;
        self.call(call, Cost::PLAIN, |state| {
            state.page(call, LARGE_PAGE, page.as_ref(), state.instances_matching(filter)?)
        })
    }

    async fn describe_instance_status(
        &self,
        filter: InstanceStatusFilter,
        page: Option<PageToken>,
    ) -> Result<Page<InstanceStatus>, Ec2Error> {
        let call = Call::DescribeInstanceStatus;
        self.call(call, Cost::PLAIN, |state| {
            state.page(call, LARGE_PAGE, page.as_ref(), state.statuses_matching(filter))
        })
    }

    async fn console_output(&self, id: &InstanceId) -> Result<Option<String>, Ec2Error> {
        self.call(Call::GetConsoleOutput, Cost::PLAIN, |state| state.console_of(id))
    }

    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<Vec<InstanceStateChange>, Ec2Error> {
        let cost = Cost { narrowing: Narrowing::FilteredOrPaged, resources: ids.len() };
        self.call(Call::TerminateInstances, cost, |state| state.terminate(ids))
    }

    async fn create_tags(&self, ids: &[InstanceId], tags: &Tags) -> Result<(), Ec2Error> {
        let by = self.by.as_ref();
        self.call(Call::CreateTags, Cost::PLAIN, |state| {
            state.may_tag(by, ids)?;
            state.create_tags(ids, tags)
        })
    }
}

impl Pricing for RegionTwin {
    async fn on_demand_prices(&self, page: Option<PageToken>) -> Result<Page<OnDemandPrice>, Ec2Error> {
        let call = Call::GetProducts;
        self.call(call, Cost::PLAIN, |state| {
            let known = state.types.keys().filter_map(|name| {
                let price = *state.on_demand.get(name)?;
                Some(OnDemandPrice { instance_type: name.clone(), price })
            });
            state.page(call, TYPES_PAGE, page.as_ref(), known.collect())
        })
    }
}

impl ZonalShift for RegionTwin {
    async fn shifted_zones(&self, resource_arn: &str) -> Result<Vec<ShiftedZone>, Ec2Error> {
        self.call(Call::GetManagedResource, Cost::PLAIN, |state| state.shifted_zones(resource_arn))
    }
}

impl Parameters for RegionTwin {
    async fn parameters(&self, names: &[String]) -> Result<Vec<Parameter>, Ec2Error> {
        self.call(Call::GetParameters, Cost::PLAIN, |state| state.parameters(names))
    }
}

impl InstanceProfiles for RegionTwin {
    async fn instance_profile(&self, name: &str) -> Result<InstanceProfileFacts, Ec2Error> {
        self.call(Call::GetInstanceProfile, Cost::PLAIN, |state| state.instance_profile(name))
    }
}

impl AuthorizationMessages for RegionTwin {
    async fn decoded_message(&self, encoded: &str) -> Result<DecodedMessage, Ec2Error> {
        self.call(Call::DecodeAuthorizationMessage, Cost::PLAIN, |state| state.decoded_message(encoded))
    }
}
