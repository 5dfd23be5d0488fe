//! A failed call, and its error of the port.
//!
//! Decides whether a call may have taken effect, and reads code, message and request id. It is the only path from the
//! SDK's errors to the port's; only `tenon_ec2::classify` knows the meaning of codes.
//!
//! The request id isn't part of the port's error, because it differs at each call, and conditions and the journal
//! must change only with their meaning. It is in the [`FailedCallSink`].

use std::error::Error;
use std::sync::Arc;

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ErrorMetadata, ProvideErrorMetadata, SdkError};
use aws_types::request_id::RequestId;
use tenon_ec2::{Ec2Error, ErrorClass, classify};

/// Receives failed calls, to log them with their request ids.
pub type FailedCallSink = Arc<dyn Fn(&FailedCall) + Send + Sync>;

/// The code of errors that EC2 sends without one.
const NO_CODE: &str = "NoCode";

/// Whether a failed call took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEffect {
    /// It wasn't sent.
    None,
    /// AWS answered that it did nothing, or why.
    Answered,
    /// It may have been sent, and no answer came that can be read: it may have taken effect.
    Unknown,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedCall {
    /// The call, by AWS's name.
    pub action: &'static str,
    /// Whether it took effect.
    pub effect: CallEffect,
    /// The answer's HTTP status, where one came.
    pub status: Option<u16>,
    /// AWS's code; `NoCode` where it sent none.
    pub code: String,
    /// AWS's message, or the reason why there is no answer.
    pub message: String,
    /// The request's id, if an answer came; AWS's support asks for it.
    pub request_id: Option<String>,
}

impl FailedCall {
    /// The facts about a failed call.
    pub(crate) fn of<E>(action: &'static str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let status = error.raw_response().map(|response| response.status().as_u16());
        let meta: &ErrorMetadata = error.meta();
        let request_id = meta.request_id().or_else(|| error.request_id()).map(str::to_owned);
        let (effect, code, message) = match error {
            // It succeeded with an unreadable answer, which the SDK reports as the service's error.
            SdkError::ServiceError(_) if status.is_some_and(|status| status < 300) => {
                (CallEffect::Unknown, None, chain(error))
            }
            SdkError::ServiceError(_) => (
                CallEffect::Answered,
                meta.code().filter(|code| !code.is_empty()),
                meta.message().unwrap_or_default().to_owned(),
            ),
            // An error without a readable body, such as a load balancer's.
            SdkError::ResponseError(_) if status.is_some_and(|status| status >= 400) => {
                (CallEffect::Answered, None, chain(error))
            }
            SdkError::ConstructionFailure(_) => (CallEffect::None, None, chain(error)),
            // The request may have arrived. Future variants of the SDK are treated the same.
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) | _ => {
                (CallEffect::Unknown, None, chain(error))
            }
        };
        Self { action, effect, status, code: code.unwrap_or(NO_CODE).to_owned(), message, request_id }
    }

    /// The error of the port.
    pub(crate) fn into_error(self) -> Ec2Error {
        let action = self.action.to_owned();
        let (code, message) = (self.code, self.message);
        match self.effect {
            CallEffect::Unknown => Ec2Error::NoAnswer { action },
            CallEffect::None => Ec2Error::Invalid { action, code: "NotSent".to_owned(), message },
            CallEffect::Answered => {
                // A server's failure is never the request's fault, whatever its code.
                let of_server = self.status.is_some_and(|status| status >= 500);
                if of_server && classify(&code, &message) == ErrorClass::Unknown {
                    Ec2Error::ServerError { action, code, message }
                } else {
                    Ec2Error::from_code(&action, &code, &message)
                }
            }
        }
    }
}

/// The answer of a call, or the port's error; a failed call is reported.
pub(crate) fn answer<T, E>(
    report: Option<&FailedCallSink>,
    action: &'static str,
    sent: Result<T, SdkError<E, HttpResponse>>,
) -> Result<T, Ec2Error>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    sent.map_err(|error| {
        let failed = FailedCall::of(action, &error);
        if let Some(report) = report {
            report(&failed);
        }
        failed.into_error()
    })
}

/// An error with all that caused it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
