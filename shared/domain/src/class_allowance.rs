//! What a class asks for although its cluster's stack doesn't allow it.
//!
//! Decides it from the class and the registry entry alone. It doesn't decide about resources of AWS, such as subnets and
//! roles: these need answers of EC2.

use std::fmt;

use crate::api::Ec2NodeClass;
use crate::registry::{Allowances, Permission};

/// A field of a class that its cluster's stack doesn't allow, in the order of the stack's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForbiddenField {
    /// `associatePublicIPAddress: true`.
    PublicAddress,
    /// `metadataOptions.httpTokens: optional`.
    ImdsV1,
    /// `userData`.
    UserData,
}

/// The fields of a class that its cluster's stack doesn't allow.
#[must_use]
pub fn forbidden(allowed: &Allowances, class: &Ec2NodeClass) -> Vec<ForbiddenField> {
    let user_data = class.user_data.as_ref().is_some_and(|text| !text.is_empty());
    let asked = [
        (ForbiddenField::PublicAddress, allowed.public_addresses, class.associate_public_ip == Some(true)),
        (ForbiddenField::ImdsV1, allowed.imds_v1, class.metadata_options.http_tokens == "optional"),
        (ForbiddenField::UserData, allowed.user_data, user_data),
    ];
    let denied = asked.into_iter().filter(|(_, permission, asks)| *asks && *permission == Permission::Denied);
    denied.map(|(field, _, _)| field).collect()
}

/// Which field, by which parameter of the stack, and what to do.
impl fmt::Display for ForbiddenField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, parameter, remedy) = match self {
            Self::PublicAddress => (
                "spec.associatePublicIPAddress: true",
                "AllowPublicAddresses",
                "remove it, or set it to `false`",
            ),
            Self::ImdsV1 => (
                "spec.metadataOptions.httpTokens: optional",
                "AllowImdsV1",
                "remove it, or set it to `required`",
            ),
            Self::UserData => ("spec.userData", "AllowUserData", "remove it"),
        };
        write!(f, "`{field}` not allowed: the cluster's stack has `{parameter}=false`: {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::node_class_from_value;

    fn class(added: &Value) -> Ec2NodeClass {
        let mut spec = json!({
            "amiFamily": "AL2023",
            "role": "nodes",
            "amiSelectorTerms": [{"name": "nodes-*"}],
            "subnetSelectorTerms": [{"tags": {"team": "web"}}],
            "securityGroupSelectorTerms": [{"tags": {"team": "web"}}]
        });
        for (field, value) in added.as_object().unwrap() {
            spec[field] = value.clone();
        }
        node_class_from_value(&json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": spec
        }))
        .unwrap()
    }

    fn told(allowed: &Allowances, added: &Value) -> Vec<String> {
        forbidden(allowed, &class(added)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_field_is_refused_only_where_the_stack_denies_it_and_the_class_asks() {
        let strict = Allowances {
            public_addresses: Permission::Denied,
            imds_v1: Permission::Denied,
            user_data: Permission::Denied,
            ..Allowances::default()
        };
        let check = |added: Value, expected: &[&str]| {
            assert_eq!(told(&strict, &added), expected, "{added}");
            assert_eq!(told(&Allowances::default(), &added), [""; 0], "{added}");
        };
        let public = "`spec.associatePublicIPAddress: true` not allowed: the cluster's stack has \
                      `AllowPublicAddresses=false`: remove it, or set it to `false`";
        let imds = "`spec.metadataOptions.httpTokens: optional` not allowed: the cluster's stack has \
                    `AllowImdsV1=false`: remove it, or set it to `required`";
        let user_data =
            "`spec.userData` not allowed: the cluster's stack has `AllowUserData=false`: remove it";
        check(json!({}), &[]);
        check(json!({"associatePublicIPAddress": false}), &[]);
        check(json!({"metadataOptions": {"httpTokens": "required"}}), &[]);
        check(json!({"userData": ""}), &[]);
        check(json!({"associatePublicIPAddress": true}), &[public]);
        let interface =
            |device: u32| json!({"networkCardIndex": 0, "deviceIndex": device, "interfaceType": "interface"});
        let several = json!([interface(0), interface(1)]);
        check(json!({"associatePublicIPAddress": true, "networkInterfaces": several}), &[public]);
        check(json!({"networkInterfaces": several}), &[]);
        check(json!({"metadataOptions": {"httpTokens": "optional"}}), &[imds]);
        check(json!({"userData": "#!/bin/sh"}), &[user_data]);
        let all = json!({
            "associatePublicIPAddress": true, "metadataOptions": {"httpTokens": "optional"}, "userData": "#!/bin/sh"
        });
        check(all, &[public, imds, user_data]);
    }
}
