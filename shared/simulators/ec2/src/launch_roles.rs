//! Launch roles of clusters: who may launch for which cluster.
//!
//! Decides it as the stacks' policies do, by the cluster's tag: a role makes and uses launch templates of its cluster,
//! launches with its cluster's tag, and tags its cluster's instances. Not modelled: the roles that it passes, images,
//! subnets and security groups.
//!
//! Invariant: once the account has a launch role, nobody launches by other rights.

use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::tags;
use tenon_ec2::port::{CreateFleetRequest, CreateLaunchTemplate, LaunchRole, RunInstancesProbe, Tags};
use tenon_ec2::{Ec2Error, LaunchRights};

use super::RegionTwin;
use super::buckets::Cost;
use super::call::Call;
use super::state::{TwinState, error};

/// The words of a denial by IAM.
const NOT_ALLOWED: &str =
    "You are not authorized to perform this operation because no identity-based policy allows it.";

impl RegionTwin {
    /// Makes a cluster's launch role, as the cluster's stack does.
    pub fn add_launch_role(&self, arn: &str, cluster: &ClusterName) {
        self.with(|state| state.launch_roles.insert(arn.to_owned(), cluster.clone()));
    }

    /// Deletes a launch role. Sessions of it stay.
    pub fn remove_launch_role(&self, arn: &str) {
        self.with(|state| state.launch_roles.remove(arn));
    }

    /// STS's AssumeRole: the account by the role's rights.
    ///
    /// # Errors [`Ec2Error`] as STS's: a role that doesn't exist is denied.
    pub fn assume_role(&self, arn: &str) -> Result<Self, Ec2Error> {
        let cluster = self.call(Call::AssumeRole, Cost::PLAIN, |state| {
            let found = state.launch_roles.get(arn).cloned();
            found.ok_or_else(|| {
                error(Call::AssumeRole, "AccessDenied", "not authorized to perform: sts:AssumeRole")
            })
        })?;
        Ok(Self { by: Some(cluster), ..self.clone() })
    }
}

impl LaunchRights for RegionTwin {
    type Launcher = Self;

    async fn launching(&self, role: &LaunchRole) -> Result<Self, Ec2Error> {
        self.assume_role(&role.arn)
    }
}

impl TwinState {
    /// CreateLaunchTemplate.
    pub(super) fn may_make(
        &self,
        by: Option<&ClusterName>,
        template: &CreateLaunchTemplate,
    ) -> Result<(), Ec2Error> {
        self.may_launch(Call::CreateLaunchTemplate, by, [&template.tags])
    }

    /// CreateFleet, from these templates.
    pub(super) fn may_create_fleet(
        &self,
        by: Option<&ClusterName>,
        request: &CreateFleetRequest,
    ) -> Result<(), Ec2Error> {
        let named = request.launch_templates.iter().map(|template| template.name.as_str());
        let templates = named.filter_map(|name| self.templates.get(name)).map(|known| &known.template.tags);
        let made = [&request.tags.fleet, &request.tags.instance, &request.tags.volume];
        self.may_launch(Call::CreateFleet, by, made.into_iter().chain(templates))
    }

    /// RunInstances, from this template.
    pub(super) fn may_run(
        &self,
        by: Option<&ClusterName>,
        probe: &RunInstancesProbe,
    ) -> Result<(), Ec2Error> {
        let template = self.templates.get(&probe.launch_template).map(|known| &known.template.tags);
        self.may_launch(Call::RunInstances, by, std::iter::once(&probe.tags.instance).chain(template))
    }

    /// CreateTags. Other functions have this right of their own.
    pub(super) fn may_tag(&self, by: Option<&ClusterName>, ids: &[InstanceId]) -> Result<(), Ec2Error> {
        if by.is_none() {
            return Ok(());
        }
        let known = ids.iter().filter_map(|id| self.instances.get(id)).map(|twin| &twin.instance().tags);
        self.may_launch(Call::CreateTags, by, known)
    }

    /// Whether these tags are the caller's cluster's.
    fn may_launch<'a>(
        &self,
        call: Call,
        by: Option<&ClusterName>,
        tagged: impl IntoIterator<Item = &'a Tags>,
    ) -> Result<(), Ec2Error> {
        let is_allowed = match by {
            None => self.launch_roles.is_empty(),
            Some(cluster) => tagged
                .into_iter()
                .all(|of| of.get(tags::CLUSTER).is_some_and(|name| name == cluster.as_str())),
        };
        if is_allowed { Ok(()) } else { Err(error(call, "UnauthorizedOperation", NOT_ALLOWED)) }
    }
}
