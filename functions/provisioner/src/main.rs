//! The function `provisioner`: configuration, clients, run.

use std::process::ExitCode;

use tenon_lambda::{AwsPorts, FunctionConfiguration};
use tenon_provisioner::Provisioner;

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::run(&Provisioner::default(), &ports).await
    })
}
