//! Launch roles of clusters: who may launch for which cluster.
//!
//! Decides it as the stacks' policies do, by the cluster's tag: a role makes and uses launch templates of its cluster,
//! launches with its cluster's tag, and tags its cluster's instances. A template that launches don't find yet has no tag,
//! so it is denied by words that name none. Not modelled: the roles that it passes, images,
//! subnets and security groups.
//!
//! Invariant: once the account has a launch role, nobody launches by other rights.

use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::{SignedDuration, Timestamp, tags};
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

    /// Hides each new template from launches by a role for that long.
    pub fn hide_new_templates(&self, unseen_for: SignedDuration) {
        self.with(|state| state.templates_unseen_for = unseen_for);
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
        self.sees_templates(Call::CreateFleet, by, named.clone())?;
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
        self.sees_templates(Call::RunInstances, by, [probe.launch_template.as_str()])?;
        let template = self.templates.get(&probe.launch_template).map(|known| &known.template.tags);
        let made = [&probe.tags.instance, &probe.tags.volume, &probe.network_interface_tags];
        // A spot request may be without tags.
        let spot = (!probe.spot_request_tags.is_empty()).then_some(&probe.spot_request_tags);
        self.may_launch(Call::RunInstances, by, made.into_iter().chain(spot).chain(template))
    }

    /// CreateTags. Other functions have this right of their own.
    pub(super) fn may_tag(&self, by: Option<&ClusterName>, ids: &[InstanceId]) -> Result<(), Ec2Error> {
        if by.is_none() {
            return Ok(());
        }
        let known = ids.iter().filter_map(|id| self.instances.get(id)).map(|twin| &twin.instance().tags);
        self.may_launch(Call::CreateTags, by, known)
    }

    /// Whether launches by a role find these templates.
    fn sees_templates<'a>(
        &self,
        call: Call,
        by: Option<&ClusterName>,
        named: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Ec2Error> {
        let is_new = |at: Timestamp| self.now.duration_since(at) < self.templates_unseen_for;
        let mut found = named.into_iter().filter_map(|name| self.templates.get(name));
        if by.is_none() || !found.any(|known| is_new(known.template.created_at)) {
            return Ok(());
        }
        let action = call.as_str();
        let words = format!(
            "You are not authorized to perform this operation. User: arn:aws:sts::111122223333:assumed-role/launch/tenon \
             is not authorized to perform: ec2:{action} on resource: \
             arn:aws:ec2:us-east-1:111122223333:launch-template/* because no identity-based policy allows the \
             ec2:{action} action."
        );
        Err(error(call, "UnauthorizedOperation", &words))
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
