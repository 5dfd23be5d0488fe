//! Instance profiles as IAM tells them.

use tenon_domain::Timestamp;

/// An instance profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceProfileFacts {
    /// Its name, without its path.
    pub name: String,
    /// Its ARN, with its path.
    pub arn: String,
    /// The ARNs of its roles: none or one, by IAM's quota.
    pub roles: Vec<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
}
