//! The error of a call to EC2: it tells the caller what to do next.
//!
//! Decides how a code and a message become a value; [`classify`] knows the meaning of codes.

use crate::classify::{ErrorClass, classify};
use crate::port::ASSUME_ROLE;

/// The IAM action of a call, with its service's prefix.
#[must_use]
pub fn right_of(action: &str) -> String {
    let service = match action {
        "GetManagedResource" => "arc-zonal-shift",
        "GetParameters" => "ssm",
        "GetInstanceProfile" => "iam",
        "GetProducts" => "pricing",
        "DecodeAuthorizationMessage" | ASSUME_ROLE => "sts",
        _ => "ec2",
    };
    format!("{service}:{action}")
}

/// A call to EC2 that failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Ec2Error {
    /// Too many requests: try again at the next wake.
    #[error("`{action}` was throttled by EC2")]
    Throttled {
        /// The call.
        action: String,
    },
    /// Something that the request names doesn't exist, or isn't visible yet.
    #[error("`{action}`: {message} (`{code}`)")]
    NotFound {
        /// The call.
        action: String,
        /// EC2's code.
        code: String,
        /// The ids or names that EC2 named, in its order.
        ids: Vec<String>,
        /// EC2's words.
        message: String,
    },
    /// Something of that name exists already.
    #[error("`{action}`: {message} (`{code}`)")]
    AlreadyExists {
        /// The call.
        action: String,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: String,
    },
    /// The caller may not do this.
    #[error("not authorized to perform `{action}`: {}", decoded.as_deref().unwrap_or("decode EC2's message with `aws sts decode-authorization-message`"))]
    Unauthorized {
        /// The call.
        action: String,
        /// The decoded message, where the caller may decode it.
        decoded: Option<String>,
        /// EC2's words, with the encoded message in them.
        message: String,
    },
    /// The client token belongs to another request: a defect of the caller.
    #[error("`{action}`: the client token was used before with another request: {message}")]
    IdempotentParameterMismatch {
        /// The call.
        action: String,
        /// EC2's words.
        message: String,
    },
    /// A capacity, quota or support error of the whole call; see `class`.
    #[error("`{action}` was refused: {message} (`{code}`)")]
    Refused {
        /// The call.
        action: String,
        /// The meaning of the code.
        class: ErrorClass,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: String,
    },
    /// The request is wrong and stays wrong.
    #[error("`{action}`: {message} (`{code}`)")]
    Invalid {
        /// The call.
        action: String,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: String,
    },
    /// EC2's own fault: try again at the next wake.
    #[error("`{action}` failed inside EC2: {message} (`{code}`)")]
    ServerError {
        /// The call.
        action: String,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: String,
    },
    /// No answer came: the call may have taken effect or not.
    #[error("`{action}` got no answer and may have taken effect")]
    NoAnswer {
        /// The call.
        action: String,
    },
    /// A code that isn't known.
    #[error("`{action}`: {message} (unknown code `{code}`)")]
    Unknown {
        /// The call.
        action: String,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: String,
    },
}

impl Ec2Error {
    /// The error for EC2's code and message; every adapter makes its errors here.
    #[must_use]
    pub fn from_code(action: &str, code: &str, message: &str) -> Self {
        let (action, code, message) = (action.to_owned(), code.to_owned(), message.to_owned());
        match classify(&code, &message) {
            ErrorClass::Throttled => Self::Throttled { action },
            ErrorClass::NotFound | ErrorClass::TemplateMissing | ErrorClass::ImageUnavailable => {
                let ids = quoted(&message);
                Self::NotFound { action, code, ids, message }
            }
            ErrorClass::AlreadyExists => Self::AlreadyExists { action, code, message },
            ErrorClass::Unauthorized => Self::Unauthorized { action, decoded: None, message },
            ErrorClass::TokenMismatch => Self::IdempotentParameterMismatch { action, message },
            class @ (ErrorClass::InsufficientCapacity
            | ErrorClass::Quota
            | ErrorClass::FleetCount
            | ErrorClass::AccountLimit
            | ErrorClass::PlacementGroup
            | ErrorClass::Unsupported
            | ErrorClass::SubnetFull
            | ErrorClass::ReservationFull
            | ErrorClass::ServiceLinkedRoleMissing) => Self::Refused { action, class, code, message },
            ErrorClass::Invalid => Self::Invalid { action, code, message },
            ErrorClass::Server => Self::ServerError { action, code, message },
            ErrorClass::Unknown => Self::Unknown { action, code, message },
        }
    }

    /// Why EC2 couldn't be asked by a cluster's launch role, in a sentence with the remedy; `None` for any other error.
    #[must_use]
    pub fn without_launch_role(&self) -> Option<&str> {
        match self {
            Self::Unauthorized { action, decoded, .. } if action == ASSUME_ROLE => decoded.as_deref(),
            Self::Unauthorized { .. }
            | Self::Throttled { .. }
            | Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::IdempotentParameterMismatch { .. }
            | Self::Refused { .. }
            | Self::Invalid { .. }
            | Self::ServerError { .. }
            | Self::NoAnswer { .. }
            | Self::Unknown { .. } => None,
        }
    }

    /// The meaning of the error. `NoAnswer` is of class `Server`: only that a retry is worthwhile.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Throttled { .. } => ErrorClass::Throttled,
            Self::NotFound { code, message, .. } => classify(code, message),
            Self::AlreadyExists { .. } => ErrorClass::AlreadyExists,
            Self::Unauthorized { .. } => ErrorClass::Unauthorized,
            Self::IdempotentParameterMismatch { .. } => ErrorClass::TokenMismatch,
            Self::Refused { class, .. } => *class,
            Self::Invalid { .. } => ErrorClass::Invalid,
            Self::ServerError { .. } | Self::NoAnswer { .. } => ErrorClass::Server,
            Self::Unknown { .. } => ErrorClass::Unknown,
        }
    }
}

/// The text between single quotes in EC2's messages: `The instance IDs 'i-1, i-2' do not exist`.
fn quoted(message: &str) -> Vec<String> {
    message
        .split('\'')
        .skip(1)
        .step_by(2)
        .flat_map(|part| part.split(", "))
        .map(|id| id.trim_matches(['[', ']']).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_that_ec2_misses_are_read_from_its_message() {
        let error = Ec2Error::from_code(
            "TerminateInstances",
            "InvalidInstanceID.NotFound",
            "The instance IDs 'i-1, i-2' do not exist",
        );
        let Ec2Error::NotFound { ids, .. } = &error else { panic!("{error:?}") };
        assert_eq!(ids, &["i-1", "i-2"]);
        assert_eq!(error.class(), ErrorClass::NotFound);
    }

    #[test]
    fn a_capacity_error_of_a_whole_call_keeps_its_class() {
        let error =
            Ec2Error::from_code("RunInstances", "InsufficientInstanceCapacity", "no m5.large in us-east-1a");
        assert_eq!(error.class(), ErrorClass::InsufficientCapacity);
        assert_eq!(
            error.to_string(),
            "`RunInstances` was refused: no m5.large in us-east-1a (`InsufficientInstanceCapacity`)"
        );
    }

    #[test]
    fn an_unauthorized_error_says_how_to_learn_more() {
        let error = Ec2Error::from_code("CreateFleet", "UnauthorizedOperation", "Encoded: x");
        assert_eq!(
            error.to_string(),
            "not authorized to perform `CreateFleet`: decode EC2's message with `aws sts decode-authorization-message`"
        );
    }
}
