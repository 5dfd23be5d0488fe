//! The agent in a cluster: configuration, clients, run.

use std::process::ExitCode;

use tenon_agent::binary::{AgentConfiguration, logging, run};

/// Returns the pages of large lists, which the system's allocator keeps. It uses no huge pages: a few live kilobytes
/// would keep two megabytes each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    logging::start();
    let configuration = match AgentConfiguration::read(|name| std::env::var(name).ok()) {
        Ok(configuration) => configuration,
        Err(errors) => {
            tracing::error!(error_type = "Configuration", "{errors}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(error_type = "Runtime", %error, "can't start the async runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(configuration)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error_type = "Start", error = %logging::chain(&*error), "the agent can't start");
            ExitCode::FAILURE
        }
    }
}
