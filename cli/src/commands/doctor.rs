//! `tenon doctor`: checks an account and a cluster.
//!
//! Decides only the advice if this build can't reach an account.

use crate::args::DoctorArgs;
use crate::errors::{CommandOutcome, Failure};

/// Runs the command.
#[cfg(feature = "aws")]
pub(crate) fn run(args: &DoctorArgs) -> Result<CommandOutcome, Failure> {
    crate::doctor::run(args)
}

/// Runs the command.
#[cfg(not(feature = "aws"))]
pub(crate) fn run(args: &DoctorArgs) -> Result<CommandOutcome, Failure> {
    let (region, installation) = (args.region.resolve()?, &args.installation);
    let cluster = args.cluster.as_ref().map_or(String::new(), |name| format!(" and cluster `{name}`"));
    let message = format!(
        "this build of tenon reads no AWS account, so it can't check installation `{installation}`{cluster} in `{region}`"
    );
    let remedy = "build it with `cargo build --release --bin tenon --features aws`";
    Err(crate::errors::Problem::new(message, remedy).into())
}
