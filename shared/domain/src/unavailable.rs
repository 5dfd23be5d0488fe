//! Marks: capacity that EC2 refused, by what was refused, for as long as asking again is pointless.
//!
//! Decides what can be marked and whether a mark holds at a moment. It doesn't decide how long one holds. Marks are
//! the region's: all clusters of an account share them, so they name zones by id.
//!
//! Invariant: a mark whose `until` has passed says nothing, whether or not its item is still there.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use crate::catalog::CapacityType;
use crate::id::{ClusterName, InstanceType, SubnetId, ZoneId};

/// What is exhausted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnavailableKey {
    /// A type in a zone, by how it is paid.
    Offering {
        /// How it is paid.
        capacity_type: CapacityType,
        /// The zone.
        zone_id: ZoneId,
        /// The type.
        instance_type: InstanceType,
    },
    /// A quota on vCPUs of a family of types, by how they are paid.
    Quota {
        /// How they are paid.
        capacity_type: CapacityType,
        /// The type's family, such as `m5`.
        family: String,
    },
    /// A subnet's addresses.
    Subnet(SubnetId),
    /// A whole capacity type, such as spot while its service-linked role is missing.
    CapacityType(CapacityType),
    /// A request that EC2 refuses for what it is, by its digest.
    Request(String),
}

impl UnavailableKey {
    /// The kind's name in the key.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Offering { .. } => "offering",
            Self::Quota { .. } => "quota",
            Self::Subnet(_) => "subnet",
            Self::CapacityType(_) => "capacity-type",
            Self::Request(_) => "request",
        }
    }

    /// The key of that text; see its `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('#')?;
        Some(match kind {
            "offering" => {
                let (capacity_type, rest) = rest.split_once('#')?;
                let (zone_id, instance_type) = rest.split_once('#')?;
                Self::Offering {
                    capacity_type: CapacityType::from_label(capacity_type)?,
                    zone_id: ZoneId::parse(zone_id).ok()?,
                    instance_type: InstanceType::parse(instance_type).ok()?,
                }
            }
            "quota" => {
                let (capacity_type, family) = rest.split_once('#')?;
                Self::Quota {
                    capacity_type: CapacityType::from_label(capacity_type)?,
                    family: family.to_owned(),
                }
            }
            "subnet" => Self::Subnet(SubnetId::parse(rest).ok()?),
            "capacity-type" => Self::CapacityType(CapacityType::from_label(rest)?),
            "request" => Self::Request(rest.to_owned()),
            _ => return None,
        })
    }
}

/// `offering#spot#use1-az1#m5.large`: what follows `UNAVAILABLE#` in the table.
impl fmt::Display for UnavailableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#", self.kind())?;
        match self {
            Self::Offering { capacity_type, zone_id, instance_type } => {
                write!(f, "{}#{zone_id}#{instance_type}", capacity_type.as_str())
            }
            Self::Quota { capacity_type, family } => write!(f, "{}#{family}", capacity_type.as_str()),
            Self::Subnet(subnet) => write!(f, "{subnet}"),
            Self::CapacityType(capacity_type) => f.write_str(capacity_type.as_str()),
            Self::Request(digest) => f.write_str(digest),
        }
    }
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// What is exhausted.
    pub key: UnavailableKey,
    /// EC2's code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// How often it was refused since `since`.
    pub count: u32,
    /// When it was refused first.
    pub since: Timestamp,
    /// Until when asking again is pointless.
    pub until: Timestamp,
    /// The cluster whose request was refused last.
    pub seen_by: ClusterName,
}

impl Unavailable {
    /// Whether the mark holds.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// All marks of a region, by what is exhausted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks(BTreeMap<UnavailableKey, Unavailable>);

impl FromIterator<Unavailable> for Marks {
    fn from_iter<I: IntoIterator<Item = Unavailable>>(marks: I) -> Self {
        Self(marks.into_iter().map(|mark| (mark.key.clone(), mark)).collect())
    }
}

impl Marks {
    /// The mark that holds for exactly this.
    #[must_use]
    pub fn of(&self, key: &UnavailableKey, now: Timestamp) -> Option<&Unavailable> {
        self.0.get(key).filter(|mark| mark.holds(now))
    }

    /// The first mark that holds for an offering: its own, its family's quota's, its capacity type's.
    #[must_use]
    pub fn of_offering(
        &self,
        capacity_type: CapacityType,
        zone_id: &ZoneId,
        instance_type: &InstanceType,
        now: Timestamp,
    ) -> Option<&Unavailable> {
        let family = instance_type.as_str().split('.').next().unwrap_or_default().to_owned();
        let keys = [
            UnavailableKey::Offering {
                capacity_type,
                zone_id: zone_id.clone(),
                instance_type: instance_type.clone(),
            },
            UnavailableKey::Quota { capacity_type, family },
            UnavailableKey::CapacityType(capacity_type),
        ];
        keys.iter().find_map(|key| self.of(key, now))
    }

    /// All marks, those that no longer hold among them, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Unavailable> {
        self.0.values()
    }

    /// When the next of the marks that hold ends.
    #[must_use]
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.values().filter(|mark| mark.holds(now)).map(|mark| mark.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn mark(key: &str, until: i64) -> Unavailable {
        Unavailable {
            key: UnavailableKey::parse(key).unwrap(),
            code: "InsufficientInstanceCapacity".to_owned(),
            count: 1,
            since: at(0),
            until: at(until),
            seen_by: ClusterName::parse("prod").unwrap(),
        }
    }

    #[test]
    fn keys_read_back() {
        for text in [
            "offering#spot#use1-az1#m5.large",
            "quota#on-demand#p4d",
            "subnet#subnet-0abc",
            "capacity-type#spot",
            "request#12ab",
        ] {
            assert_eq!(UnavailableKey::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(UnavailableKey::parse("offering#cheap#use1-az1#m5.large"), None);
    }

    fn check(marks: &[Unavailable], now: i64, expected: Option<&str>) {
        let marks: Marks = marks.iter().cloned().collect();
        let zone = ZoneId::parse("use1-az1").unwrap();
        let instance_type = InstanceType::parse("m5.large").unwrap();
        let found = marks.of_offering(CapacityType::Spot, &zone, &instance_type, at(now));
        assert_eq!(found.map(|mark| mark.key.to_string()).as_deref(), expected);
    }

    #[test]
    fn an_offering_is_marked_by_itself_its_family_or_its_capacity_type() {
        check(&[mark("offering#spot#use1-az1#m5.large", 10)], 9, Some("offering#spot#use1-az1#m5.large"));
        check(&[mark("offering#spot#use1-az1#m5.large", 10)], 10, None);
        check(&[mark("offering#spot#use1-az2#m5.large", 10)], 9, None);
        check(&[mark("quota#spot#m5", 10)], 9, Some("quota#spot#m5"));
        check(&[mark("quota#spot#m5a", 10)], 9, None);
        check(&[mark("capacity-type#spot", 10)], 9, Some("capacity-type#spot"));
    }
}
