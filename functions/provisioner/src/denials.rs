//! Denied calls, read: what EC2's words leave out, STS decodes.
//!
//! Decides when STS is asked: for a message whose words don't name the kind of policy, once. It doesn't decide what a
//! denial means to a class.
//!
//! Invariant: of a decoded message only what [`Denial`] keeps leaves this module. Without an answer of STS the denial
//! says how a person decodes it.

use tenon_ec2::{AuthorizationMessages, Denial, DenialCause, Ec2Error, encoded_message, right_of};
use tenon_runtime::Ports;

use crate::settle::LaunchAnswer;

/// The denial of a call, by EC2's words.
pub(crate) async fn denial<P: Ports>(ports: &P, action: &str, words: &str) -> Denial {
    let plain = Denial::read(&right_of(action), words);
    let (DenialCause::Untold, Some(encoded)) = (plain.cause, encoded_message(words)) else { return plain };
    match ports.ec2().decoded_message(encoded).await {
        Ok(message) => plain.decoded(&message),
        // It isn't allowed, or STS isn't reached: it was worth one try.
        Err(_) => plain,
    }
}

/// A launch's answer with denials as they may be stored: without principals, ids and encoded messages. One message is
/// decoded: the others are about the same right.
pub(crate) async fn told<P: Ports>(ports: &P, answer: LaunchAnswer) -> LaunchAnswer {
    match answer {
        LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded: None, message })
            if says_more(&message) =>
        {
            let decoded = Some(denial(ports, &action, &message).await.to_string());
            LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded, message })
        }
        LaunchAnswer::Fleet(mut result) => {
            let mut encoded: Option<String> = None;
            for error in result.errors.iter_mut().filter(|error| says_more(&error.message)) {
                let plain = Denial::read(&right_of(LAUNCHES), &error.message);
                error.message = match (plain.cause, &encoded) {
                    (DenialCause::Denied(_) | DenialCause::NotAllowed(_), _) => plain.to_string(),
                    (DenialCause::Untold, Some(told)) => told.clone(),
                    (DenialCause::Untold, None) => {
                        let told = denial(ports, LAUNCHES, &error.message).await.to_string();
                        encoded.insert(told).clone()
                    }
                };
            }
            LaunchAnswer::Fleet(result)
        }
        answer @ (LaunchAnswer::Refused(_) | LaunchAnswer::Found(_)) => answer,
    }
}

/// The call that a fleet makes for its items.
const LAUNCHES: &str = "RunInstances";

/// Whether EC2's words are about a denied call, and have more than that.
fn says_more(words: &str) -> bool {
    words.contains("authorized to perform")
        && (encoded_message(words).is_some() || Denial::read("", words).cause != DenialCause::Untold)
}
