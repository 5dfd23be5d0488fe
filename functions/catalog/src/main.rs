//! The function `catalog`: configuration, clients, run.

use std::process::ExitCode;

use tenon_catalog::CatalogFunction;
use tenon_lambda::{AwsPorts, FunctionConfiguration};

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::run(&CatalogFunction::default(), &ports).await
    })
}
