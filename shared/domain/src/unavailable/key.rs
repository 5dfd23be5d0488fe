//! Keys of marks, and which of them concern an offering.
//!
//! Decides the keys' text, which is a contract: operators' queries use it. It doesn't decide which error marks which
//! key.
//!
//! Invariant: a key's text reads back as the key.

use std::fmt;

use crate::catalog::CapacityType;
use crate::class_status::ClassStatus;
use crate::digest::Digest;
use crate::id::{ClusterName, InstanceType, ReservationId, SubnetId, ZoneId};

/// Letters and digits of a request's digest.
const DIGEST_DIGITS: usize = 24;

/// A type in a zone, by how it is paid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferingKey {
    /// How it is paid.
    pub capacity_type: CapacityType,
    /// The zone.
    pub zone_id: ZoneId,
    /// The type.
    pub instance_type: InstanceType,
}

impl OfferingKey {
    /// The offering of that text; see its `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (capacity_type, rest) = text.split_once('#')?;
        let (zone_id, instance_type) = rest.split_once('#')?;
        Some(Self {
            capacity_type: CapacityType::parse(capacity_type)?,
            zone_id: ZoneId::parse(zone_id).ok()?,
            instance_type: InstanceType::parse(instance_type).ok()?,
        })
    }
}

/// `spot#use1-az1#m5.large`.
impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}#{}", self.capacity_type, self.zone_id, self.instance_type)
    }
}

/// The identity of equal requests: lower-case letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestDigest(String);

impl RequestDigest {
    /// The digest of a request's parts.
    #[must_use]
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self(Digest::of_texts(parts).base36(DIGEST_DIGITS))
    }

    /// Launches from a cluster's class, as it resolved: another spec or other images are another request.
    #[must_use]
    pub fn of_class(cluster: &ClusterName, class: &ClassStatus) -> Self {
        let images: Vec<&str> = class.images.iter().map(|image| image.id.as_str()).collect();
        Self::of([cluster.as_str(), class.name.as_str(), class.spec_digest.as_str(), &images.join(" ")])
    }

    /// The digest of that text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        (!text.is_empty() && text.chars().all(digits)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The subject of a mark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnavailableKey {
    /// A type in a zone, by how it is paid.
    Offering(OfferingKey),
    /// A quota on vCPUs of a family of types, by how they are paid.
    Quota {
        /// How they are paid.
        capacity_type: CapacityType,
        /// The types' family, such as `m5`.
        family: String,
    },
    /// A subnet's addresses.
    Subnet(SubnetId),
    /// A whole capacity type, such as spot while its service-linked role is missing.
    CapacityType(CapacityType),
    /// A capacity reservation.
    Reservation(ReservationId),
    /// A request that EC2 refuses, whatever the offering.
    Request(RequestDigest),
    /// An offering that isn't possible with such requests, such as a tenancy that the type lacks. Other requests,
    /// even of other clusters, may get it.
    RequestOffering {
        /// The requests.
        digest: RequestDigest,
        /// The offering.
        offering: OfferingKey,
    },
}

impl UnavailableKey {
    /// The quota of a type.
    #[must_use]
    pub fn quota(capacity_type: CapacityType, instance_type: &InstanceType) -> Self {
        Self::Quota { capacity_type, family: instance_type.family().to_owned() }
    }

    /// The kind's name in the key.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Offering(_) => "offering",
            Self::Quota { .. } => "quota",
            Self::Subnet(_) => "subnet",
            Self::CapacityType(_) => "capacity-type",
            Self::Reservation(_) => "reservation",
            Self::Request(_) | Self::RequestOffering { .. } => "request",
        }
    }

    /// The key of that text; see its `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('#')?;
        Some(match kind {
            "offering" => Self::Offering(OfferingKey::parse(rest)?),
            "quota" => {
                let (capacity_type, family) = rest.split_once('#')?;
                Self::Quota { capacity_type: CapacityType::parse(capacity_type)?, family: family.to_owned() }
            }
            "subnet" => Self::Subnet(SubnetId::parse(rest).ok()?),
            "capacity-type" => Self::CapacityType(CapacityType::parse(rest)?),
            "reservation" => Self::Reservation(ReservationId::parse(rest).ok()?),
            "request" => match rest.split_once('#') {
                None => Self::Request(RequestDigest::parse(rest)?),
                Some((digest, offering)) => Self::RequestOffering {
                    digest: RequestDigest::parse(digest)?,
                    offering: OfferingKey::parse(offering)?,
                },
            },
            _ => return None,
        })
    }

    /// Whether a mark on it blocks the offering. A launch chooses a zone's subnet later, so a subnet concerns no
    /// offering by itself.
    #[must_use]
    pub fn concerns(&self, wanted: &WantedOffering<'_>) -> bool {
        let offering = wanted.offering;
        match self {
            Self::Offering(key) => key == offering,
            Self::Quota { capacity_type, family: of } => {
                *capacity_type == offering.capacity_type && of == offering.instance_type.family()
            }
            Self::Subnet(_) => false,
            Self::CapacityType(capacity_type) => *capacity_type == offering.capacity_type,
            Self::Reservation(reservation) => wanted.reservation == Some(reservation),
            Self::Request(digest) => wanted.requests.contains(digest),
            Self::RequestOffering { digest, offering: key } => {
                key == offering && wanted.requests.contains(digest)
            }
        }
    }

    /// The family of the types that it is about; none if it isn't about types.
    pub(super) fn family(&self) -> Option<&str> {
        match self {
            Self::Offering(offering) | Self::RequestOffering { offering, .. } => {
                Some(offering.instance_type.family())
            }
            Self::Quota { family, .. } => Some(family),
            Self::Subnet(_) | Self::CapacityType(_) | Self::Reservation(_) | Self::Request(_) => None,
        }
    }
}

/// `offering#spot#use1-az1#m5.large`: the text after `UNAVAILABLE#` in the table.
impl fmt::Display for UnavailableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#", self.kind())?;
        match self {
            Self::Offering(offering) => write!(f, "{offering}"),
            Self::Quota { capacity_type, family } => write!(f, "{capacity_type}#{family}"),
            Self::Subnet(subnet) => write!(f, "{subnet}"),
            Self::CapacityType(capacity_type) => write!(f, "{capacity_type}"),
            Self::Reservation(reservation) => write!(f, "{reservation}"),
            Self::Request(digest) => write!(f, "{digest}"),
            Self::RequestOffering { digest, offering } => write!(f, "{digest}#{offering}"),
        }
    }
}

/// A way to have a node, with all of it that can be exhausted.
#[derive(Debug, Clone, Copy)]
pub struct WantedOffering<'a> {
    /// The offering.
    pub offering: &'a OfferingKey,
    /// The vCPUs of its type, for quotas.
    pub vcpus: u32,
    /// The identities of the request: by its class, by its pool.
    pub requests: &'a [RequestDigest],
    /// The reservation that it is taken from.
    pub reservation: Option<&'a ReservationId>,
}

impl<'a> WantedOffering<'a> {
    /// An offering of a type with so many vCPUs, and nothing else that can be exhausted.
    #[must_use]
    pub const fn new(offering: &'a OfferingKey, vcpus: u32) -> Self {
        Self { offering, vcpus, requests: &[], reservation: None }
    }
}
