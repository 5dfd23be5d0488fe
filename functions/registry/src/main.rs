//! The function `registry`: configuration, clients, run.

use std::process::ExitCode;

use tenon_lambda::{AwsPorts, FunctionConfiguration};
use tenon_registry::respond::{read, respond};
use tenon_runtime::Ports;

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::serve(|payload, _| async {
            let request = read(payload)?;
            let answer = tenon_registry::answer(ports.table(), ports.installation(), &request).await;
            respond(&request, &answer).await
        })
        .await
    })
}
