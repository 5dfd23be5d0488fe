//! The meaning of EC2's error codes.
//!
//! Decides the class of an error from its code and, for codes with several meanings, from its message. It serves
//! errors of a whole call and items of a fleet alike, and is the only place that knows EC2's codes. It doesn't decide
//! what follows from an error.
//!
//! Source of the codes: "Error codes for the Amazon EC2 API", the codes in CreateFleet's error lists, and the errors of
//! GetParameters and GetInstanceProfile in the references of Systems Manager and IAM (read November 2026).

tenon_domain::words! {
    /// The meaning of an error for the caller. Alarms and the journal have its word.
    pub enum ErrorClass {
        /// The pool (capacity type, type, zone) has nothing left: try another offering.
        InsufficientCapacity,
        /// A quota on vCPUs is used up: other families, smaller types or other capacity types may still work.
        Quota,
        /// The account may not have more instances of the pool by fleets: try another offering.
        FleetCount,
        /// A limit of the account that no other offering helps with, such as of volumes, or an account that EC2 still
        /// looks
        /// at.
        AccountLimit,
        /// The placement group has no place left in the zone.
        PlacementGroup,
        /// This type can't be launched there or so: not a matter of waiting.
        Unsupported,
        /// The subnet has no free addresses: another subnet of the zone may.
        SubnetFull,
        /// The capacity reservation is used up.
        ReservationFull,
        /// The launch template doesn't exist: create it and try again.
        TemplateMissing,
        /// The image doesn't exist or isn't available.
        ImageUnavailable,
        /// The account lacks the service-linked role for spot, and may not create it.
        ServiceLinkedRoleMissing,
        /// Too many requests: try again at the next wake.
        Throttled,
        /// The caller may not do this.
        Unauthorized,
        /// Something named in the request doesn't exist.
        NotFound,
        /// Something of that name exists already.
        AlreadyExists,
        /// The client token belongs to another request.
        TokenMismatch,
        /// The request is wrong and stays wrong.
        Invalid,
        /// EC2's own fault: try again at the next wake.
        Server,
        /// A code that isn't known here.
        Unknown,
    }
}

/// The class of an error, from EC2's code and message.
#[must_use]
pub fn classify(code: &str, message: &str) -> ErrorClass {
    in_placement_group(message)
        .or_else(|| of_image(code, message))
        .or_else(|| exact(code))
        .or_else(|| by_message(code, message))
        .unwrap_or_else(|| by_shape(code))
}

/// The message of a full spread placement group, which EC2 sends under several codes.
fn in_placement_group(message: &str) -> Option<ErrorClass> {
    let message = message.to_ascii_lowercase();
    let full = message.contains("placement group") && message.contains("limit of");
    full.then_some(ErrorClass::PlacementGroup)
}

/// Rights on an image, which its owner gives, under the codes of the caller's rights.
fn of_image(code: &str, message: &str) -> Option<ErrorClass> {
    let message = message.to_ascii_lowercase();
    let of_image = match code {
        "AuthFailure" => message.contains("authorized for images"),
        "OptInRequired" => message.contains("marketplace"),
        _ => false,
    };
    of_image.then_some(ErrorClass::ImageUnavailable)
}

/// Codes that mean one thing.
fn exact(code: &str) -> Option<ErrorClass> {
    Some(match code {
        "InsufficientInstanceCapacity"
        | "InsufficientCapacity"
        | "InsufficientHostCapacity"
        | "UnfulfillableCapacity"
        | "SpotMaxPriceTooLow" => ErrorClass::InsufficientCapacity,
        "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" => ErrorClass::Quota,
        "MaxFleetCountExceeded" => ErrorClass::FleetCount,
        "Unsupported" | "UnsupportedOperation" | "UnsupportedInstanceAttribute" => ErrorClass::Unsupported,
        "InsufficientFreeAddressesInSubnet" | "InsufficientCidrBlocks" => ErrorClass::SubnetFull,
        "ReservationCapacityExceeded" => ErrorClass::ReservationFull,
        "InvalidLaunchTemplateName.NotFoundException"
        | "InvalidLaunchTemplateId.NotFound"
        | "InvalidLaunchTemplateId.VersionNotFound" => ErrorClass::TemplateMissing,
        "InvalidAMIID.NotFound" | "InvalidAMIID.Unavailable" | "InvalidAMIID.Malformed" => {
            ErrorClass::ImageUnavailable
        }
        "InvalidPlacementGroup.Unknown" => ErrorClass::NotFound,
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => ErrorClass::ServiceLinkedRoleMissing,
        "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "RequestThrottled"
        | "EC2ThrottledException" => ErrorClass::Throttled,
        // IAM's; its model calls the same `NoSuchEntityException`.
        "NoSuchEntity" | "NoSuchEntityException" => ErrorClass::NotFound,
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "AuthFailure"
        | "OptInRequired" => ErrorClass::Unauthorized,
        "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => ErrorClass::TokenMismatch,
        "InternalError"
        | "InternalFailure"
        | "InternalServerError"
        | "ServerInternal"
        | "ServiceFailure"
        | "ServiceUnavailable"
        | "Unavailable" => ErrorClass::Server,
        _ => return None,
    })
}

/// Codes that mean several things.
fn by_message(code: &str, message: &str) -> Option<ErrorClass> {
    let says = |part: &str| message.to_ascii_lowercase().contains(part);
    match code {
        // CreateFleet reports errors of RunInstances under these general codes.
        "InvalidParameterValue" | "InvalidParameter" if says("security token") => {
            Some(ErrorClass::Unauthorized)
        }
        "InvalidFleetConfiguration" | "InvalidFleetConfig"
            if says("not supported in your requested availability zone") =>
        {
            Some(ErrorClass::Unsupported)
        }
        "LimitExceeded" | "ResourceLimitExceeded" if says("request") => Some(ErrorClass::Throttled),
        "LimitExceeded" | "ResourceLimitExceeded" => Some(ErrorClass::AccountLimit),
        _ => None,
    }
}

/// Codes by the shape that EC2 gives to their kind.
fn by_shape(code: &str) -> ErrorClass {
    if code.contains("AlreadyExists") || code.ends_with(".Duplicate") {
        ErrorClass::AlreadyExists
    } else if code.ends_with(".NotFound") || code.ends_with("NotFoundException") {
        ErrorClass::NotFound
    } else if code.ends_with("LimitExceeded")
        || code == "MaxInstanceCountExceeded"
        || code == "PendingVerification"
    {
        ErrorClass::AccountLimit
    } else if code.starts_with("Invalid")
        || code.starts_with("Missing")
        || code.starts_with("Malformed")
        || code == "ValidationError"
        || code == "ValidationException"
        || code == "UnknownParameter"
        || code == "IncorrectInstanceState"
    {
        ErrorClass::Invalid
    } else {
        ErrorClass::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: ErrorClass) {
        assert_eq!(classify(code, ""), expected, "{code}");
    }

    #[test]
    fn codes_of_fleet_items_and_calls_have_a_class() {
        for (code, class) in [
            ("InsufficientInstanceCapacity", ErrorClass::InsufficientCapacity),
            ("UnfulfillableCapacity", ErrorClass::InsufficientCapacity),
            ("MaxSpotInstanceCountExceeded", ErrorClass::Quota),
            ("VcpuLimitExceeded", ErrorClass::Quota),
            ("MaxFleetCountExceeded", ErrorClass::FleetCount),
            ("InstanceLimitExceeded", ErrorClass::AccountLimit),
            ("VolumeLimitExceeded", ErrorClass::AccountLimit),
            ("PendingVerification", ErrorClass::AccountLimit),
            ("Unsupported", ErrorClass::Unsupported),
            ("InsufficientFreeAddressesInSubnet", ErrorClass::SubnetFull),
            ("ReservationCapacityExceeded", ErrorClass::ReservationFull),
            ("InvalidLaunchTemplateName.NotFoundException", ErrorClass::TemplateMissing),
            ("InvalidLaunchTemplateName.AlreadyExistsException", ErrorClass::AlreadyExists),
            ("InvalidAMIID.NotFound", ErrorClass::ImageUnavailable),
            ("InvalidAMIID.Unavailable", ErrorClass::ImageUnavailable),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ErrorClass::ServiceLinkedRoleMissing),
            ("RequestLimitExceeded", ErrorClass::Throttled),
            ("UnauthorizedOperation", ErrorClass::Unauthorized),
            ("InvalidInstanceID.NotFound", ErrorClass::NotFound),
            ("IdempotentParameterMismatch", ErrorClass::TokenMismatch),
            ("InvalidParameterValue", ErrorClass::Invalid),
            ("InvalidBlockDeviceMapping", ErrorClass::Invalid),
            ("MissingParameter", ErrorClass::Invalid),
            ("InternalError", ErrorClass::Server),
            ("InternalServerError", ErrorClass::Server),
            ("ServiceFailure", ErrorClass::Server),
            ("NoSuchEntity", ErrorClass::NotFound),
            ("ValidationException", ErrorClass::Invalid),
            ("AddressLimitExceeded", ErrorClass::AccountLimit),
            ("FluxCapacitorEmpty", ErrorClass::Unknown),
        ] {
            check(code, class);
        }
    }

    #[test]
    fn a_right_on_an_image_is_none_of_the_caller() {
        let check =
            |code: &str, message: &str, expected| assert_eq!(classify(code, message), expected, "{code}");
        check("AuthFailure", "Not authorized for images: [ami-1]", ErrorClass::ImageUnavailable);
        check(
            "AuthFailure",
            "AWS was not able to validate the provided access credentials",
            ErrorClass::Unauthorized,
        );
        let terms = "In order to use this AWS Marketplace product you need to accept terms and subscribe.";
        check("OptInRequired", terms, ErrorClass::ImageUnavailable);
        check("OptInRequired", "You are not subscribed to this service.", ErrorClass::Unauthorized);
    }

    #[test]
    fn a_general_code_is_told_apart_by_its_message() {
        let zone =
            "Your requested instance type (m5.large) is not supported in your requested Availability Zone";
        assert_eq!(classify("InvalidFleetConfiguration", zone), ErrorClass::Unsupported);
        assert_eq!(classify("InvalidFleetConfiguration", "no overrides"), ErrorClass::Invalid);
        let spread = "You have reached the limit of 7 instances in the spread placement group in this zone";
        for code in ["InsufficientInstanceCapacity", "InvalidParameterValue", "UnfulfillableCapacity"] {
            assert_eq!(classify(code, spread), ErrorClass::PlacementGroup);
        }
        assert_eq!(
            classify("InvalidPlacementGroup.Unknown", "The placement group is unknown"),
            ErrorClass::NotFound
        );
    }
}
