//! Answers: from the port's values to XML.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tenon_domain::Timestamp;
use tenon_domain::id::InstanceId;
use tenon_ec2::port::{
    AvailabilityZone, CapacityReservation, EnaSupport, Image, Instance, InstanceState, InstanceStateChange,
    InstanceStatus, LaunchTemplate, LocationType, Page, PlacementGroup, SecurityGroup, SpotPrice,
    StatusCheck, Subnet, Tags, TargetCapacityType, TypeOffering, VolumeSnapshot,
};

use crate::xml::Xml;

/// One page of a list.
pub(crate) fn page<T>(xml: &mut Xml, tag: &str, page: &Page<T>, content: impl Fn(&mut Xml, &T)) {
    xml.set(tag, &page.items, content);
    xml.maybe("nextToken", page.next.as_ref().map(|token| &token.0));
}

fn tags(xml: &mut Xml, tags: &Tags) {
    xml.within("tagSet", |xml| {
        for (key, value) in tags {
            xml.within("item", |xml| {
                xml.text("key", key);
                xml.text("value", value);
            });
        }
    });
}

pub(crate) fn offering(xml: &mut Xml, offering: &TypeOffering, by: LocationType) {
    xml.text("instanceType", &offering.instance_type);
    let by = match by {
        LocationType::AvailabilityZone => "availability-zone",
        LocationType::AvailabilityZoneId => "availability-zone-id",
    };
    xml.text("locationType", by);
    xml.text("location", &offering.location);
}

pub(crate) fn zone(xml: &mut Xml, zone: &AvailabilityZone) {
    xml.text("zoneName", &zone.name);
    xml.text("zoneId", &zone.id);
    xml.text("zoneState", "available");
    xml.text("optInStatus", "opt-in-not-required");
}

pub(crate) fn spot_price(xml: &mut Xml, price: &SpotPrice) {
    xml.text("instanceType", &price.instance_type);
    xml.text("productDescription", "Linux/UNIX");
    xml.text("spotPrice", price.price);
    xml.text("timestamp", price.since);
    xml.text("availabilityZone", &price.zone);
}

pub(crate) fn image(xml: &mut Xml, image: &Image) {
    xml.text("imageId", &image.id);
    xml.text("name", &image.name);
    xml.text("imageOwnerId", &image.owner);
    xml.maybe("imageOwnerAlias", image.owner_alias.as_ref());
    xml.maybe("architecture", image.architecture.map(|architecture| architecture.as_str()));
    xml.text("imageState", image.state.as_str());
    xml.maybe("creationDate", image.created_at);
    xml.maybe("deprecationTime", image.deprecated_at);
    let facts = &image.facts;
    xml.maybe("bootMode", facts.boot_mode);
    xml.maybe("enaSupport", facts.ena.map(|ena| ena == EnaSupport::Enabled));
    xml.maybe("platform", facts.platform);
    xml.maybe("rootDeviceType", facts.root_device_type);
    xml.maybe("rootDeviceName", facts.root_device_name.as_ref());
    let mapped: Vec<_> = facts.volumes.iter().collect();
    xml.set("blockDeviceMapping", &mapped, |xml, (device, volume)| {
        xml.text("deviceName", device);
        xml.within("ebs", |xml| {
            xml.maybe("snapshotId", volume.snapshot.as_ref());
            xml.maybe("volumeSize", volume.size_gib);
            xml.maybe("encrypted", volume.encrypted);
        });
    });
    tags(xml, &image.tags);
}

pub(crate) fn snapshot(xml: &mut Xml, snapshot: &VolumeSnapshot) {
    xml.text("snapshotId", &snapshot.id);
    xml.text("ownerId", &snapshot.owner);
    xml.maybe("ownerAlias", snapshot.owner_alias.as_ref());
    xml.maybe("status", snapshot.state);
    tags(xml, &snapshot.tags);
}

pub(crate) fn placement_group(xml: &mut Xml, group: &PlacementGroup) {
    xml.text("groupId", &group.id);
    xml.text("groupName", &group.name);
    xml.text("state", "available");
    xml.text("strategy", group.strategy.as_str());
    xml.maybe("partitionCount", group.partition_count);
}

pub(crate) fn subnet(xml: &mut Xml, subnet: &Subnet) {
    xml.text("subnetId", &subnet.id);
    xml.text("state", "available");
    xml.text("vpcId", &subnet.vpc);
    xml.text("availabilityZone", &subnet.zone);
    xml.text("availabilityZoneId", &subnet.zone_id);
    xml.text("cidrBlock", &subnet.cidr);
    xml.text("availableIpAddressCount", subnet.available_addresses);
    tags(xml, &subnet.tags);
}

pub(crate) fn security_group(xml: &mut Xml, group: &SecurityGroup) {
    xml.text("groupId", &group.id);
    xml.text("groupName", &group.name);
    xml.text("vpcId", &group.vpc);
    tags(xml, &group.tags);
}

pub(crate) fn capacity_reservation(xml: &mut Xml, made: &CapacityReservation) {
    xml.text("capacityReservationId", &made.id);
    xml.text("ownerId", &made.owner);
    xml.text("instanceType", &made.instance_type);
    xml.text("availabilityZone", &made.zone);
    xml.text("instanceMatchCriteria", made.match_criteria.as_str());
    xml.text("reservationType", made.kind.type_label());
    xml.text("interruptible", made.kind.interruptible_label());
    xml.text("state", "active");
    xml.maybe("endDate", made.ends_at);
    xml.text("availableInstanceCount", made.available);
    tags(xml, &made.tags);
}

pub(crate) fn template(xml: &mut Xml, template: &LaunchTemplate) {
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.text("createTime", template.created_at);
    xml.text("defaultVersionNumber", template.version);
    xml.text("latestVersionNumber", template.version);
    tags(xml, &template.tags);
}

/// A state with its code ("InstanceState" in EC2's API reference).
fn state(xml: &mut Xml, tag: &str, state: InstanceState) {
    let code = match state {
        InstanceState::Pending => 0,
        InstanceState::Running => 16,
        InstanceState::ShuttingDown => 32,
        InstanceState::Terminated => 48,
        InstanceState::Stopping => 64,
        InstanceState::Stopped => 80,
    };
    xml.within(tag, |xml| {
        xml.text("code", code);
        xml.text("name", state.as_str());
    });
}

pub(crate) fn instance_status(xml: &mut Xml, status: &InstanceStatus) {
    xml.text("instanceId", &status.id);
    state(xml, "instanceState", InstanceState::Running);
    check(xml, "instanceStatus", status.impaired.get(&StatusCheck::Instance));
    check(xml, "systemStatus", status.impaired.get(&StatusCheck::System));
    xml.set("eventsSet", &status.events, |xml, event| {
        xml.text("code", event.code.as_str());
        xml.maybe("notBefore", event.starts_at);
    });
}

/// A check, with the time since when it fails if it does.
fn check(xml: &mut Xml, tag: &str, impaired: Option<&Option<Timestamp>>) {
    xml.within(tag, |xml| {
        xml.text("status", if impaired.is_some() { "impaired" } else { "ok" });
        xml.within("details", |xml| {
            xml.within("item", |xml| {
                xml.text("name", "reachability");
                xml.text("status", if impaired.is_some() { "failed" } else { "passed" });
                xml.maybe("impairedSince", impaired.copied().flatten());
            });
        });
    });
}

/// EC2 gives the text as Base64.
pub(crate) fn console(xml: &mut Xml, id: &InstanceId, output: Option<&str>) {
    xml.text("instanceId", id);
    xml.maybe("output", output.map(|text| STANDARD.encode(text)).as_ref());
}

pub(crate) fn state_change(xml: &mut Xml, change: &InstanceStateChange) {
    xml.text("instanceId", &change.id);
    state(xml, "currentState", change.current);
    state(xml, "previousState", change.previous);
}

/// A reservation of one instance: fleets launch each by itself.
pub(crate) fn reservation(xml: &mut Xml, of: &Instance) {
    xml.set("instancesSet", std::slice::from_ref(of), instance);
}

fn instance(xml: &mut Xml, instance: &Instance) {
    xml.text("instanceId", &instance.id);
    xml.text("imageId", &instance.image);
    state(xml, "instanceState", instance.state);
    xml.text("instanceType", &instance.instance_type);
    xml.text("architecture", instance.architecture.as_str());
    match instance.capacity_type {
        TargetCapacityType::OnDemand => {}
        TargetCapacityType::Spot => xml.text("instanceLifecycle", "spot"),
    }
    xml.maybe("capacityReservationId", instance.reservation.as_ref());
    xml.within("placement", |xml| {
        xml.text("availabilityZone", &instance.zone);
        xml.maybe("availabilityZoneId", instance.zone_id.as_ref());
        xml.maybe("partitionNumber", instance.partition.as_ref());
    });
    xml.maybe("subnetId", instance.subnet.as_ref());
    xml.set("groupSet", &instance.security_groups, |xml, group| xml.text("groupId", group));
    if let Some(reason) = &instance.state_reason {
        xml.within("stateReason", |xml| {
            xml.text("code", &reason.code);
            xml.text("message", &reason.message);
        });
    }
    xml.text("launchTime", instance.launched_at);
    xml.text("privateIpAddress", &instance.private_ip);
    xml.text("privateDnsName", &instance.private_dns_name);
    xml.maybe("clientToken", instance.client_token.as_ref());
    tags(xml, &instance.tags);
}
