//! The process: logs, a runtime with one thread, and Lambda's loop of invocations.
//!
//! Decides how a process starts and ends. One thread is enough: an environment has one invocation at a time, which
//! mostly waits for answers, and less than one processor below 1,769 MB.

use std::future::Future;
use std::process::ExitCode;

use lambda_runtime::{Context, Diagnostic, LambdaEvent, service_fn};
use serde::Serialize;
use serde_json::Value;
use tenon_runtime::batch::Shares;
use tenon_runtime::error::chain;
use tenon_runtime::{Handler, Ports};

use crate::configuration::ConfigurationError;
use crate::invocation::{InvocationError, invoke};
use crate::log;

/// Why a function couldn't start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its environment is invalid.
    #[error("configuration")]
    Configuration(#[from] ConfigurationError),
    /// The operating system gave it no event loop.
    #[error("can't start the event loop")]
    EventLoop(#[from] std::io::Error),
    /// The request to Lambda for an invocation failed.
    #[error("can't get an invocation from Lambda")]
    Lambda(#[source] lambda_runtime::Error),
}

impl StartError {
    /// The stable name that alarms key on.
    #[must_use]
    pub const fn error_type(&self) -> &'static str {
        match self {
            Self::Configuration(_) => "Configuration",
            Self::EventLoop(_) => "EventLoop",
            Self::Lambda(_) => "Lambda",
        }
    }
}

/// A function's process: runs `function` until it fails, and logs the error.
pub fn main(function: impl Future<Output = Result<(), StartError>>) -> ExitCode {
    log::begin();
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::EventLoop)
        .and_then(|runtime| runtime.block_on(function));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error_type = error.error_type(), "{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Runs a handler for Lambda's invocations: batches of its queue, and direct events.
///
/// # Errors [`StartError::Lambda`] if the request for the next invocation fails.
pub async fn run<H: Handler, P: Ports>(handler: &H, ports: &P) -> Result<(), StartError> {
    let shares = &Shares::default();
    serve(|payload, context| {
        let deadline = context.deadline();
        invoke((handler, shares), ports, payload, deadline)
    })
    .await
}

/// Answers Lambda's invocations one after the other.
///
/// # Errors [`StartError::Lambda`] if the request for the next invocation fails.
pub async fn serve<F, A, R>(answer: F) -> Result<(), StartError>
where
    F: Fn(Value, Context) -> A,
    A: Future<Output = Result<R, InvocationError>>,
    R: Serialize,
{
    let service = service_fn(|event: LambdaEvent<Value>| answer(event.payload, event.context));
    // Boxed, here and where other deep futures begin: as one type they are deeper than the compiler looks.
    Box::pin(lambda_runtime::run(service)).await.map_err(StartError::Lambda)
}

impl From<InvocationError> for Diagnostic {
    fn from(error: InvocationError) -> Self {
        Self { error_type: error.error_type.to_owned(), error_message: error.message }
    }
}
