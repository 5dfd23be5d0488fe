//! EC2 behind a gate.

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::id::InstanceId;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::port::{
    ASSUME_ROLE, AvailabilityZone, CapacityReservation, CapacityReservationFilter, CreateFleetRequest,
    CreateLaunchTemplate, DryRunOutcome, FleetResult, Image, ImageFilter, Instance, InstanceFilter,
    InstanceProfileFacts, InstanceStateChange, InstanceStatus, InstanceStatusFilter, InstanceTypeInfo,
    LaunchRole, LaunchTemplate, LaunchTemplateFilter, LocationType, OnDemandPrice, Page, PageToken,
    Parameter, PlacementGroup, ResourceFilter, RunInstancesProbe, SecurityGroup, SpotPrice, Subnet, Tags,
    TypeOffering, VolumeSnapshot,
};
use tenon_ec2::{
    AuthorizationMessages, DecodedMessage, Ec2, Ec2Error, InstanceProfiles, LaunchRights, Parameters,
    Pricing, ZonalShift,
};
use tenon_twin::RegionTwin;

use crate::asked::AskedCall;
use crate::gate::{CallMoment, Passage, TaskGate};

/// The name of a launch role's rights, under which hooks hear the calls that a task makes by them.
pub const BY_LAUNCH_ROLE: &str = "launch";

/// The twin behind a task's gate.
#[derive(Clone)]
pub struct GatedEc2 {
    inner: RegionTwin,
    gate: TaskGate,
    /// By whose rights it asks: the task's, or a launch role's.
    rights: &'static str,
}

impl GatedEc2 {
    /// The twin behind a gate.
    #[must_use]
    pub const fn new(inner: RegionTwin, gate: TaskGate) -> Self {
        let rights = gate.task();
        Self { inner, gate, rights }
    }

    fn hear(&self, asked: AskedCall<'_>) {
        self.gate.hear_as(self.rights, asked);
    }

    async fn before(&self, call: &'static str, action: &str) -> Result<(), Ec2Error> {
        match self.gate.pass(call, CallMoment::Before).await {
            Passage::Pass | Passage::Conflict => Ok(()),
            Passage::Fail => Err(Ec2Error::Throttled { action: action.to_owned() }),
            Passage::Denied => Err(Ec2Error::Unauthorized {
                action: action.to_owned(),
                decoded: None,
                message: "You are not authorized to perform this operation.".to_owned(),
            }),
            Passage::Broken => Err(Ec2Error::ServerError {
                action: action.to_owned(),
                code: "InternalError".to_owned(),
                message: "An internal error has occurred.".to_owned(),
            }),
        }
    }

    async fn after(&self, call: &'static str, action: &str) -> Result<(), Ec2Error> {
        match self.gate.pass(call, CallMoment::After).await {
            Passage::Pass | Passage::Conflict => Ok(()),
            Passage::Fail | Passage::Denied | Passage::Broken => {
                Err(Ec2Error::NoAnswer { action: action.to_owned() })
            }
        }
    }
}

macro_rules! gated {
    ($port:ident { $($written_out:item)* } { $($action:literal $name:literal fn $call:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* }) => {
        impl $port for GatedEc2 {
            $(async fn $call(&self, $($arg: $type),*) -> Result<$answer, Ec2Error> {
                self.hear(AskedCall::Other($action));
                self.before($name, $action).await?;
                let answer = self.inner.$call($($arg),*).await?;
                self.after($name, $action).await?;
                Ok(answer)
            })*

            $($written_out)*
        }
    };
}

impl LaunchRights for GatedEc2 {
    type Launcher = Self;

    async fn launching(&self, role: &LaunchRole) -> Result<Self, Ec2Error> {
        self.hear(AskedCall::AssumeRole(role));
        self.before("sts.assume_role", ASSUME_ROLE).await?;
        let mut role = role.clone();
        self.gate.hooks().tamper_launch_role(&mut role);
        let inner = self.inner.launching(&role).await?;
        self.after("sts.assume_role", ASSUME_ROLE).await?;
        Ok(Self { inner, gate: self.gate.clone(), rights: BY_LAUNCH_ROLE })
    }
}

gated! {
    Ec2 {
        async fn describe_images(
            &self,
            filter: &ImageFilter,
            page: Option<PageToken>,
        ) -> Result<Page<Image>, Ec2Error> {
            self.hear(AskedCall::Other("DescribeImages"));
            self.before("ec2.describe_images", "DescribeImages").await?;
            let mut answer = self.inner.describe_images(filter, page).await?;
            self.gate.hooks().tamper_images(&mut answer.items);
            self.after("ec2.describe_images", "DescribeImages").await?;
            Ok(answer)
        }

        async fn describe_instances(
            &self,
            filter: &InstanceFilter,
            page: Option<PageToken>,
        ) -> Result<Page<Instance>, Ec2Error> {
            self.hear(AskedCall::Other("DescribeInstances"));
            self.before("ec2.describe_instances", "DescribeInstances").await?;
            let mut answer = self.inner.describe_instances(filter, page).await?;
            self.gate.hooks().tamper_instances(&mut answer.items);
            self.after("ec2.describe_instances", "DescribeInstances").await?;
            Ok(answer)
        }

        async fn describe_instance_status(
            &self,
            filter: InstanceStatusFilter,
            page: Option<PageToken>,
        ) -> Result<Page<InstanceStatus>, Ec2Error> {
            self.hear(AskedCall::Other("DescribeInstanceStatus"));
            self.before("ec2.describe_instance_status", "DescribeInstanceStatus").await?;
            let mut answer = self.inner.describe_instance_status(filter, page).await?;
            self.gate.hooks().tamper_statuses(&mut answer.items);
            self.after("ec2.describe_instance_status", "DescribeInstanceStatus").await?;
            Ok(answer)
        }

        async fn create_fleet(&self, request: &CreateFleetRequest) -> Result<FleetResult, Ec2Error> {
            self.hear(AskedCall::CreateFleet(request));
            self.before("ec2.create_fleet", "CreateFleet").await?;
            let mut request = request.clone();
            self.gate.hooks().tamper_fleet(&mut request);
            let answer = self.inner.create_fleet(&request).await?;
            self.after("ec2.create_fleet", "CreateFleet").await?;
            Ok(answer)
        }

        async fn dry_run_create_fleet(
            &self,
            request: &CreateFleetRequest,
        ) -> Result<DryRunOutcome, Ec2Error> {
            self.hear(AskedCall::DryRunFleet(request));
            self.before("ec2.dry_run_create_fleet", "CreateFleet").await?;
            let answer = self.inner.dry_run_create_fleet(request).await?;
            self.after("ec2.dry_run_create_fleet", "CreateFleet").await?;
            Ok(answer)
        }

        async fn dry_run_run_instances(
            &self,
            probe: &RunInstancesProbe,
        ) -> Result<DryRunOutcome, Ec2Error> {
            self.hear(AskedCall::DryRunInstances(probe));
            self.before("ec2.dry_run_run_instances", "RunInstances").await?;
            let answer = self.inner.dry_run_run_instances(probe).await?;
            self.after("ec2.dry_run_run_instances", "RunInstances").await?;
            Ok(answer)
        }

        async fn create_launch_template(
            &self,
            template: &CreateLaunchTemplate,
        ) -> Result<LaunchTemplate, Ec2Error> {
            self.hear(AskedCall::CreateLaunchTemplate(template));
            self.before("ec2.create_launch_template", "CreateLaunchTemplate").await?;
            let answer = self.inner.create_launch_template(template).await?;
            self.after("ec2.create_launch_template", "CreateLaunchTemplate").await?;
            Ok(answer)
        }

        async fn terminate_instances(
            &self,
            ids: &[InstanceId],
        ) -> Result<Vec<InstanceStateChange>, Ec2Error> {
            self.hear(AskedCall::TerminateInstances(ids));
            self.before("ec2.terminate_instances", "TerminateInstances").await?;
            let answer = self.inner.terminate_instances(ids).await?;
            self.after("ec2.terminate_instances", "TerminateInstances").await?;
            Ok(answer)
        }

        async fn create_tags(&self, ids: &[InstanceId], tags: &Tags) -> Result<(), Ec2Error> {
            self.hear(AskedCall::CreateTags(ids, tags));
            self.before("ec2.create_tags", "CreateTags").await?;
            self.inner.create_tags(ids, tags).await?;
            self.after("ec2.create_tags", "CreateTags").await
        }
    } {
        "DescribeInstanceTypes" "ec2.describe_instance_types"
            fn describe_instance_types(page: Option<PageToken>) -> Page<InstanceTypeInfo>;
        "DescribeInstanceTypeOfferings" "ec2.describe_instance_type_offerings"
            fn describe_instance_type_offerings(location: LocationType, page: Option<PageToken>) -> Page<TypeOffering>;
        "DescribeAvailabilityZones" "ec2.describe_availability_zones"
            fn describe_availability_zones() -> Vec<AvailabilityZone>;
        "DescribeSpotPriceHistory" "ec2.describe_spot_price_history"
            fn describe_spot_price_history(page: Option<PageToken>) -> Page<SpotPrice>;
        "DescribeSubnets" "ec2.describe_subnets"
            fn describe_subnets(filter: &ResourceFilter) -> Vec<Subnet>;
        "DescribeSecurityGroups" "ec2.describe_security_groups"
            fn describe_security_groups(filter: &ResourceFilter) -> Vec<SecurityGroup>;
        "DescribeSnapshots" "ec2.describe_snapshots"
            fn describe_snapshots(filter: &ResourceFilter) -> Vec<VolumeSnapshot>;
        "DescribeCapacityReservations" "ec2.describe_capacity_reservations"
            fn describe_capacity_reservations(filter: &CapacityReservationFilter) -> Vec<CapacityReservation>;
        "DescribePlacementGroups" "ec2.describe_placement_groups"
            fn describe_placement_groups(of: &PlacementGroupSelector) -> Vec<PlacementGroup>;
        "DescribeLaunchTemplates" "ec2.describe_launch_templates"
            fn describe_launch_templates(filter: &LaunchTemplateFilter, page: Option<PageToken>) -> Page<LaunchTemplate>;
        "DeleteLaunchTemplate" "ec2.delete_launch_template"
            fn delete_launch_template(name: &str) -> ();
        "GetConsoleOutput" "ec2.console_output"
            fn console_output(id: &InstanceId) -> Option<String>;
    }
}

gated! {
    Pricing {} {
        "GetProducts" "pricing.on_demand_prices"
            fn on_demand_prices(page: Option<PageToken>) -> Page<OnDemandPrice>;
    }
}

gated! {
    ZonalShift {} {
        "GetManagedResource" "zonal_shift.shifted_zones"
            fn shifted_zones(resource_arn: &str) -> Vec<ShiftedZone>;
    }
}

gated! {
    Parameters {
        async fn parameters(&self, names: &[String]) -> Result<Vec<Parameter>, Ec2Error> {
            self.hear(AskedCall::GetParameters(names));
            self.before("parameters.parameters", "GetParameters").await?;
            let answer = self.inner.parameters(names).await?;
            self.after("parameters.parameters", "GetParameters").await?;
            Ok(answer)
        }
    } {}
}

gated! {
    InstanceProfiles {
        async fn instance_profile(&self, name: &str) -> Result<InstanceProfileFacts, Ec2Error> {
            self.hear(AskedCall::GetInstanceProfile(name));
            self.before("instance_profiles.instance_profile", "GetInstanceProfile").await?;
            let answer = self.gate.hooks().tamper_profile(self.inner.instance_profile(name).await)?;
            self.after("instance_profiles.instance_profile", "GetInstanceProfile").await?;
            Ok(answer)
        }
    } {}
}

gated! {
    AuthorizationMessages {} {
        "DecodeAuthorizationMessage" "authorization_messages.decoded_message"
            fn decoded_message(encoded: &str) -> DecodedMessage;
    }
}
