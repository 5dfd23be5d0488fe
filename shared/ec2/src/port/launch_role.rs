//! The role by whose rights EC2 is asked for a cluster's launches.
//!
//! Decides the name of its sessions. It doesn't decide which calls are made by it: the caller chooses EC2 by its own
//! rights or by the role's.

use std::future::Future;
use std::sync::Arc;

use tenon_domain::id::ClusterName;

use super::{Ec2, Ec2Account};
use crate::error::Ec2Error;

/// The call that takes a role, by its name in AWS STS.
pub const ASSUME_ROLE: &str = "AssumeRole";

/// The longest name of a session. Source: STS API Reference, `AssumeRole`, read 2026-11.
const LONGEST_SESSION: usize = 64;

/// A cluster's launch role, as its registry entry has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchRole {
    /// Its ARN.
    pub arn: String,
    /// The cluster.
    pub cluster: ClusterName,
}

impl LaunchRole {
    /// The name of its sessions, by which CloudTrail tells clusters apart: `tenon-<cluster>`, cut to what STS takes.
    #[must_use]
    pub fn session_name(&self) -> String {
        let allowed = |c: &char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(*c);
        format!("tenon-{}", self.cluster).chars().filter(allowed).take(LONGEST_SESSION).collect()
    }
}

/// EC2 by the rights of a launch role.
pub trait LaunchRights: Send + Sync {
    /// EC2's calls by these rights.
    type Launcher: Ec2;

    /// Takes the role. An implementation may keep what it got for as long as it is valid; otherwise it makes one
    /// request, [`ASSUME_ROLE`]. A role that doesn't exist is denied.
    fn launching(&self, role: &LaunchRole) -> impl Future<Output = Result<Self::Launcher, Ec2Error>> + Send;
}

impl<T: LaunchRights> LaunchRights for &T {
    type Launcher = T::Launcher;

    async fn launching(&self, role: &LaunchRole) -> Result<T::Launcher, Ec2Error> {
        (**self).launching(role).await
    }
}

impl<T: LaunchRights> LaunchRights for Arc<T> {
    type Launcher = T::Launcher;

    async fn launching(&self, role: &LaunchRole) -> Result<T::Launcher, Ec2Error> {
        (**self).launching(role).await
    }
}

impl<E, P, Z, S, I, A> LaunchRights for Ec2Account<E, P, Z, S, I, A>
where
    Self: Send + Sync,
    E: LaunchRights,
{
    type Launcher = E::Launcher;

    async fn launching(&self, role: &LaunchRole) -> Result<E::Launcher, Ec2Error> {
        self.ec2.launching(role).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_after_its_cluster_as_sts_takes_it() {
        let named = |cluster: &str| {
            let role = LaunchRole { arn: String::new(), cluster: ClusterName::parse(cluster).unwrap() };
            role.session_name()
        };
        assert_eq!(named("prod"), "tenon-prod");
        assert_eq!(named("Team_1-prod"), "tenon-Team_1-prod");
        let long = named(&"a".repeat(100));
        assert_eq!((long.len(), long.starts_with("tenon-aaa")), (64, true));
    }
}
