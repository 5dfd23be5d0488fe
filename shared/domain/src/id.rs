//! Identifiers: newtypes from one module, parsed at the edge and trusted inside.
//!
//! Decides whether an identifier is well-formed, not whether its object exists.

use std::fmt;
use std::sync::Arc;

/// A malformed identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a valid {kind}: expected {expected}")]
pub struct ParseIdError {
    /// The kind of identifier, in the field's words.
    pub kind: &'static str,
    /// The text as given.
    pub value: String,
    /// The expected form.
    pub expected: &'static str,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $expected:literal, $check:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the identifier; the only way to make one.
            ///
            /// # Errors
            /// [`ParseIdError`] when the text doesn't have the expected form.
            pub fn parse(text: impl Into<String>) -> Result<Self, ParseIdError> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) {
                    Ok(Self(text.into()))
                } else {
                    Err(ParseIdError { kind: $kind, value: text, expected: $expected })
                }
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Self::parse(text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::manifest::fields::parsed(deserializer, Self::parse)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )*};
}

ids! {
    /// The name of a cluster, as EKS admits it.
    ClusterName, "cluster name", "1 to 100 letters, digits, `-` and `_`, beginning with a letter or digit",
        |t| (1..=100).contains(&t.len()) && t.starts_with(|c: char| c.is_ascii_alphanumeric())
            && t.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    /// An installation of Tenon: every key, tag and event carries it.
    InstallationId, "installation id", "1 to 32 lower-case letters, digits and `-`",
        |t| (1..=32).contains(&t.len()) && t.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    /// An AWS region, such as `us-east-1`.
    Region, "region", "a region such as `us-east-1`",
        |t| t.split('-').count() >= 3 && t.len() <= 32 && t.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    /// A zone's name in this account, such as `us-east-1a`.
    Zone, "zone", "a zone such as `us-east-1a`", |t| !t.is_empty() && t.len() <= 63 && t.is_ascii();
    /// A zone's id, the same in every account, such as `use1-az1`.
    ZoneId, "zone id", "a zone id such as `use1-az1`", |t| !t.is_empty() && t.len() <= 63 && t.is_ascii();
    /// An EC2 instance, `i-…`.
    InstanceId, "instance id", "`i-` and hexadecimal digits",
        |t| prefixed(t, "i-") && t.chars().skip(2).all(|c| c.is_ascii_hexdigit());
    /// An Amazon Machine Image, `ami-…`.
    ImageId, "image id", "`ami-` and letters or digits", |t| prefixed(t, "ami-");
    /// A subnet, `subnet-…`.
    SubnetId, "subnet id", "`subnet-` and letters or digits", |t| prefixed(t, "subnet-");
    /// A security group, `sg-…`.
    SecurityGroupId, "security group id", "`sg-` and letters or digits", |t| prefixed(t, "sg-");
    /// A capacity reservation, `cr-…`.
    ReservationId, "capacity reservation id", "`cr-` and letters or digits", |t| prefixed(t, "cr-");
    /// A placement group, `pg-…`.
    PlacementGroupId, "placement group id", "`pg-` and letters or digits", |t| prefixed(t, "pg-");
    /// An EC2 fleet, `fleet-…`.
    FleetId, "fleet id", "`fleet-` and letters, digits or `-`", |t| t.len() > 6 && t.starts_with("fleet-");
    /// An instance type, such as `m5.large`.
    InstanceType, "instance type", "a family and a size such as `m5.large`",
        |t| t.split_once('.').is_some_and(|(f, s)| !f.is_empty() && !s.is_empty()) && t.len() <= 63
            && t.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.');
    /// A NodePool's name.
    NodePoolName, "NodePool name", "a DNS subdomain name", is_dns_subdomain;
    /// An EC2NodeClass's name.
    NodeClassName, "EC2NodeClass name", "a DNS subdomain name", is_dns_subdomain;
    /// A NodeClaim's name, `<pool>-<five characters>`.
    ClaimName, "NodeClaim name", "a DNS subdomain name", is_dns_subdomain;
    /// A Node's name.
    NodeName, "Node name", "a DNS subdomain name", is_dns_subdomain;
    /// A launch: one CreateFleet request for equal claims.
    LaunchId, "launch id", "`launch-` and lower-case letters or digits", |t| prefixed(t, "launch-");
    /// A disruption command.
    CommandId, "command id", "`command-` and lower-case letters or digits", |t| prefixed(t, "command-");
    /// A client token of EC2: at most 64 ASCII characters.
    ClientToken, "client token", "1 to 64 ASCII characters", |t| (1..=64).contains(&t.len()) && t.is_ascii();
    /// The UID of a Kubernetes object.
    Uid, "UID", "1 to 128 characters", |t| (1..=128).contains(&t.len());
}

fn prefixed(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    })
}

/// RFC 1123 subdomain, the form of most object names in Kubernetes.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_label_part)
}

fn is_dns_label_part(part: &str) -> bool {
    let alnum = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(alnum) && part.ends_with(alnum) && part.chars().all(|c| alnum(c) || c == '-')
}

/// A namespaced object's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Node's `spec.providerID`: `aws:///<zone>/<instance>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId {
    /// The zone's name.
    pub zone: Zone,
    /// The instance.
    pub instance: InstanceId,
}

impl ProviderId {
    /// Parses `aws:///<zone>/<instance>`.
    ///
    /// # Errors
    /// [`ParseIdError`] for any other form.
    pub fn parse(text: &str) -> Result<Self, ParseIdError> {
        let wrong = || ParseIdError {
            kind: "providerID",
            value: text.to_owned(),
            expected: "`aws:///<zone>/<instance id>`",
        };
        let (zone, instance) =
            text.strip_prefix("aws:///").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        Ok(Self { zone: Zone::parse(zone)?, instance: InstanceId::parse(instance)? })
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aws:///{}/{}", self.zone, self.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_id_round_trips() {
        let id = ProviderId::parse("aws:///us-east-1a/i-0123abc").unwrap();
        assert_eq!(id.to_string(), "aws:///us-east-1a/i-0123abc");
        assert!(ProviderId::parse("gce:///a/b").is_err());
        assert!(ProviderId::parse("aws:///us-east-1a/i-nosuch").is_err());
    }

    #[test]
    fn a_malformed_id_names_kind_value_and_form() {
        let error = ImageId::parse("image-1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`image-1` is not a valid image id: expected `ami-` and letters or digits"
        );
    }
}
