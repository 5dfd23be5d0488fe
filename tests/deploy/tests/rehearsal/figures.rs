//! Times of the deployed stack, warm. They are printed but not judged, because the machine is shared.

use std::time::{Duration, Instant};

use crate::images::{state, state_change};
use crate::launches::launch;
use crate::network::make_image;
use crate::wait::timed;
use crate::world::{RehearsalWorld, rehearse};

/// The samples of a median.
const ROUNDS: usize = 20;
/// Rounds before that count for nothing: binaries start, and read the catalogue.
const WARM_UP: usize = 2;

fn row(what: &str, mut took: Vec<Duration>) -> String {
    took.sort();
    let middle = (took[ROUNDS / 2 - 1] + took[ROUNDS / 2]) / 2;
    let [median, least, most] = [middle, took[0], took[ROUNDS - 1]].map(|d| d.as_millis());
    format!("| {what} | {median} ms | {least} ms | {most} ms |")
}

async fn doorbell_to_instance(world: &RehearsalWorld) -> Duration {
    let (rung, seen, _) = launch(world).await;
    world.account.settled().await;
    seen - rung
}

async fn event_to_record(world: &RehearsalWorld, n: usize) -> Duration {
    let account = &world.account;
    let image = make_image(&account.ec2, &format!("figure-{n}")).await;
    let sent = Instant::now();
    account.send("images", &state_change(&image, "available").to_string()).await;
    let (_, seen) = timed("the record", || state(account, &image)).await;
    account.settled().await;
    seen - sent
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn figures() {
    rehearse(|world| async {
        let (mut launches, mut records) = (Vec::new(), Vec::new());
        for n in 0..WARM_UP + ROUNDS {
            launches.push(doorbell_to_instance(world).await);
            records.push(event_to_record(world, n).await);
        }
        println!("| through the deployed stack, warm | median of {ROUNDS} | least | most |");
        println!("|---|---|---|---|");
        println!("{}", row("from a doorbell to the instance in moto", launches.split_off(WARM_UP)));
        println!("{}", row("from an AMI event to the record", records.split_off(WARM_UP)));
    });
}
