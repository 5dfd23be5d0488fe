//! Control and inspection of the twin for worlds, tours and tests: not EC2's interface, and not metered.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_domain::Timestamp;
use tenon_domain::id::{
    ImageId, InstanceId, InstanceType, PlacementGroupId, ReservationId, SubnetId, Zone, ZoneId,
};
use tenon_domain::money::UsdPerHour;
use tenon_domain::zonal_shift::ShiftEnd;

use super::denials::DeniedCall;
use super::prices::HeldPrices;
use super::records::{CallCount, InstanceRecord, LaunchRecord, RequestRecord};
use super::{
    Call, CapacityPool, Fault, HealthEvent, ImageDefect, Impairment, NewImage, NotPossible, PublishedFamily,
    Quota, RegionTwin, TwinEvent,
};
use tenon_ec2::port::{
    CapacityReservation, Image, ImageState, InstanceState, LaunchTemplateData, PlacementGroup, SecurityGroup,
    SnapshotState, StatusCheck, Subnet, Tags, TargetCapacityType, VolumeSnapshot,
};

/// Time and events.
impl RegionTwin {
    /// Lets everything happen that is due until `now`, and gives the events since the last tick, in their order.
    pub fn tick(&self, now: Timestamp) -> Vec<TwinEvent> {
        self.with(|state| {
            state.settle(now);
            std::mem::take(&mut state.events)
        })
    }

    /// When something happens next by itself: now, where it has happened and its event wasn't fetched.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.with(|state| if state.events.is_empty() { state.next_due() } else { Some(state.now) })
    }
}

/// Images.
impl RegionTwin {
    /// Begins to make an image, pending at first.
    pub fn create_image(&self, image: NewImage) -> ImageId {
        self.with(|state| state.create_image(image))
    }

    /// Adds an available image, without an event.
    pub fn add_image(&self, image: NewImage) -> ImageId {
        self.with(|state| state.add_image(image))
    }

    /// Deregisters an image.
    ///
    /// # Errors
    /// [`NotPossible`] for one that doesn't exist.
    pub fn deregister_image(&self, id: &ImageId) -> Result<(), NotPossible> {
        self.with(|state| state.change_image(id, ImageState::Deregistered))
    }

    /// Disables an image.
    ///
    /// # Errors
    /// [`NotPossible`] for one that isn't available.
    pub fn disable_image(&self, id: &ImageId) -> Result<(), NotPossible> {
        self.with(|state| state.change_image(id, ImageState::Disabled))
    }

    /// Takes the account's right to launch an image, which EC2 goes on to describe.
    pub fn unshare_image(&self, id: &ImageId) {
        self.with(|state| state.unshared.insert(id.clone()));
    }

    /// Gives that right back.
    pub fn share_image(&self, id: &ImageId) {
        self.with(|state| state.unshared.remove(id));
    }

    /// Enables a disabled image.
    ///
    /// # Errors
    /// [`NotPossible`] for one that isn't disabled.
    pub fn enable_image(&self, id: &ImageId) -> Result<(), NotPossible> {
        self.with(|state| state.change_image(id, ImageState::Available))
    }

    /// Tags an image, without an event.
    ///
    /// # Errors [`NotPossible`] for an unknown image.
    pub fn tag_image(&self, id: &ImageId, key: &str, value: &str) -> Result<(), NotPossible> {
        self.with(|state| state.tag_image(id, key, value))
    }

    /// Puts all snapshots of an image in a state.
    pub fn set_snapshots_of(&self, image: &ImageId, snapshots: SnapshotState) {
        self.with(|state| {
            let Some(twin) = state.images.get(image) else { return };
            let volumes = twin.image.facts.volumes.values();
            let ids: Vec<String> = volumes.filter_map(|volume| volume.snapshot.clone()).collect();
            for id in ids {
                if let Some(snapshot) = state.snapshots.get_mut(&id) {
                    snapshot.state = Some(snapshots);
                }
            }
        });
    }

    /// Breaks an image for instances that are launched from now on; `None` mends it.
    ///
    /// # Errors [`NotPossible`] for an unknown image.
    pub fn set_image_defect(&self, id: &ImageId, defect: Option<ImageDefect>) -> Result<(), NotPossible> {
        self.with(|state| state.set_defect(id, defect))
    }

    /// Puts a snapshot of a volume there.
    pub fn add_snapshot(&self, snapshot: VolumeSnapshot) {
        self.with(|state| state.snapshots.insert(snapshot.id.clone(), snapshot));
    }

    /// Every image that ever existed, as it really is, by id.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        self.with(|state| state.images.values().map(|image| image.image.clone()).collect())
    }

    /// An image's true state.
    #[must_use]
    pub fn image_state(&self, id: &ImageId) -> Option<ImageState> {
        self.with(|state| state.image_state(id))
    }
}

/// The network.
impl RegionTwin {
    /// Adds a /19 subnet in each zone and a security group, all with these tags.
    ///
    /// # Errors [`NotPossible`] if the region has more zones than 10.0.0.0/16 has room for.
    pub fn add_network(&self, tags: &Tags) -> Result<(), NotPossible> {
        self.with(|state| state.add_network(tags))
    }

    /// Adds a subnet; its free addresses follow from its block.
    ///
    /// # Errors [`NotPossible`] for an unknown zone or a malformed block.
    pub fn add_subnet(&self, subnet: Subnet) -> Result<(), NotPossible> {
        self.with(|state| state.add_subnet(subnet))
    }

    /// Adds a security group.
    pub fn add_security_group(&self, group: SecurityGroup) {
        self.with(|state| state.groups.insert(group.id.clone(), group));
    }

    /// Leaves a subnet with so many free addresses.
    ///
    /// # Errors
    /// [`NotPossible`] for a subnet that doesn't exist.
    pub fn set_free_addresses(&self, id: &SubnetId, free: u32) -> Result<(), NotPossible> {
        self.with(|state| state.set_free_addresses(id, free))
    }
}

/// Placement groups.
impl RegionTwin {
    /// Creates a placement group.
    pub fn create_placement_group(&self, group: PlacementGroup) {
        self.with(|state| state.placement_groups.insert(group.id.clone(), group));
    }

    /// Deletes a placement group. Its instances keep running.
    pub fn delete_placement_group(&self, id: &PlacementGroupId) {
        self.with(|state| state.placement_groups.remove(id));
    }
}

/// Capacity reservations.
impl RegionTwin {
    /// Creates a capacity reservation for `available` instances.
    ///
    /// # Errors [`NotPossible`] if the zone doesn't offer the type, or the twin doesn't have the kind.
    pub fn add_reservation(&self, made: CapacityReservation) -> Result<(), NotPossible> {
        self.with(|state| state.add_reservation(made))
    }

    /// Ends a capacity reservation: its instances keep running without one.
    ///
    /// # Errors
    /// [`NotPossible`] for one that doesn't exist.
    pub fn end_reservation(&self, id: &ReservationId) -> Result<(), NotPossible> {
        self.with(|state| state.end_reservation(id))
    }
}

/// Zonal shift.
impl RegionTwin {
    /// The id of the zone of that name.
    #[must_use]
    pub fn zone_id(&self, zone: &Zone) -> Option<ZoneId> {
        self.with(|state| state.zones.iter().find(|known| known.name == *zone).map(|known| known.id.clone()))
    }

    /// Lets ARC manage a resource: its owner turned zonal shift on.
    pub fn manage(&self, resource_arn: &str) {
        self.with(|state| state.managed.entry(resource_arn.to_owned()).or_default().len());
    }

    /// Shifts a resource away from a zone; a shift without an end is AWS's autoshift, which sends an event.
    ///
    /// # Errors [`NotPossible`] for an unknown zone, or a resource that ARC doesn't manage.
    pub fn shift_zone(&self, resource_arn: &str, zone_id: &ZoneId, end: ShiftEnd) -> Result<(), NotPossible> {
        self.with(|state| state.shift_zone(resource_arn, zone_id, end))
    }

    /// Ends a shift before its time.
    ///
    /// # Errors
    /// [`NotPossible`] where there is none.
    pub fn end_shift(&self, resource_arn: &str, zone_id: &ZoneId) -> Result<(), NotPossible> {
        self.with(|state| state.end_shift(resource_arn, zone_id))
    }
}

/// Parameters, and the images that AWS publishes by them.
impl RegionTwin {
    /// Sets a parameter, as its next version. One of AWS's own gets this value instead.
    pub fn put_parameter(&self, name: &str, value: &str) {
        self.with(|state| state.put_parameter(name, value));
    }

    /// Deletes a parameter, also one of AWS's own.
    ///
    /// # Errors
    /// [`NotPossible`] for one that doesn't exist.
    pub fn delete_parameter(&self, name: &str) -> Result<(), NotPossible> {
        self.with(|state| state.delete_parameter(name))
    }

    /// A parameter's value, by name or ARN, with or without a version.
    #[must_use]
    pub fn parameter(&self, asked: &str) -> Option<String> {
        self.with(|state| state.parameter(asked))
    }

    /// The ARN of a parameter of that name.
    #[must_use]
    pub fn parameter_arn(&self, name: &str) -> String {
        self.with(|state| state.parameter_arn(name))
    }

    /// Releases a version of all images of a family, which is the recommended one from now on. Versions are written as
    /// `v20260901`, for Bottlerocket as `1.51.0`, for Windows as `2026.09.01`.
    pub fn release_images(&self, family: PublishedFamily, version: &str) {
        self.with(|state| state.release_images(family, version));
    }
}

/// Instance profiles.
impl RegionTwin {
    /// Adds an instance profile with its role that EC2 has known for long; one of another account by its ARN.
    pub fn add_instance_profile(&self, name: &str, role: &str) {
        self.with(|state| state.add_profile(name, role));
    }

    /// Creates an instance profile without a role.
    ///
    /// # Errors
    /// [`NotPossible`] if it was created before.
    pub fn create_instance_profile(&self, name: &str) -> Result<(), NotPossible> {
        self.with(|state| state.create_profile(name))
    }

    /// Deletes an instance profile, with or without a role.
    ///
    /// # Errors
    /// [`NotPossible`] for one that doesn't exist.
    pub fn delete_instance_profile(&self, name: &str) -> Result<(), NotPossible> {
        self.with(|state| state.delete_profile(name))
    }

    /// Adds a role, by name, to an instance profile.
    ///
    /// # Errors [`NotPossible`] if there is no such profile, or it has a role.
    pub fn add_role_to_instance_profile(&self, name: &str, role: &str) -> Result<(), NotPossible> {
        self.with(|state| state.set_profile_role(name, Some(role)))
    }

    /// Removes an instance profile's role.
    ///
    /// # Errors [`NotPossible`] if there is no such profile, or it has no role.
    pub fn remove_role_from_instance_profile(&self, name: &str) -> Result<(), NotPossible> {
        self.with(|state| state.set_profile_role(name, None))
    }
}

/// Deletions and quotas.
impl RegionTwin {
    /// Deletes all launch templates.
    pub fn delete_templates(&self) {
        self.with(|state| state.templates.clear());
    }

    /// Withdraws an instance type: it is neither described nor offered any longer. Its instances stay.
    ///
    /// # Errors [`NotPossible`] for an unknown type.
    pub fn withdraw_type(&self, name: &InstanceType) -> Result<(), NotPossible> {
        self.with(|state| match state.types.remove(name) {
            Some(_) => Ok(()),
            None => Err(NotPossible(format!("the region has no type `{name}`"))),
        })
    }
}

/// Capacity, rights and faults.
impl RegionTwin {
    /// Leaves so many instances in a pool; `None` takes the limit away.
    pub fn set_capacity(&self, pool: CapacityPool, left: Option<u32>) {
        self.with(|state| state.capacity.set(pool, left));
    }

    /// Sets a quota of running vCPUs; `None` removes it. A stopped instance counts until it is terminated.
    pub fn set_quota(&self, quota: Quota, vcpus: Option<u32>) {
        self.with(|state| state.capacity.set_quota(quota, vcpus));
    }

    /// Lets every launch from a pool fail with an item error (code, message), until `None`.
    pub fn fail_pool(&self, pool: CapacityPool, error: Option<(String, String)>) {
        self.with(|state| match error {
            Some(error) => state.failing.insert(pool, error),
            None => state.failing.remove(&pool),
        });
    }

    /// Denies a call with this decoded message; a dry run returns it as its outcome.
    pub fn deny(&self, call: Call, decoded: impl Into<String>) {
        self.with(|state| state.denied.insert(call, DeniedCall::Told(decoded.into())));
    }

    /// Denies a call by an encoded message with this content.
    pub fn deny_encoded(&self, call: Call, content: impl Into<String>) {
        self.with(|state| state.denied.insert(call, DeniedCall::Encoded(content.into())));
    }

    /// Allows a call again.
    pub fn allow(&self, call: Call) {
        self.with(|state| state.denied.remove(&call));
    }

    /// Denies launches of an image with this message, also as the outcome of a dry run.
    pub fn deny_image(&self, id: &ImageId, decoded: impl Into<String>) {
        self.with(|state| state.denied_images.insert(id.clone(), decoded.into()));
    }

    /// Allows launches of an image again.
    pub fn allow_image(&self, id: &ImageId) {
        self.with(|state| state.denied_images.remove(id));
    }

    /// Lets a call fail.
    pub fn inject(&self, fault: Fault) {
        self.with(|state| state.faults.inject(fault));
    }

    /// Takes all injected faults back.
    pub fn clear_faults(&self) {
        self.with(|state| state.faults.clear());
    }
}

/// Instances.
impl RegionTwin {
    /// Sends a spot instance's interruption warning; EC2 terminates it two minutes later.
    ///
    /// # Errors [`NotPossible`] for an instance that isn't spot, is leaving, or has a warning.
    pub fn interrupt_spot(&self, id: &InstanceId) -> Result<(), NotPossible> {
        self.with(|state| state.interrupt_spot(id))
    }

    /// Recommends to rebalance an instance.
    ///
    /// # Errors
    /// [`NotPossible`] for an instance that is going.
    pub fn recommend_rebalance(&self, id: &InstanceId) -> Result<(), NotPossible> {
        self.with(|state| state.recommend_rebalance(id))
    }

    /// Sends an AWS Health event about instances; a scheduled change is also an event of theirs.
    ///
    /// # Errors
    /// [`NotPossible`] when one of them is going.
    pub fn announce(&self, health: &HealthEvent) -> Result<(), NotPossible> {
        self.with(|state| state.announce(health))
    }

    /// Fails a status check of a running instance from now on, or passes it again. EC2 sends no event of that.
    ///
    /// # Errors
    /// [`NotPossible`] for an instance that isn't running.
    pub fn set_status_check(
        &self,
        id: &InstanceId,
        check: StatusCheck,
        impairment: Impairment,
    ) -> Result<(), NotPossible> {
        self.with(|state| state.set_impaired(id, check, impairment))
    }

    /// Moves an instance outside Tenon: `Stopping`, `Pending` (a start) or `ShuttingDown`.
    ///
    /// # Errors [`NotPossible`] if it can't move there.
    pub fn push_instance(&self, id: &InstanceId, to: InstanceState) -> Result<(), NotPossible> {
        self.with(|state| state.push(id, to))
    }
}

/// The actual state, whatever EC2 answers.
impl RegionTwin {
    /// Every instance that ever existed, by id.
    #[must_use]
    pub fn instances(&self) -> Vec<Arc<InstanceRecord>> {
        self.with(|state| state.instances.values().map(|twin| Arc::clone(&twin.record)).collect())
    }

    /// One instance.
    #[must_use]
    pub fn instance(&self, id: &InstanceId) -> Option<Arc<InstanceRecord>> {
        self.with(|state| state.instances.get(id).map(|twin| Arc::clone(&twin.record)))
    }

    /// Every launch, in its order.
    #[must_use]
    pub fn launches(&self) -> Vec<Arc<LaunchRecord>> {
        self.with(|state| state.launches.clone())
    }

    /// Every fleet request that reached EC2, in its order.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<RequestRecord>> {
        self.with(|state| state.requests.clone())
    }

    /// The content of a launch template.
    #[must_use]
    pub fn template_data(&self, name: &str) -> Option<LaunchTemplateData> {
        self.with(|state| state.templates.get(name).map(|template| template.data.clone()))
    }

    /// The count of each call.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<Call, CallCount> {
        self.with(|state| state.calls.clone())
    }

    /// Lets spot prices stay within so many thousandths of what they are, from now on.
    pub fn hold_spot_prices(&self, within: u64) {
        self.with(|state| state.prices_held = Some(HeldPrices { at: state.now, within }));
    }

    /// The current price of a type in a zone; `None` without one.
    #[must_use]
    pub fn price(
        &self,
        capacity_type: TargetCapacityType,
        of: &InstanceType,
        zone: &Zone,
    ) -> Option<UsdPerHour> {
        self.with(|state| state.price(capacity_type, of, zone))
    }
}
