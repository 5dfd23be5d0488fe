//! The function `interruption`: configuration, clients, run.

use std::process::ExitCode;

use tenon_interruption::Interruption;
use tenon_lambda::{AwsPorts, FunctionConfiguration};

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::run(&Interruption, &ports).await
    })
}
