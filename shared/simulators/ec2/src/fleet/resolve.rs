//! Whether an override of a fleet can be launched, apart from capacity.
//!
//! Decides the error of an override that can't: its type, image, subnet, zone, security groups, profile, placement and
//! reservation are looked at in this order.

use tenon_domain::catalog::facts::BootModes;
use tenon_domain::id::{ImageId, SecurityGroupId};
use tenon_domain::placement::LaunchPlacement;
use tenon_ec2::data;
use tenon_ec2::port::{
    BlockDeviceMapping, BootMode, FleetLaunchTemplate, FleetOverride, ImageArchitecture, ImageState,
    InstanceProfileSpec, InstanceTypeInfo, Subnet, TargetCapacityType,
};

use super::{OverrideError, item};
use crate::capacity::CapacityPool;
use crate::network::TwinSubnet;
use crate::reservations::CapacitySource;
use crate::state::TwinState;

/// An override with the template that it belongs to.
pub(super) struct FleetCandidate<'a> {
    pub(super) template: &'a FleetLaunchTemplate,
    pub(super) from: &'a FleetOverride,
}

/// A resolved override.
pub(super) struct Resolved {
    pub(super) pool: CapacityPool,
    pub(super) vcpus: u32,
    pub(super) architecture: ImageArchitecture,
    pub(super) subnet: Subnet,
    pub(super) image: ImageId,
    pub(super) security_groups: Vec<SecurityGroupId>,
    pub(super) user_data: Option<String>,
    pub(super) block_devices: Vec<BlockDeviceMapping>,
    pub(super) instance_profile: Option<InstanceProfileSpec>,
    pub(super) placement: Option<LaunchPlacement>,
    pub(super) source: CapacitySource,
}

impl TwinState {
    /// Whether an override can be launched from a template as on-demand, apart from capacity.
    pub(in super::super) fn check_override(
        &self,
        template: &str,
        from: &FleetOverride,
    ) -> Result<(), OverrideError> {
        let template = FleetLaunchTemplate {
            name: template.to_owned(),
            version: "$Latest".to_owned(),
            overrides: Vec::new(),
        };
        self.resolve(&FleetCandidate { template: &template, from }, TargetCapacityType::OnDemand).map(|_| ())
    }

    pub(super) fn resolve(
        &self,
        candidate: &FleetCandidate<'_>,
        capacity_type: TargetCapacityType,
    ) -> Result<Resolved, OverrideError> {
        let from = candidate.from;
        let name = &from.instance_type;
        let Some(info) = self.types.get(name) else {
            return item("InvalidParameterValue", format!("Invalid value '{name}' for InstanceType."));
        };
        let Some(template) = self.templates.get(&candidate.template.name) else {
            return item("InvalidLaunchTemplateName.NotFoundException", candidate.template.name.clone());
        };
        let Some(image) = from.image.as_ref().or(template.data.image.as_ref()) else {
            return item("MissingParameter", "The request must contain the parameter ImageId".to_owned());
        };
        let architecture = self.launchable(image, data::architectures(info))?;
        if let Some(because) = self.denied_images.get(image) {
            let message = format!("You are not authorized to perform this operation. {because}");
            return item("UnauthorizedOperation", message);
        }
        self.boots(image, info)?;
        let Some(subnet_id) = &from.subnet else {
            return item("MissingInput", "No subnets found for the default VPC".to_owned());
        };
        let Some(subnet) = self.subnets.get(subnet_id).map(TwinSubnet::view) else {
            return item("InvalidSubnetID.NotFound", format!("The subnet ID '{subnet_id}' does not exist"));
        };
        if from.zone.as_ref().is_some_and(|z| *z != subnet.zone) {
            let message = format!("The subnet '{subnet_id}' is not in the Availability Zone of the override");
            return item("InvalidParameterCombination", message);
        }
        let zone = subnet.zone.clone();
        if !self.offered.get(name).is_some_and(|zones| zones.contains(&zone)) {
            let message = format!(
                "Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone})."
            );
            return item("InvalidFleetConfiguration", message);
        }
        if !data::supports_usage_class(info, capacity_type.as_str()) {
            let message =
                format!("The instance type {name} cannot be launched as {}.", capacity_type.as_str());
            return item("Unsupported", message);
        }
        if let Some(group) = template.data.security_groups.iter().find(|g| !self.groups.contains_key(*g)) {
            return item("InvalidGroup.NotFound", format!("The security group '{group}' does not exist"));
        }
        self.usable_profile(template.data.instance_profile.as_ref())?;
        self.check_placement(template.data.placement.as_ref())?;
        let pool = CapacityPool { capacity_type, instance_type: name.clone(), zone };
        let source = self.source(&pool, template.data.reservations.as_ref())?;
        Ok(Resolved {
            pool,
            vcpus: data::vcpus(info),
            architecture,
            subnet,
            image: image.clone(),
            user_data: template.data.user_data.clone(),
            block_devices: template.data.block_devices.clone(),
            security_groups: template.data.security_groups.clone(),
            instance_profile: template.data.instance_profile.clone(),
            placement: template.data.placement.clone(),
            source,
        })
    }

    /// The architecture of an image that can be launched on such a type.
    fn launchable(&self, image: &ImageId, supported: &[String]) -> Result<ImageArchitecture, OverrideError> {
        let twin = self.images.get(image).map(|i| &i.image);
        match twin.map(|i| (i.state, i.architecture)) {
            None | Some((ImageState::Deregistered, _)) => {
                item("InvalidAMIID.NotFound", format!("The image id '[{image}]' does not exist"))
            }
            Some((ImageState::Available, Some(_))) if self.unshared.contains(image) => {
                item("AuthFailure", format!("Not authorized for images: [{image}]"))
            }
            Some((ImageState::Available, Some(architecture))) => {
                if supported.iter().any(|a| a == architecture.as_str()) {
                    return Ok(architecture);
                }
                let message = format!(
                    "The architecture '{}' of the specified instance type does not match the architecture '{}' of the specified AMI.",
                    supported.first().map_or("", String::as_str),
                    architecture.as_str()
                );
                item("InvalidParameterValue", message)
            }
            Some((state, _)) => item(
                "InvalidAMIID.Unavailable",
                format!("The image ID '{image}' is not available: it is {}", state.as_str()),
            ),
        }
    }

    /// Whether the type boots the image.
    fn boots(&self, image: &ImageId, info: &InstanceTypeInfo) -> Result<(), OverrideError> {
        let mode = self.images.get(image).and_then(|twin| twin.image.facts.boot_mode);
        if BootModes::from_ec2(info.supported_boot_modes.as_deref().unwrap_or_default()).boots(mode) {
            return Ok(());
        }
        let message = format!(
            "The {} instance type does not support an AMI with a boot mode of {}.",
            info.instance_type.as_deref().unwrap_or_default(),
            mode.map_or("", BootMode::as_str).to_uppercase(),
        );
        item("InvalidParameterValue", message)
    }
}
