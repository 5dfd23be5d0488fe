//! `tenon`, the command line: launches and their reasons, from manifests and data of this machine.
//!
//! Decides the exit status: 0 done, 1 done but the answer is "no", 2 the input or the call is wrong.

#[cfg(feature = "aws")]
mod account;
mod api;
mod args;
mod catalogue;
mod client;
mod commands;
#[cfg(feature = "aws")]
mod doctor;
mod envelope;
mod errors;
mod input;
mod output;
mod server;
mod state;
mod target;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, CliCommand};
use errors::{Failure, Problem};
use output::OutputFormat;

/// A local region makes and drops millions of small objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let (format, result) = match &cli.command {
        CliCommand::Local(args) => (args.output.format, commands::local::run(args)),
        CliCommand::Simulate(args) => (args.output.format, commands::simulate::run(args)),
        CliCommand::Types(args) => (args.output.format, commands::types::run(args)),
        CliCommand::Scenario(args) => (OutputFormat::Table, commands::scenario::run(args)),
        CliCommand::Get(args) => (args.output.format, commands::get::run(args)),
        CliCommand::Clear(args) => (args.output.format, commands::clear::run(args)),
        CliCommand::Why(args) => (args.output.format, commands::why::run(args)),
        CliCommand::Event(args) => (args.output.format, commands::event::run(args)),
        CliCommand::Doctor(args) => (args.output.format, commands::doctor::run(args)),
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(failure) => failure.report(format),
    }
}

/// A call that can't be understood; help and version come this way too, and are no errors.
fn refuse(error: &clap::Error) -> ExitCode {
    let format = asked_format();
    if !error.use_stderr() || format == OutputFormat::Table {
        // If even this can't be printed, the status still shows it.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(errors::EXIT_WRONG) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Failure::from(Problem::new(message, "see `tenon --help`")).report(format)
}

/// The requested format of an unreadable call.
fn asked_format() -> OutputFormat {
    let arguments: Vec<String> = std::env::args().collect();
    let asks = |format: &str| {
        let pairs = arguments.iter().zip(arguments.iter().skip(1));
        let apart = pairs.filter(|(flag, _)| matches!(flag.as_str(), "-o" | "--output"));
        apart.map(|(_, value)| value.as_str()).any(|value| value == format)
            || arguments.iter().any(|argument| {
                [format!("-o{format}"), format!("-o={format}"), format!("--output={format}")]
                    .contains(argument)
            })
    };
    match (asks("json"), asks("yaml")) {
        (true, _) => OutputFormat::Json,
        (false, true) => OutputFormat::Yaml,
        (false, false) => OutputFormat::Table,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn every_help_has_an_example() {
        Cli::command().debug_assert();
        let mut command = Cli::command();
        let texts: Vec<String> = std::iter::once(command.render_help().to_string())
            .chain(Cli::command().get_subcommands_mut().map(|command| command.render_help().to_string()))
            .collect();
        for text in texts {
            assert!(text.contains("Example"), "{text}");
        }
    }
}
