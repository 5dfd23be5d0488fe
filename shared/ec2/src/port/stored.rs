//! The stored form of a fleet request: committed before it is sent, and replayed after an interruption.
//!
//! Invariant: one request has one text, byte for byte, in every release that writes version 1; EC2 answers
//! `IdempotentParameterMismatch` to anything else. Fields are in the order of the struct; tags are sorted by key.

use serde::{Deserialize, Serialize};
use tenon_domain::id::{ClientToken, ImageId, InstanceType, ParseIdError, SubnetId, Zone};

use super::{
    CreateFleetRequest, FleetLaunchTemplate, FleetOverride, FleetTags, OnDemandAllocation, SpotAllocation,
    Tags, TargetCapacityType,
};

/// The version of the form, the only one that can be read.
const VERSION: u32 = 1;

/// A stored request that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredRequestError {
    /// It doesn't have the expected form.
    #[error("can't read the stored fleet request")]
    Form(#[source] serde_json::Error),
    /// This release can't read its version.
    #[error(
        "stored fleet request has version `{0}`, this release reads `1`: finish it with the release that wrote it"
    )]
    Version(u32),
    /// An id in it is malformed.
    #[error("malformed id in the stored fleet request")]
    Id(#[source] ParseIdError),
    /// An unknown capacity type.
    #[error("`{0}` in the stored fleet request isn't a capacity type")]
    CapacityType(String),
}

#[derive(Serialize, Deserialize)]
struct StoredFleet {
    v: u32,
    client_token: String,
    target_capacity: u32,
    capacity_type: String,
    on_demand_allocation: OnDemand,
    spot_allocation: Spot,
    launch_templates: Vec<StoredTemplateConfig>,
    instance_tags: Tags,
    volume_tags: Tags,
    fleet_tags: Tags,
    context: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnDemand {
    LowestPrice,
    Prioritized,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Spot {
    LowestPrice,
    PriceCapacityOptimized,
    CapacityOptimizedPrioritized,
}

#[derive(Serialize, Deserialize)]
struct StoredTemplateConfig {
    name: String,
    version: String,
    overrides: Vec<Override>,
}

#[derive(Serialize, Deserialize)]
struct Override {
    instance_type: String,
    subnet: Option<String>,
    zone: Option<String>,
    image: Option<String>,
    priority: Option<u32>,
}

impl CreateFleetRequest {
    /// The request's stored form: versioned JSON, the same bytes for the same request.
    #[must_use]
    pub fn to_stored(&self) -> String {
        let stored = StoredFleet {
            v: VERSION,
            client_token: self.client_token.to_string(),
            target_capacity: self.target_capacity,
            capacity_type: self.capacity_type.as_str().to_owned(),
            on_demand_allocation: match self.on_demand_allocation {
                OnDemandAllocation::LowestPrice => OnDemand::LowestPrice,
                OnDemandAllocation::Prioritized => OnDemand::Prioritized,
            },
            spot_allocation: match self.spot_allocation {
                SpotAllocation::LowestPrice => Spot::LowestPrice,
                SpotAllocation::PriceCapacityOptimized => Spot::PriceCapacityOptimized,
                SpotAllocation::CapacityOptimizedPrioritized => Spot::CapacityOptimizedPrioritized,
            },
            launch_templates: self.launch_templates.iter().map(StoredTemplateConfig::from).collect(),
            instance_tags: self.tags.instance.clone(),
            volume_tags: self.tags.volume.clone(),
            fleet_tags: self.tags.fleet.clone(),
            context: self.context.clone(),
        };
        // The form has only strings, numbers and lists with text keys, which JSON always holds.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Reads a stored request.
    ///
    /// # Errors
    /// [`StoredRequestError`] for another version, form, or a malformed id.
    pub fn from_stored(text: &str) -> Result<Self, StoredRequestError> {
        #[derive(Deserialize)]
        struct StoredVersion {
            v: u32,
        }
        let version: StoredVersion = serde_json::from_str(text).map_err(StoredRequestError::Form)?;
        if version.v != VERSION {
            return Err(StoredRequestError::Version(version.v));
        }
        let stored: StoredFleet = serde_json::from_str(text).map_err(StoredRequestError::Form)?;
        let capacity_type = TargetCapacityType::parse(&stored.capacity_type)
            .ok_or(StoredRequestError::CapacityType(stored.capacity_type))?;
        Ok(Self {
            client_token: ClientToken::parse(stored.client_token).map_err(StoredRequestError::Id)?,
            target_capacity: stored.target_capacity,
            capacity_type,
            on_demand_allocation: match stored.on_demand_allocation {
                OnDemand::LowestPrice => OnDemandAllocation::LowestPrice,
                OnDemand::Prioritized => OnDemandAllocation::Prioritized,
            },
            spot_allocation: match stored.spot_allocation {
                Spot::LowestPrice => SpotAllocation::LowestPrice,
                Spot::PriceCapacityOptimized => SpotAllocation::PriceCapacityOptimized,
                Spot::CapacityOptimizedPrioritized => SpotAllocation::CapacityOptimizedPrioritized,
            },
            launch_templates: stored
                .launch_templates
                .into_iter()
                .map(StoredTemplateConfig::parse)
                .collect::<Result<_, _>>()
                .map_err(StoredRequestError::Id)?,
            tags: FleetTags {
                instance: stored.instance_tags,
                volume: stored.volume_tags,
                fleet: stored.fleet_tags,
            },
            context: stored.context,
        })
    }
}

impl From<&FleetLaunchTemplate> for StoredTemplateConfig {
    fn from(template: &FleetLaunchTemplate) -> Self {
        let overrides = template.overrides.iter().map(|o| Override {
            instance_type: o.instance_type.to_string(),
            subnet: o.subnet.as_ref().map(ToString::to_string),
            zone: o.zone.as_ref().map(ToString::to_string),
            image: o.image.as_ref().map(ToString::to_string),
            priority: o.priority,
        });
        Self {
            name: template.name.clone(),
            version: template.version.clone(),
            overrides: overrides.collect(),
        }
    }
}

impl StoredTemplateConfig {
    fn parse(self) -> Result<FleetLaunchTemplate, ParseIdError> {
        let parse = |o: Override| {
            Ok(FleetOverride {
                instance_type: InstanceType::parse(o.instance_type)?,
                subnet: o.subnet.map(SubnetId::parse).transpose()?,
                zone: o.zone.map(Zone::parse).transpose()?,
                image: o.image.map(ImageId::parse).transpose()?,
                priority: o.priority,
            })
        };
        let overrides = self.overrides.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(FleetLaunchTemplate { name: self.name, version: self.version, overrides })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../golden/create-fleet-request.v1.json");

    fn request() -> CreateFleetRequest {
        CreateFleetRequest {
            client_token: ClientToken::parse("token-1").unwrap(),
            target_capacity: 2,
            capacity_type: TargetCapacityType::Spot,
            on_demand_allocation: OnDemandAllocation::LowestPrice,
            spot_allocation: SpotAllocation::PriceCapacityOptimized,
            launch_templates: vec![FleetLaunchTemplate {
                name: "tenon-abc".to_owned(),
                version: "$Latest".to_owned(),
                overrides: vec![FleetOverride {
                    instance_type: InstanceType::parse("m5.large").unwrap(),
                    subnet: Some(SubnetId::parse("subnet-1").unwrap()),
                    zone: Some(Zone::parse("us-east-1a").unwrap()),
                    image: Some(ImageId::parse("ami-1").unwrap()),
                    priority: None,
                }],
            }],
            tags: FleetTags {
                instance: Tags::from([("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]),
                volume: Tags::new(),
                fleet: Tags::new(),
            },
            context: None,
        }
    }

    #[test]
    fn the_stored_form_is_the_golden_file_byte_for_byte() {
        assert_eq!(request().to_stored(), GOLDEN.trim_end());
    }

    #[test]
    fn a_stored_request_reads_back_as_it_was() {
        assert_eq!(CreateFleetRequest::from_stored(GOLDEN).unwrap(), request());
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let error = CreateFleetRequest::from_stored(r#"{"v":7}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "stored fleet request has version `7`, this release reads `1`: finish it with the release that wrote it"
        );
    }
}
