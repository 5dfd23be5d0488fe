//! Times of the deployed stack, warm. They are printed but not judged, because the machine is shared.

use std::time::{Duration, Instant};

use aws_sdk_ec2::types::Tag;
use jiff::Timestamp;
use serde_json::json;

use crate::account::put_event;
use crate::classes::{PIPELINE_TAG, class, ready, status};
use crate::images::{state, state_change};
use crate::launches::launch;
use crate::network::make_image;
use crate::wait::timed;
use crate::world::{RehearsalWorld, rehearse};

/// The samples of a median.
const ROUNDS: usize = 20;
/// Rounds before that count for nothing: binaries start, and read the catalogue.
const WARM_UP: usize = 2;
/// A class of a pipeline's images.
const GOLDEN: &str = "golden";

/// Whose event announces an image.
#[derive(Debug, Clone, Copy)]
enum Announcer {
    /// The pipeline's, on the installation's bus.
    Pipeline,
    /// EC2's, on the default bus.
    Ec2,
}

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

/// Makes an image for the class, and waits until the class's committed status has it.
async fn event_to_class(world: &RehearsalWorld, n: usize, announcer: Announcer) -> Duration {
    let account = &world.account;
    // moto tells an image's creation in whole seconds, and of two equals the class keeps the one that it has.
    let created = Timestamp::now().as_second();
    while Timestamp::now().as_second() == created {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let image = make_image(&account.ec2, &format!("golden-{n}-{announcer:?}")).await;
    let (key, value) = PIPELINE_TAG;
    let tag = Tag::builder().key(key).value(value).build();
    account.ec2.create_tags().resources(&image).tags(tag).send().await.expect("the image is tagged");
    let sent = Instant::now();
    match announcer {
        Announcer::Pipeline => {
            let detail = json!({ "ImageId": image });
            put_event(&account.events, "ami.pipeline", "Image Finished", &detail).await;
        }
        Announcer::Ec2 => account.send("images", &state_change(&image, "available").to_string()).await,
    }
    let (_, seen) = timed("the class's image", || async {
        let status = status(account, GOLDEN).await?;
        status.images.iter().any(|resolved| resolved.id.as_str() == image).then_some(())
    })
    .await;
    account.settled().await;
    seen - sent
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn figures() {
    rehearse(|world| async {
        let golden = class(GOLDEN, &json!({ "tags": { PIPELINE_TAG.0: PIPELINE_TAG.1 } }));
        world.cluster.lock().await.apply_class(golden).await;
        let (mut launches, mut records) = (Vec::new(), Vec::new());
        let (mut of_pipelines, mut of_ec2) = (Vec::new(), Vec::new());
        for n in 0..WARM_UP + ROUNDS {
            launches.push(doorbell_to_instance(world).await);
            records.push(event_to_record(world, n).await);
            of_pipelines.push(event_to_class(world, n, Announcer::Pipeline).await);
            of_ec2.push(event_to_class(world, n, Announcer::Ec2).await);
        }
        ready(&world.account, GOLDEN).await;
        world.cluster.lock().await.delete_class(GOLDEN).await;
        println!("| through the deployed stack, warm | median of {ROUNDS} | least | most |");
        println!("|---|---|---|---|");
        println!("{}", row("from a doorbell to the instance in moto", launches.split_off(WARM_UP)));
        println!("{}", row("from an AMI event to the record", records.split_off(WARM_UP)));
        println!("{}", row("from a pipeline's event to the class's image", of_pipelines.split_off(WARM_UP)));
        println!("{}", row("from an AMI event to the class's image", of_ec2.split_off(WARM_UP)));
    });
}
