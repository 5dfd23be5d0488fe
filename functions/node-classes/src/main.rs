//! The function `node-classes`: configuration, clients, run.

use std::process::ExitCode;

use tenon_lambda::{AwsPorts, FunctionConfiguration};
use tenon_node_classes::NodeClasses;

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::run(&NodeClasses::default(), &ports).await
    })
}
