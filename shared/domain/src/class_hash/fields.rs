//! The hashed fields of an EC2NodeClass, as Karpenter declares them in Go.
//!
//! Decides names, types, order and defaults: a new field is one line. Fields without a line don't change the hash:
//! selector terms of subnets, security groups, images and reservations, `ipPrefixCount`, and `amiFamily` and `kubelet`,
//! which are hashed beside the spec.
//!
//! Source: aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass.go` (v1.15.1).

use serde_json::Value;

use self::GoType::{Boolean, Int32, Int64, List, Map, Size, Struct, Text};
use self::Unset::{Defaulted, Nil, Zero};
use super::fold;
use crate::quantity::Quantity;

/// The hash of `spec`.
pub(super) fn spec(spec: &Value) -> u64 {
    structure(&SPEC, spec)
}

/// The hash of one field of `spec`, by its key; `None` if it isn't set.
pub(super) fn one(spec: &Value, of: &str) -> Option<u64> {
    let (_, key, kind, unset) = SPEC.fields.iter().find(|(_, key, _, _)| *key == of)?;
    field(kind, unset, spec.get(*key).filter(|given| !given.is_null()))
}

/// The keys of the hashed fields of `spec`.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    SPEC.fields.iter().map(|(_, key, _, _)| *key)
}

const SPEC: GoStruct = GoStruct {
    name: "EC2NodeClassSpec",
    fields: &[
        ("PlacementGroupSelector", "placementGroupSelector", Struct(&PLACEMENT_GROUP_SELECTOR), Nil),
        ("AssociatePublicIPAddress", "associatePublicIPAddress", Boolean, Nil),
        ("UserData", "userData", Text, Nil),
        ("Role", "role", Text, Zero),
        ("InstanceProfile", "instanceProfile", Text, Nil),
        ("Tags", "tags", Map, Nil),
        ("BlockDeviceMappings", "blockDeviceMappings", List(&BLOCK_DEVICE_MAPPING), Nil),
        ("InstanceStorePolicy", "instanceStorePolicy", Text, Nil),
        ("NetworkInterfaces", "networkInterfaces", List(&NETWORK_INTERFACE), Nil),
        ("DetailedMonitoring", "detailedMonitoring", Boolean, Nil),
        ("MetadataOptions", "metadataOptions", Struct(&METADATA_OPTIONS), Defaulted("{}")),
        ("EnclaveOptions", "enclaveOptions", Struct(&ENCLAVE_OPTIONS), Nil),
        ("ConnectionTracking", "connectionTracking", Struct(&CONNECTION_TRACKING), Nil),
        ("Context", "context", Text, Nil),
        ("CPUOptions", "cpuOptions", Struct(&CPU_OPTIONS), Nil),
    ],
};

const PLACEMENT_GROUP_SELECTOR: GoStruct = GoStruct {
    name: "PlacementGroupSelector",
    fields: &[("Name", "name", Text, Nil), ("ID", "id", Text, Nil)],
};

const BLOCK_DEVICE_MAPPING: GoStruct = GoStruct {
    name: "BlockDeviceMapping",
    fields: &[
        ("DeviceName", "deviceName", Text, Nil),
        ("EBS", "ebs", Struct(&BLOCK_DEVICE), Nil),
        ("RootVolume", "rootVolume", Boolean, Zero),
    ],
};

const BLOCK_DEVICE: GoStruct = GoStruct {
    name: "BlockDevice",
    fields: &[
        ("DeleteOnTermination", "deleteOnTermination", Boolean, Nil),
        ("Encrypted", "encrypted", Boolean, Nil),
        ("IOPS", "iops", Int64, Nil),
        ("KMSKeyID", "kmsKeyID", Text, Nil),
        ("SnapshotID", "snapshotID", Text, Nil),
        ("Throughput", "throughput", Int64, Nil),
        ("VolumeInitializationRate", "volumeInitializationRate", Int32, Nil),
        ("VolumeSize", "volumeSize", Size, Nil),
        ("VolumeType", "volumeType", Text, Nil),
    ],
};

const NETWORK_INTERFACE: GoStruct = GoStruct {
    name: "NetworkInterface",
    fields: &[
        ("NetworkCardIndex", "networkCardIndex", Int32, Zero),
        ("DeviceIndex", "deviceIndex", Int32, Zero),
        ("InterfaceType", "interfaceType", Text, Zero),
    ],
};

const METADATA_OPTIONS: GoStruct = GoStruct {
    name: "MetadataOptions",
    fields: &[
        ("HTTPEndpoint", "httpEndpoint", Text, Defaulted(r#""enabled""#)),
        ("HTTPProtocolIPv6", "httpProtocolIPv6", Text, Defaulted(r#""disabled""#)),
        ("HTTPPutResponseHopLimit", "httpPutResponseHopLimit", Int64, Defaulted("1")),
        ("HTTPTokens", "httpTokens", Text, Defaulted(r#""required""#)),
    ],
};

const ENCLAVE_OPTIONS: GoStruct =
    GoStruct { name: "EnclaveOptions", fields: &[("Enabled", "enabled", Boolean, Zero)] };

const CONNECTION_TRACKING: GoStruct = GoStruct {
    name: "ConnectionTracking",
    fields: &[
        ("TCPEstablishedTimeout", "tcpEstablishedTimeout", Int32, Nil),
        ("UDPStreamTimeout", "udpStreamTimeout", Int32, Nil),
        ("UDPTimeout", "udpTimeout", Int32, Nil),
    ],
};

const CPU_OPTIONS: GoStruct =
    GoStruct { name: "CPUOptions", fields: &[("NestedVirtualization", "nestedVirtualization", Text, Nil)] };

struct GoStruct {
    name: &'static str,
    fields: &'static [GoField],
}

/// Name in Go, key in the manifest, type, and the value without a key.
type GoField = (&'static str, &'static str, GoType, Unset);

enum GoType {
    Text,
    Boolean,
    Int32,
    Int64,
    /// A quantity, hashed as its canonical text.
    Size,
    /// From texts to texts.
    Map,
    List(&'static GoStruct),
    Struct(&'static GoStruct),
}

/// A field's value if the manifest doesn't give it.
enum Unset {
    /// None, which isn't hashed. A given value is hashed even if it is zero or empty.
    Nil,
    /// Zero, which isn't hashed, given or not.
    Zero,
    /// The default of the CustomResourceDefinition, as JSON. The API server fills it in.
    Defaulted(&'static str),
}

fn structure(of: &GoStruct, value: &Value) -> u64 {
    let hashed = |(name, key, kind, unset): &'static GoField| {
        Some((*name, field(kind, unset, value.get(*key).filter(|given| !given.is_null()))?))
    };
    fold::structure(of.name, of.fields.iter().filter_map(hashed))
}

fn field(kind: &GoType, unset: &Unset, given: Option<&Value>) -> Option<u64> {
    match (unset, given) {
        (Nil | Defaulted(_), Some(given)) => hash(kind, given),
        (Zero, Some(given)) => (!is_zero(given)).then(|| hash(kind, given)).flatten(),
        (Nil | Zero, None) => None,
        (Defaulted(json), None) => hash(kind, &serde_json::from_str(json).ok()?),
    }
}

/// The hash of a value; `None` if it isn't of the type, which the reader of the class reports.
fn hash(kind: &GoType, value: &Value) -> Option<u64> {
    Some(match kind {
        Text => fold::text(value.as_str()?),
        Boolean => fold::bytes([u8::from(value.as_bool()?)]),
        Int32 => fold::bytes(i32::try_from(value.as_i64()?).ok()?.to_le_bytes()),
        Int64 => fold::bytes(value.as_i64()?.to_le_bytes()),
        Size => fold::text(&Quantity::parse(value.as_str()?).ok()?.to_string()),
        Map => fold::map(
            value
                .as_object()?
                .iter()
                .filter_map(|(key, value)| Some((fold::text(key), fold::text(value.as_str()?)))),
        ),
        List(of) => fold::list(value.as_array()?.iter().map(|item| structure(of, item))),
        Struct(of) => structure(of, value),
    })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(given) => !given,
        Value::Number(given) => given.as_i64() == Some(0),
        Value::String(given) => given.is_empty(),
        Value::Null => true,
        Value::Array(_) | Value::Object(_) => false,
    }
}
