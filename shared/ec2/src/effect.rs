//! The capacity that an error makes pointless to ask for, and the peer's reason for it.
//!
//! Decides from an error's class what to mark, and the reason of the condition `Launched`. It doesn't decide the
//! mark's hold, nor the next launch.
//!
//! Source: aws/karpenter-provider-aws `pkg/errors/errors.go`, and the errors' texts as EC2 writes them (read November
//! 2026).

use crate::classify::{ErrorClass, classify};
use crate::error::Ec2Error;

/// The requests that an error makes pointless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The type in its zone, as it would have been paid.
    Offering,
    /// Types of the family that are as large or larger, as they would have been paid.
    Quota,
    /// The subnet.
    Subnet,
    /// The placement group in its zone.
    PlacementGroup,
    /// Spot, altogether.
    Spot,
    /// The capacity reservation.
    Reservation,
    /// The type in its zone for such requests; others may have it.
    RequestOffering,
    /// Requests like this one, for any offering.
    Request,
    /// Nothing: the same request may succeed at the next try.
    Nothing,
}

/// The effect of an error of that class, as an item of a fleet. An error of a whole call names no offering: it
/// affects the request, or nothing.
#[must_use]
pub const fn effect(class: ErrorClass) -> Effect {
    match class {
        ErrorClass::InsufficientCapacity | ErrorClass::FleetCount => Effect::Offering,
        ErrorClass::Quota => Effect::Quota,
        ErrorClass::Unsupported => Effect::RequestOffering,
        ErrorClass::SubnetFull => Effect::Subnet,
        ErrorClass::ReservationFull => Effect::Reservation,
        ErrorClass::PlacementGroup => Effect::PlacementGroup,
        ErrorClass::ServiceLinkedRoleMissing => Effect::Spot,
        ErrorClass::AccountLimit
        | ErrorClass::ImageUnavailable
        | ErrorClass::Unauthorized
        | ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::TokenMismatch
        | ErrorClass::Invalid
        | ErrorClass::Unknown => Effect::Request,
        ErrorClass::TemplateMissing | ErrorClass::Throttled | ErrorClass::Server => Effect::Nothing,
    }
}

/// Reasons that only EC2's text tells apart within a class: a part of the code or message, and the reason.
const BY_TEXT: [(&str, &str); 10] = [
    ("PendingVerification", "AccountPendingVerification"),
    ("MaxSpotInstanceCountExceeded", "SpotQuotaExceeded"),
    ("VcpuLimitExceeded", "VCPULimitExceeded"),
    ("MaxFleetCountExceeded", "FleetQuotaExceeded"),
    ("Not authorized for images", "AMIAuthorizationFailure"),
    ("belong to different networks", "SecurityGroupSubnetVPCMismatch"),
    ("iamInstanceProfile.name is invalid", "InstanceProfileNameInvalid"),
    ("User data is limited to", "UserDataSizeLimitExceeded"),
    ("not eligible for Free Tier", "FreeTierIneligible"),
    ("InvalidAMIID.NotFound", "AMINotFound"),
];

/// The peer's reason of the condition `Launched` for EC2's code and message.
#[must_use]
pub fn launched_reason(code: &str, message: &str) -> &'static str {
    let text = BY_TEXT.into_iter().find(|(text, _)| code.contains(text) || message.contains(text));
    text.map_or_else(|| of_class(classify(code, message)), |(_, reason)| reason)
}

/// The peer's reason of the condition `Launched` for a call that failed.
#[must_use]
pub fn launched_reason_of(error: &Ec2Error) -> &'static str {
    match error {
        Ec2Error::Unauthorized { decoded, message, .. } => {
            let message = decoded.as_deref().unwrap_or(message);
            let reason = launched_reason("", message);
            if reason == of_class(ErrorClass::Unknown) { of_class(ErrorClass::Unauthorized) } else { reason }
        }
        Ec2Error::NotFound { code, message, .. }
        | Ec2Error::AlreadyExists { code, message, .. }
        | Ec2Error::Refused { code, message, .. }
        | Ec2Error::Invalid { code, message, .. }
        | Ec2Error::ServerError { code, message, .. }
        | Ec2Error::Unknown { code, message, .. } => launched_reason(code, message),
        Ec2Error::Throttled { .. }
        | Ec2Error::IdempotentParameterMismatch { .. }
        | Ec2Error::NoAnswer { .. } => of_class(error.class()),
    }
}

const fn of_class(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::InsufficientCapacity
        | ErrorClass::Unsupported
        | ErrorClass::ReservationFull
        | ErrorClass::PlacementGroup => "InsufficientCapacityError",
        ErrorClass::Quota => "VCPULimitExceeded",
        ErrorClass::FleetCount | ErrorClass::AccountLimit => "FleetQuotaExceeded",
        ErrorClass::SubnetFull => "InsufficientFreeAddressesInSubnet",
        ErrorClass::ServiceLinkedRoleMissing => "SpotSLRCreationFailed",
        ErrorClass::TemplateMissing => "LaunchTemplateNotFound",
        ErrorClass::ImageUnavailable => "InvalidAMIID",
        ErrorClass::Throttled => "RequestLimitExceeded",
        ErrorClass::Unauthorized => "Unauthorized",
        ErrorClass::Server => "InternalError",
        ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::TokenMismatch
        | ErrorClass::Invalid
        | ErrorClass::Unknown => "LaunchFailed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The effect of each class; a new class must be added here.
    #[test]
    fn every_class_has_its_effect() {
        let expected = [
            (Effect::Offering, vec![ErrorClass::InsufficientCapacity, ErrorClass::FleetCount]),
            (Effect::Quota, vec![ErrorClass::Quota]),
            (Effect::Subnet, vec![ErrorClass::SubnetFull]),
            (Effect::PlacementGroup, vec![ErrorClass::PlacementGroup]),
            (Effect::Spot, vec![ErrorClass::ServiceLinkedRoleMissing]),
            (Effect::Reservation, vec![ErrorClass::ReservationFull]),
            (Effect::RequestOffering, vec![ErrorClass::Unsupported]),
            (
                Effect::Request,
                vec![
                    ErrorClass::AccountLimit,
                    ErrorClass::ImageUnavailable,
                    ErrorClass::Unauthorized,
                    ErrorClass::NotFound,
                    ErrorClass::AlreadyExists,
                    ErrorClass::TokenMismatch,
                    ErrorClass::Invalid,
                    ErrorClass::Unknown,
                ],
            ),
            (Effect::Nothing, vec![ErrorClass::TemplateMissing, ErrorClass::Throttled, ErrorClass::Server]),
        ];
        let listed: usize = expected.iter().map(|(_, classes)| classes.len()).sum();
        assert_eq!(listed, 19);
        for (of, classes) in expected {
            for class in classes {
                assert_eq!(effect(class), of, "{class:?}");
            }
        }
    }

    fn check(code: &str, message: &str, of: Effect, reason: &str) {
        assert_eq!(effect(classify(code, message)), of, "{code} {message}");
        assert_eq!(launched_reason(code, message), reason, "{code} {message}");
    }

    #[test]
    fn what_ec2_says_marks_what_it_is_about_and_nothing_more() {
        check("InsufficientInstanceCapacity", "", Effect::Offering, "InsufficientCapacityError");
        // As with the peer, only its own offering.
        check("MaxFleetCountExceeded", "", Effect::Offering, "FleetQuotaExceeded");
        check("VcpuLimitExceeded", "", Effect::Quota, "VCPULimitExceeded");
        check("MaxSpotInstanceCountExceeded", "", Effect::Quota, "SpotQuotaExceeded");
        // A limit on volumes says nothing about an instance family; nor does an account under verification.
        check("VolumeLimitExceeded", "", Effect::Request, "FleetQuotaExceeded");
        check("PendingVerification", "", Effect::Request, "AccountPendingVerification");
        // Another cluster's class may have the type all the same.
        check("Unsupported", "", Effect::RequestOffering, "InsufficientCapacityError");
        // As with the peer, nothing is marked.
        check("RequestLimitExceeded", "", Effect::Nothing, "RequestLimitExceeded");
        check("InsufficientFreeAddressesInSubnet", "", Effect::Subnet, "InsufficientFreeAddressesInSubnet");
        check(
            "AuthFailure",
            "Not authorized for images: [ami-1]",
            Effect::Request,
            "AMIAuthorizationFailure",
        );
        check("InvalidAMIID.NotFound", "", Effect::Request, "AMINotFound");
        check("InvalidAMIID.Malformed", "", Effect::Request, "InvalidAMIID");
        check(
            "InvalidParameterValue",
            "User data is limited to 16384 bytes",
            Effect::Request,
            "UserDataSizeLimitExceeded",
        );
        let networks = "Security group sg-1 and subnet subnet-1 belong to different networks.";
        check("InvalidParameter", networks, Effect::Request, "SecurityGroupSubnetVPCMismatch");
        let profile =
            "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
        check("InvalidParameterValue", profile, Effect::Request, "InstanceProfileNameInvalid");
        let tier = "The specified instance type is not eligible for Free Tier.";
        check("InvalidParameterCombination", tier, Effect::Request, "FreeTierIneligible");
        check("FluxCapacitorEmpty", "", Effect::Request, "LaunchFailed");
    }

    #[test]
    fn a_call_that_failed_has_the_reason_of_its_words() {
        let check = |code: &str, message: &str, expected: &str| {
            let error = Ec2Error::from_code("CreateFleet", code, message);
            assert_eq!(launched_reason_of(&error), expected, "{code}");
        };
        check("PendingVerification", "", "AccountPendingVerification");
        check("VcpuLimitExceeded", "", "VCPULimitExceeded");
        check("UnauthorizedOperation", "You are not authorized to perform this operation.", "Unauthorized");
        check("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure");
        check("RequestLimitExceeded", "", "RequestLimitExceeded");
        check("InternalError", "", "InternalError");
    }
}
