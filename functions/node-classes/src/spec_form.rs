//! The identity of a class's spec: a digest of an explicit form.
//!
//! Decides the fields and their names, and whether a stored status belongs to a spec. It doesn't decide the effect of
//! a changed spec.
//!
//! Invariants: absent fields aren't part of the form, so a new field of the API changes no digest; a digest of
//! another form can't be compared, and the generation decides instead.

use std::borrow::Cow;

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::{
    AmiSelectorTerm, InstanceProfile, MetadataOptions, NodeIdentity, ReservationSelectorTerm,
    SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use tenon_domain::catalog::NodeSettings;
use tenon_domain::catalog::settings::{
    BlockDevice, ConnectionTracking, EbsVolume, EvictionThreshold, InstanceStorePolicy, KubeletConfiguration,
    NestedVirtualization, NetworkInterface, PartsPerMillion, Reserved,
};
use tenon_domain::class_status::ClassStatus;
use tenon_table::form_digest;
use tenon_table::items::form::Attributes;

/// The version of the form.
const FORM: &str = "class-spec-1";
/// The prefix of this form's digests. The earliest digests have none, and can't be computed again, because their text
/// depends on the compiler.
const PREFIX: &str = "v1-";
/// Letters and digits after it.
const DIGITS: usize = 16;

/// The digest of the user's whole spec. It also differs if the class was deleted and created again.
#[must_use]
pub fn digest(class: &Ec2NodeClass) -> String {
    format!("{PREFIX}{}", form_digest(FORM, |to| write_class(class, to)).base36(DIGITS))
}

/// Whether a status belongs to this spec. With a digest of another form, the generation decides: Kubernetes raises it
/// with each change of a spec.
#[must_use]
pub fn is_of(status: &ClassStatus, class: &Ec2NodeClass) -> bool {
    if status.spec_digest.starts_with(PREFIX) {
        status.spec_digest == digest(class)
    } else {
        status.generation == class.meta.generation
    }
}

/// A stored status with the digest of this form, where it is of this spec.
#[must_use]
pub fn in_this_form<'a>(stored: &'a ClassStatus, class: &Ec2NodeClass) -> Cow<'a, ClassStatus> {
    if stored.spec_digest.starts_with(PREFIX) || !is_of(stored, class) {
        return Cow::Borrowed(stored);
    }
    Cow::Owned(ClassStatus { spec_digest: digest(class), ..stored.clone() })
}

fn write_class(class: &Ec2NodeClass, to: &mut Attributes) {
    let Ec2NodeClass {
        meta,
        name,
        subnet_selector,
        security_group_selector,
        ami_selector,
        reservation_selector,
        settings,
        user_data,
        identity,
        tags,
        metadata_options,
        associate_public_ip,
        detailed_monitoring,
        context,
        // The resolved subnets are not part of the user's spec.
        status_subnets: _,
        unsupported,
    } = class;
    to.text_if("uid", meta.uid.as_ref().map(|uid| uid.as_str()));
    to.text("name", name);
    to.number("generation", meta.generation);
    to.list("subnets", subnet_selector, |term, to| match term {
        SubnetSelectorTerm::Id(id) => to.text("id", id),
        SubnetSelectorTerm::Tags(tags) => to.labels("tags", tags),
    });
    to.list("security_groups", security_group_selector, |term, to| match term {
        SecurityGroupSelectorTerm::Id(id) => to.text("id", id),
        SecurityGroupSelectorTerm::Name(name) => to.text("name", name),
        SecurityGroupSelectorTerm::Tags(tags) => to.labels("tags", tags),
    });
    to.list("images", ami_selector, |term, to| write_images(term, to));
    to.list_if("reservations", some(reservation_selector), |term, to| match term {
        ReservationSelectorTerm::Id(id) => to.text("id", id),
        ReservationSelectorTerm::Match { tags, owner, match_criteria } => {
            to.labels("tags", tags);
            to.text_if("owner", owner.as_ref());
            to.text_if("match_criteria", match_criteria.map(|criteria| criteria.as_str()));
        }
    });
    write_settings(settings, to);
    to.text_if("user_data", user_data.as_ref());
    match identity {
        NodeIdentity::Role(role) => to.text("role", role),
        NodeIdentity::InstanceProfile(InstanceProfile::Name(name)) => to.text("instance_profile", name),
        NodeIdentity::InstanceProfile(InstanceProfile::Arn(arn)) => to.text("instance_profile_arn", arn),
    }
    if !tags.is_empty() {
        to.labels("tags", tags);
    }
    to.map("metadata_options", |to| {
        let MetadataOptions { http_endpoint, http_protocol_ipv6, http_put_response_hop_limit, http_tokens } =
            metadata_options;
        to.text("endpoint", http_endpoint);
        to.text("ipv6", http_protocol_ipv6);
        to.number("hop_limit", u64::from(*http_put_response_hop_limit));
        to.text("tokens", http_tokens);
    });
    to.truth_if("public_address", *associate_public_ip);
    to.truth_if("detailed_monitoring", detailed_monitoring.then_some(true));
    to.text_if("context", context.as_ref());
    if !unsupported.is_empty() {
        to.texts("unsupported", unsupported);
    }
}

fn some<T>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
}

fn write_images(term: &AmiSelectorTerm, to: &mut Attributes) {
    match term {
        AmiSelectorTerm::Id(id) => to.text("id", id),
        AmiSelectorTerm::Match { name, tags, owner } => {
            to.text_if("name", name.as_ref());
            to.labels("tags", tags);
            to.text_if("owner", owner.as_ref());
        }
        AmiSelectorTerm::Alias { family, version } => {
            to.text("family", family);
            to.text("version", version);
        }
        AmiSelectorTerm::SsmParameter(parameter) => to.text("ssm_parameter", parameter),
    }
}

fn write_settings(settings: &NodeSettings, to: &mut Attributes) {
    let NodeSettings {
        ami_family,
        kubelet,
        block_devices,
        instance_store_policy,
        network_interfaces,
        connection_tracking,
        nested_virtualization,
        placement_strategy,
        reserved_enis,
        vm_memory_overhead: PartsPerMillion(overhead),
    } = settings;
    to.text("ami_family", ami_family.as_str());
    to.map("kubelet", |to| write_kubelet(kubelet, to));
    to.list_if("block_devices", some(block_devices), |device, to| write_device(device, to));
    to.text_if("instance_store", instance_store_policy.map(InstanceStorePolicy::as_str));
    to.list_if("interfaces", some(network_interfaces), |interface, to| {
        let NetworkInterface { network_card_index, device_index, interface_type } = interface;
        to.number("card", *network_card_index);
        to.number("device", *device_index);
        to.text("kind", interface_type.as_str());
    });
    to.map_if("connection_tracking", connection_tracking.as_ref(), |tracking, to| {
        let ConnectionTracking {
            tcp_established_timeout_seconds,
            udp_stream_timeout_seconds,
            udp_timeout_seconds,
        } = tracking;
        to.number_if("tcp_established", *tcp_established_timeout_seconds);
        to.number_if("udp_stream", *udp_stream_timeout_seconds);
        to.number_if("udp", *udp_timeout_seconds);
    });
    to.text_if("nested_virtualization", nested_virtualization.map(NestedVirtualization::as_str));
    to.text_if("placement", placement_strategy.map(|strategy| strategy.as_str()));
    to.number("reserved_enis", *reserved_enis);
    to.number("memory_overhead", *overhead);
}

fn write_kubelet(kubelet: &KubeletConfiguration, to: &mut Attributes) {
    let KubeletConfiguration {
        max_pods,
        pods_per_core,
        kube_reserved,
        system_reserved,
        eviction_memory,
        eviction_nodefs,
        cluster_dns,
        document,
        // It follows from the document and the family.
        problem: _,
    } = kubelet;
    to.number_if("max_pods", *max_pods);
    to.number_if("pods_per_core", *pods_per_core);
    to.map("kube_reserved", |to| write_reserved(*kube_reserved, to));
    to.map("system_reserved", |to| write_reserved(*system_reserved, to));
    let threshold = |found: EvictionThreshold| match found {
        EvictionThreshold::Quantity(quantity) => quantity.to_string(),
        EvictionThreshold::Share(PartsPerMillion(parts)) => format!("{parts} ppm"),
    };
    to.text_if("eviction_memory", eviction_memory.map(threshold));
    to.text_if("eviction_nodefs", eviction_nodefs.map(threshold));
    if !cluster_dns.is_empty() {
        to.texts("cluster_dns", cluster_dns);
    }
    to.text_if("document", document.as_ref());
}

fn write_reserved(reserved: Reserved, to: &mut Attributes) {
    let Reserved { cpu, memory, ephemeral_storage, pid } = reserved;
    to.text_if("cpu", cpu.map(|quantity| quantity.to_string()));
    to.text_if("memory", memory.map(|quantity| quantity.to_string()));
    to.text_if("ephemeral_storage", ephemeral_storage.map(|quantity| quantity.to_string()));
    to.text_if("pid", pid.map(|quantity| quantity.to_string()));
}

fn write_device(device: &BlockDevice, to: &mut Attributes) {
    let BlockDevice { device_name, root_volume, ebs } = device;
    to.text_if("name", device_name.as_ref());
    to.truth_if("root", root_volume.then_some(true));
    to.map_if("ebs", ebs.as_ref(), |ebs, to| {
        let EbsVolume {
            size,
            volume_type,
            encrypted,
            delete_on_termination,
            iops,
            throughput,
            kms_key_id,
            snapshot_id,
            volume_initialization_rate,
        } = ebs;
        to.text_if("size", size.map(|size| size.to_string()));
        to.text_if("type", volume_type.as_ref());
        to.truth_if("encrypted", *encrypted);
        to.truth_if("delete_on_termination", *delete_on_termination);
        to.number_if("iops", *iops);
        to.number_if("throughput", *throughput);
        to.text_if("key", kms_key_id.as_ref());
        to.text_if("snapshot", snapshot_id.as_ref());
        to.number_if("initialization_rate", *volume_initialization_rate);
    });
}

#[cfg(test)]
mod tests;
