//! By whose rights EC2 is asked for a cluster's launches.
//!
//! Decides it by the cluster's registry entry: by its launch role, or by the function's own rights where the cluster's
//! stack is of an earlier release and made none. It decides the words where neither helps. Reads are the function's
//! own.
//!
//! Invariant: a call for a cluster is never made by another cluster's role.

use tenon_domain::id::{ClusterName, InstanceId};
use tenon_ec2::port::{
    ASSUME_ROLE, CreateFleetRequest, CreateLaunchTemplate, DryRunOutcome, FleetResult, LaunchRole,
    LaunchTemplate, RunInstancesProbe, Tags,
};
use tenon_ec2::{Denial, DenialCause, Ec2, Ec2Error, Ec2Ports, LaunchRights};
use tenon_runtime::Ports;
use tenon_state::view::ClusterView;

/// EC2, as the launches of one cluster ask it.
pub(crate) enum Launcher<'a, E: Ec2Ports> {
    /// By its launch role.
    Role(<E as LaunchRights>::Launcher),
    /// By the function's own rights.
    Own(&'a E),
    /// Not at all: the role can't be had.
    Refused(Ec2Error),
}

impl<'a, E: Ec2Ports> Launcher<'a, E> {
    /// Takes the cluster's launch role.
    pub(crate) async fn of<P: Ports<Ec2 = E>>(
        ports: &'a P,
        cluster: &ClusterName,
        view: &ClusterView,
    ) -> Self {
        let arn = view.registry.as_ref().ok().and_then(|entry| entry.launch_role.clone());
        let Some(arn) = arn else { return Self::Own(ports.ec2()) };
        let role = LaunchRole { arn, cluster: cluster.clone() };
        match ports.ec2().launching(&role).await {
            Ok(launcher) => Self::Role(launcher),
            Err(error) => Self::Refused(told(error, &role)),
        }
    }

    pub(crate) async fn create_launch_template(
        &self,
        template: &CreateLaunchTemplate,
    ) -> Result<LaunchTemplate, Ec2Error> {
        match self {
            Self::Role(ec2) => ec2.create_launch_template(template).await,
            Self::Own(ec2) => ec2.create_launch_template(template).await.map_err(without_role),
            Self::Refused(error) => Err(error.clone()),
        }
    }

    pub(crate) async fn create_fleet(&self, request: &CreateFleetRequest) -> Result<FleetResult, Ec2Error> {
        match self {
            Self::Role(ec2) => ec2.create_fleet(request).await,
            Self::Own(ec2) => ec2.create_fleet(request).await.map_err(without_role),
            Self::Refused(error) => Err(error.clone()),
        }
    }

    pub(crate) async fn dry_run_create_fleet(
        &self,
        request: &CreateFleetRequest,
    ) -> Result<DryRunOutcome, Ec2Error> {
        match self {
            Self::Role(ec2) => ec2.dry_run_create_fleet(request).await,
            Self::Own(ec2) => outcome_without_role(ec2.dry_run_create_fleet(request).await),
            Self::Refused(error) => Err(error.clone()),
        }
    }

    pub(crate) async fn dry_run_run_instances(
        &self,
        probe: &RunInstancesProbe,
    ) -> Result<DryRunOutcome, Ec2Error> {
        match self {
            Self::Role(ec2) => ec2.dry_run_run_instances(probe).await,
            Self::Own(ec2) => outcome_without_role(ec2.dry_run_run_instances(probe).await),
            Self::Refused(error) => Err(error.clone()),
        }
    }

    pub(crate) async fn create_tags(&self, ids: &[InstanceId], tags: &Tags) -> Result<(), Ec2Error> {
        match self {
            Self::Role(ec2) => ec2.create_tags(ids, tags).await,
            Self::Own(ec2) => ec2.create_tags(ids, tags).await,
            Self::Refused(error) => Err(error.clone()),
        }
    }
}

/// A denied role, with the remedy. Throttling and failures stay as they are: the next wake asks again.
fn told(error: Ec2Error, role: &LaunchRole) -> Ec2Error {
    let Ec2Error::Unauthorized { message, .. } = error else { return error };
    let remedy = format!(
        "can't take launch role `{}` of cluster `{}`: deploy the cluster's stack again, which makes the role and trusts \
         function `provisioner`",
        role.arn, role.cluster
    );
    Ec2Error::Unauthorized { action: ASSUME_ROLE.to_owned(), decoded: Some(remedy), message }
}

/// A call that the function has no right to: launches are for launch roles. What a policy denies explicitly stays so.
fn without_role(error: Ec2Error) -> Ec2Error {
    let Ec2Error::Unauthorized { action, decoded: None, message } = error else { return error };
    match Denial::read(&action, &message).cause {
        DenialCause::Denied(_) => Ec2Error::Unauthorized { action, decoded: None, message },
        DenialCause::NotAllowed(_) | DenialCause::Untold => {
            let remedy = "the cluster's registry entry names no launch role: update the cluster's stack, \
                          infra/cluster.yaml, to this release";
            Ec2Error::Unauthorized {
                action: ASSUME_ROLE.to_owned(),
                decoded: Some(remedy.to_owned()),
                message,
            }
        }
    }
}

/// The same of a dry run.
fn outcome_without_role(result: Result<DryRunOutcome, Ec2Error>) -> Result<DryRunOutcome, Ec2Error> {
    let Ok(DryRunOutcome::Unauthorized { action, decoded, message }) = &result else { return result };
    let (action, decoded, message) = (action.clone(), decoded.clone(), message.clone());
    let denied = without_role(Ec2Error::Unauthorized { action, decoded, message });
    if denied.without_launch_role().is_some() { Err(denied) } else { result }
}
