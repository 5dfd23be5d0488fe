//! The function `registry`: configuration, clients, run.

use std::process::ExitCode;

use tenon_lambda::{AwsPorts, FunctionConfiguration};
use tenon_registry::respond::{origins, read, respond};
use tenon_runtime::Ports;

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let origins = origins(&configuration.installation.region)?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::serve(|payload, _| async {
            let request = read(payload, &origins)?;
            let answer =
                tenon_registry::answer(ports.table(), ports.signals(), ports.installation(), &request).await;
            respond(&request, &answer).await
        })
        .await
    })
}
