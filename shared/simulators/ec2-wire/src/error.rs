//! Errors on the wire.
//!
//! Decides code and HTTP status. The twin's errors lack some parts of EC2's texts, which are added here.

use tenon_domain::id::ParseIdError;
use tenon_ec2::{Class, Ec2Error};

use crate::xml::Xml;

/// An error as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// An error that the request is to blame for.
pub(crate) fn refused(code: &str, message: impl Into<String>) -> Refusal {
    Refusal { status: 400, code: code.to_owned(), message: message.into() }
}

pub(crate) fn missing(parameter: &str) -> Refusal {
    refused("MissingParameter", format!("The request must contain the parameter {parameter}"))
}

pub(crate) fn invalid(parameter: &str, value: &str) -> Refusal {
    refused("InvalidParameterValue", format!("Invalid value '{value}' for {parameter}."))
}

pub(crate) fn malformed(error: &ParseIdError) -> Refusal {
    refused("InvalidParameterValue", format!("Invalid id: '{}' (expecting {})", error.value, error.expected))
}

/// The response to a failed call of the twin; `None` if no answer is sent.
pub(crate) fn of_call(error: Ec2Error) -> Option<Refusal> {
    let of_class = |class: Class| match class {
        Class::Unauthorized => 403,
        Class::Throttled => 503,
        Class::Server => 500,
        Class::InsufficientCapacity
        | Class::Quota
        | Class::FleetCount
        | Class::AccountLimit
        | Class::PlacementGroup
        | Class::Unsupported
        | Class::SubnetFull
        | Class::ReservationFull
        | Class::TemplateMissing
        | Class::ImageUnavailable
        | Class::ServiceLinkedRoleMissing
        | Class::NotFound
        | Class::AlreadyExists
        | Class::TokenMismatch
        | Class::Invalid
        | Class::Unknown => 400,
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
    Some(Refusal { status, code, message })
}

impl Refusal {
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
