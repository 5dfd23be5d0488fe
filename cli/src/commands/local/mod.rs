//! `tenon local`: a whole region and cluster on this machine, without an AWS account.
//!
//! Decides the speed of virtual time, the end of the run, and a running region's answers. It waits only before a due
//! thing, and then moves the region by that. So the speed changes no line, and one seed gives the same lines at every
//! speed.

mod answers;
mod bill;
mod lines;
mod live;
mod pace;
mod region;

use tenon_domain::Timestamp;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::{Player, Progress};

use crate::api::ApiRequest;
use crate::args::{LocalArgs, Speed, Until};
use crate::errors::{CommandOutcome, Failure, Problem};
use crate::output::OutputReader;
use crate::server::Server;

use lines::{Ending, OutputLines};
use pace::LocalPace;
use region::LocalRegion;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// `--until` is reached, or the scenario is over and nothing keeps it up.
    Reached,
    /// Ctrl-C, or a closed output.
    Stopped,
}

/// Runs the command.
pub(crate) fn run(args: &LocalArgs) -> Result<CommandOutcome, Failure> {
    if let Some(kubeconfig) = &args.kubeconfig {
        return live::run(args, kubeconfig);
    }
    let world = LocalRegion::new(args)?;
    if args.bill {
        return bill::run(world, args);
    }
    let server = serve(args)?;
    let lines = OutputLines::new(args.output.format, world.region.started());
    let mut local = Local {
        player: Player::new(&world.scenario),
        pace: LocalPace::new(args.speed, world.region.now()),
        deadline: deadline(args, world.region.now()),
        told_what_next: false,
        world,
        server,
        lines,
        until: args.until,
    };
    local.lines.begin(&local.world, args.speed, local.server.as_ref().map(|server| server.port))?;
    let ended = local.run()?;
    let settled = local.world.region.unsettled().0;
    let ending = match (ended, local.until) {
        (Ended::Stopped, _) => Ending::Stopped,
        (Ended::Reached, _) => Ending::Reached,
    };
    local.lines.end(&local.world.region, &settled, ending)?;
    match ended {
        Ended::Stopped => Ok(CommandOutcome::Done),
        Ended::Reached if settled.is_empty() => Ok(CommandOutcome::Done),
        Ended::Reached => Ok(CommandOutcome::No),
    }
}

/// A run at full speed has ended before anybody could ask; otherwise the region answers while it is up.
fn serve(args: &LocalArgs) -> Result<Option<Server>, Failure> {
    match (args.port, args.speed) {
        (None, Speed::Max) if args.until.is_some() => Ok(None),
        (port, Speed::Max | Speed::Times(_)) => {
            Server::start(port.unwrap_or(crate::args::DEFAULT_PORT)).map(Some)
        }
    }
}

fn deadline(args: &LocalArgs, start: Timestamp) -> Timestamp {
    match args.until {
        Some(Until::Elapsed(duration)) => start.checked_add(duration).unwrap_or(Timestamp::MAX),
        Some(Until::Settled) | None => Timestamp::MAX,
    }
}

struct Local {
    world: LocalRegion,
    player: Player,
    pace: LocalPace,
    deadline: Timestamp,
    server: Option<Server>,
    lines: OutputLines,
    until: Option<Until>,
    told_what_next: bool,
}

impl Local {
    fn run(&mut self) -> Result<Ended, Failure> {
        loop {
            let done = self.player.is_done();
            if self.world.region.now() >= self.deadline || (done && self.until == Some(Until::Settled)) {
                return Ok(Ended::Reached);
            }
            if done && self.until.is_none() && !self.told_what_next {
                self.told_what_next = true;
                let port = self.server.as_ref().map(|server| server.port);
                self.lines.what_next(&self.world.region, port)?;
                self.pace.slow_down(self.world.region.now());
            }
            if self.wait() == Some(Ended::Stopped) {
                return Ok(Ended::Stopped);
            }
            self.advance()?;
            for happening in self.lines.worth_telling(self.world.region.take_happenings()) {
                if self.lines.happened(&happening)? == OutputReader::Gone {
                    return Ok(Ended::Stopped);
                }
            }
        }
    }

    /// Waits until the next due thing may happen, and answers requests meanwhile.
    fn wait(&mut self) -> Option<Ended> {
        let due = self.world.region.next_due().unwrap_or(self.deadline).min(self.deadline);
        // A region that stays up goes no faster than people can ask; a scenario's immediate steps continue.
        loop {
            let left = self.pace.left_until(due);
            let ask = match &self.server {
                Some(server) => server.next(left),
                None => {
                    std::thread::sleep(left);
                    None
                }
            };
            match ask {
                Some(ask) if ask.request == ApiRequest::Stop => return Some(Ended::Stopped),
                Some(ask) => {
                    let answer = answers::answer(&mut self.world, &ask.request);
                    ask.answer(answer);
                    // A request may make something due earlier.
                    if self.world.region.next_due().is_some_and(|next| next < due) {
                        return None;
                    }
                }
                None if self.pace.left_until(due).is_zero() => return None,
                None => {}
            }
        }
    }

    fn advance(&mut self) -> Result<(), Failure> {
        let region = &mut self.world.region;
        if self.player.is_done() {
            move_on(region, self.deadline);
            return Ok(());
        }
        match self.player.advance(region, self.deadline) {
            Ok(Progress::At(_) | Progress::Step(..) | Progress::Done) => Ok(()),
            Err(message) => {
                let remedy = "change the scenario's step: see docs/scenarios.md";
                Err(Problem::new(message, remedy).in_file(&self.world.name).into())
            }
        }
    }
}

fn move_on(region: &mut SimulatedRegion, deadline: Timestamp) {
    if region.step(deadline).is_none() {
        region.run_until(deadline);
    }
}
