//! Instance profiles of the twin, and whether a launch may name them.
//!
//! Decides when a new profile, or a change of its role, has reached EC2: IAM is consistent only after a while. Not
//! modelled: paths, a delay of IAM's own answers, roles apart from their names.
//!
//! Sources: IAM's user guide, "Changes that I make are not always immediately visible"; messages of refused launches in
//! aws/karpenter-provider-aws and hashicorp/terraform-provider-aws (read November 2026).

use std::collections::BTreeMap;

use tenon_domain::partition::AwsPartition;
use tenon_domain::{SignedDuration, Timestamp};

use super::call::Call;
use super::fleet::{OverrideError, item};
use super::state::{TwinState, error, later};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{InstanceProfileFacts, InstanceProfileSpec};

/// What a profile is that nobody created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownProfiles {
    /// It is there, with the role of its name: for worlds that aren't about profiles.
    Assumed,
    /// It doesn't exist.
    Missing,
}

/// The age of profiles that were there before the world.
const OLD: SignedDuration = SignedDuration::from_hours(24);

/// A profile.
#[derive(Debug, Clone)]
pub(super) struct TwinProfile {
    role: Option<String>,
    created_at: Timestamp,
    /// When it was created, or its role was changed.
    changed_at: Timestamp,
}

/// Profiles by name; `None` is a deleted one.
pub(super) type Profiles = BTreeMap<String, Option<TwinProfile>>;

impl TwinState {
    /// GetInstanceProfile.
    pub(super) fn instance_profile(&self, name: &str) -> Result<InstanceProfileFacts, Ec2Error> {
        let refused = |code, message: &str| Err(error(Call::GetInstanceProfile, code, message));
        let allowed = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
        if !(1..=128).contains(&name.len()) || !name.chars().all(allowed) {
            return refused(
                "ValidationError",
                "The specified value for instanceProfileName is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-",
            );
        }
        let Some(profile) = self.profile(name) else {
            return refused("NoSuchEntity", &format!("Instance Profile {name} cannot be found."));
        };
        Ok(InstanceProfileFacts {
            name: name.to_owned(),
            arn: self.iam_arn("instance-profile", name),
            roles: profile.role.iter().map(|role| self.iam_arn("role", role)).collect(),
            created_at: Some(profile.created_at),
        })
    }

    /// A profile that exists.
    fn profile(&self, name: &str) -> Option<TwinProfile> {
        match (self.profiles.get(name), self.config.unknown_profiles) {
            (Some(profile), _) => profile.clone(),
            (None, UnknownProfiles::Assumed) => Some(TwinProfile::old(name, earlier(self.started_at, OLD))),
            (None, UnknownProfiles::Missing) => None,
        }
    }

    fn iam_arn(&self, kind: &str, name: &str) -> String {
        let (region, account) = (&self.config.region, &self.config.account);
        format!("arn:{}:iam::{account}:{kind}/{name}", AwsPartition::of(region).name)
    }

    /// Whether a launch may name a profile, as EC2 refuses it.
    pub(super) fn usable_profile(&self, named: Option<&InstanceProfileSpec>) -> Result<(), OverrideError> {
        let (field, what, given, name) = match named {
            None => return Ok(()),
            Some(InstanceProfileSpec::Name(name)) => ("name", "name", name, name.as_str()),
            Some(InstanceProfileSpec::Arn(arn)) => ("arn", "ARN", arn, self.profile_name(arn)),
        };
        let invalid = |why: &str| {
            let message =
                format!("Value ({given}) for parameter iamInstanceProfile.{field} is invalid. {why}");
            item("InvalidParameterValue", message)
        };
        match self.profile(name) {
            Some(profile) if later(profile.changed_at, self.config.profile_delay) > self.now => {
                invalid(&format!("Invalid IAM Instance Profile {what}"))
            }
            Some(TwinProfile { role: Some(_), .. }) => Ok(()),
            Some(TwinProfile { role: None, .. }) => {
                let arn = self.iam_arn("instance-profile", name);
                invalid(&format!("IAM Instance Profile \"{arn}\" has no associated IAM Roles"))
            }
            None => invalid(&format!("Invalid IAM Instance Profile {what}")),
        }
    }

    /// The name in an ARN of this account, whatever its path. Another account's profile is known by its ARN alone.
    fn profile_name<'a>(&self, arn: &'a str) -> &'a str {
        let path = arn.strip_prefix(&self.iam_arn("instance-profile", ""));
        path.map_or(arn, |path| path.rsplit('/').next().unwrap_or(path))
    }

    /// Puts a profile there that has been usable for long.
    pub(super) fn add_profile(&mut self, name: &str, role: &str) {
        let profile = TwinProfile::old(role, earlier(self.started_at, OLD));
        self.profiles.insert(name.to_owned(), Some(profile));
    }

    pub(super) fn create_profile(&mut self, name: &str) -> Result<(), NotPossible> {
        if self.profiles.get(name).is_some_and(Option::is_some) {
            return refuse(format!("there is an instance profile `{name}`"));
        }
        let made = TwinProfile { role: None, created_at: self.now, changed_at: self.now };
        self.profiles.insert(name.to_owned(), Some(made));
        Ok(())
    }

    pub(super) fn delete_profile(&mut self, name: &str) -> Result<(), NotPossible> {
        if self.profile(name).is_none() {
            return refuse(format!("there is no instance profile `{name}`"));
        }
        self.profiles.insert(name.to_owned(), None);
        Ok(())
    }

    /// Gives a profile its role, or takes it away.
    pub(super) fn set_profile_role(&mut self, name: &str, role: Option<&str>) -> Result<(), NotPossible> {
        let Some(mut profile) = self.profile(name) else {
            return refuse(format!("there is no instance profile `{name}`"));
        };
        if role.is_some() == profile.role.is_some() {
            let has = if role.is_some() { "has a role already" } else { "has no role" };
            return refuse(format!("instance profile `{name}` {has}"));
        }
        profile.role = role.map(str::to_owned);
        profile.changed_at = self.now;
        self.profiles.insert(name.to_owned(), Some(profile));
        Ok(())
    }
}

impl TwinProfile {
    fn old(role: &str, created_at: Timestamp) -> Self {
        Self { role: Some(role.to_owned()), created_at, changed_at: created_at }
    }
}

/// The moment so much earlier; the beginning of time where there is none.
fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
