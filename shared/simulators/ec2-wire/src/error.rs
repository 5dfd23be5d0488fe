//! Errors on the wire.
//!
//! Decides code and HTTP status. The twin's errors lack some parts of EC2's texts, which are added here.

use tenon_domain::id::ParseIdError;
use tenon_ec2::{Ec2Error, ErrorClass};

use crate::xml::Xml;

/// An error as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireError {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// An error that the request is to blame for.
pub(crate) fn refused(code: &str, message: impl Into<String>) -> WireError {
    WireError { status: 400, code: code.to_owned(), message: message.into() }
}

pub(crate) fn missing(parameter: &str) -> WireError {
    refused("MissingParameter", format!("The request must contain the parameter {parameter}"))
}

pub(crate) fn invalid(parameter: &str, value: &str) -> WireError {
    refused("InvalidParameterValue", format!("Invalid value '{value}' for {parameter}."))
}

pub(crate) fn malformed(error: &ParseIdError) -> WireError {
    refused("InvalidParameterValue", format!("Invalid id: '{}' (expecting {})", error.value, error.expected))
}

/// The response to a failed call of the twin; `None` if no answer is sent.
pub(crate) fn of_call(error: Ec2Error) -> Option<WireError> {
    let of_class = |class: ErrorClass| match class {
        ErrorClass::Unauthorized => 403,
        ErrorClass::Throttled => 503,
        ErrorClass::Server => 500,
        ErrorClass::InsufficientCapacity
        | ErrorClass::Quota
        | ErrorClass::FleetCount
        | ErrorClass::AccountLimit
        | ErrorClass::PlacementGroup
        | ErrorClass::Unsupported
        | ErrorClass::SubnetFull
        | ErrorClass::ReservationFull
        | ErrorClass::TemplateMissing
        | ErrorClass::ImageUnavailable
        | ErrorClass::ServiceLinkedRoleMissing
        | ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::TokenMismatch
        | ErrorClass::Invalid
        | ErrorClass::Unknown => 400,
    };
    let status = of_class(error.class());
    let (code, message) = match error {
        Ec2Error::NoAnswer { .. } => return None,
        Ec2Error::Throttled { .. } => {
            ("RequestLimitExceeded".to_owned(), "Request limit exceeded.".to_owned())
        }
        Ec2Error::Unauthorized { message, .. } => ("UnauthorizedOperation".to_owned(), message),
        Ec2Error::IdempotentParameterMismatch { message, .. } => {
            ("IdempotentParameterMismatch".to_owned(), message)
        }
        Ec2Error::NotFound { code, message, .. }
        | Ec2Error::AlreadyExists { code, message, .. }
        | Ec2Error::Refused { code, message, .. }
        | Ec2Error::Invalid { code, message, .. }
        | Ec2Error::ServerError { code, message, .. }
        | Ec2Error::Unknown { code, message, .. } => (code, message),
    };
    Some(WireError { status, code, message })
}

/// The statuses and codes of a service that calls a throttled and a denied call otherwise than EC2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnCodes {
    pub(crate) throttled: (u16, &'static str),
    pub(crate) denied: (u16, &'static str),
}

/// The response of a service with codes of its own; `None` if no answer is sent.
pub(crate) fn of_service_call(error: Ec2Error, codes: OwnCodes) -> Option<WireError> {
    let class = error.class();
    let refusal = of_call(error)?;
    let own =
        |(status, code): (u16, &str), message: String| WireError { status, code: code.to_owned(), message };
    Some(if class == ErrorClass::Throttled {
        own(codes.throttled, "Rate exceeded".to_owned())
    } else if class == ErrorClass::Unauthorized {
        own(codes.denied, refusal.message)
    } else {
        refusal
    })
}

/// The error document of IAM and STS.
pub(crate) fn service_document(refusal: &WireError, request_id: &str) -> String {
    Xml::document("ErrorResponse", |xml| {
        xml.within("Error", |xml| {
            xml.text("Type", if refusal.status < 500 { "Sender" } else { "Receiver" });
            xml.text("Code", &refusal.code);
            xml.text("Message", &refusal.message);
        });
        xml.text("RequestId", request_id);
    })
}

impl WireError {
    /// EC2's error document.
    pub(crate) fn document(&self, request_id: &str) -> String {
        Xml::document("Response", |xml| {
            xml.within("Errors", |xml| {
                xml.within("Error", |xml| {
                    xml.text("Code", &self.code);
                    xml.text("Message", &self.message);
                });
            });
            xml.text("RequestID", request_id);
        })
    }
}
