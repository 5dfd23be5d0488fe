//! The function `provisioner`: configuration, clients, run.

use std::process::ExitCode;

use tenon_lambda::{AwsPorts, FunctionConfiguration};
use tenon_provisioner::Provisioner;

/// A large plan takes a fifth less time with it than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::run(&Provisioner::default(), &ports).await
    })
}
