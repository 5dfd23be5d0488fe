//! Calls that the twin's caller may not make, and what EC2 says of them.
//!
//! Decides the words of a denial. Not modelled: policies. A test says which call is denied, and how EC2 tells it.

use tenon_ec2::{DecodedMessage, Ec2Error, encoded_message};

use super::call::Call;
use super::state::{TwinState, error};

/// How a denied call is told.
#[derive(Debug, Clone)]
pub(super) enum DeniedCall {
    /// Plainly.
    Told(String),
    /// By an encoded message with this content.
    Encoded(String),
}

const NOT_AUTHORIZED: &str = "You are not authorized to perform this operation.";

impl DeniedCall {
    /// The words as a caller knows them that decoded them before.
    pub(super) fn decoded(&self) -> Option<String> {
        match self {
            Self::Told(words) => Some(words.clone()),
            Self::Encoded(_) => None,
        }
    }

    /// EC2's words.
    pub(super) fn words(&self, call: Call) -> String {
        match self {
            Self::Told(_) => NOT_AUTHORIZED.to_owned(),
            Self::Encoded(_) => {
                format!("{NOT_AUTHORIZED} Encoded authorization failure message: twin-{}", call.as_str())
            }
        }
    }
}

impl TwinState {
    /// DecodeAuthorizationMessage.
    pub(super) fn decoded_message(&self, encoded: &str) -> Result<DecodedMessage, Ec2Error> {
        let is_this = |(call, denied): &(&Call, &DeniedCall)| {
            encoded_message(&denied.words(**call)).is_some_and(|known| known == encoded)
        };
        match self.denied.iter().find(is_this) {
            Some((_, DeniedCall::Encoded(content))) => Ok(DecodedMessage::new(content.clone())),
            Some((_, DeniedCall::Told(_))) | None => Err(error(
                Call::DecodeAuthorizationMessage,
                "InvalidAuthorizationMessageException",
                "The message could not be decoded.",
            )),
        }
    }
}
