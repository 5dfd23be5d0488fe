//! Dead letters: an unreadable message ends there, alone.

use serde_json::Value;

use crate::account::{DEAD_LETTERS, EXECUTION_DEAD_LETTERS, RehearsalAccount};
use crate::images::{becomes, state_change};
use crate::network::make_image;
use crate::wait::eventually;
use crate::world::rehearse;

const POISON: &str =
    r#"{"source":"aws.ec2","detail-type":"EC2 AMI State Change","detail":{"State":"available"}}"#;
const SWEEP: &str = r#"{"source":"tenon.schedule","detail-type":"Sweep","detail":{}}"#;

/// Waits for the one dead letter of the account, which is on this queue, and takes it.
async fn dead_letter(account: &RehearsalAccount, queue: &str) -> String {
    eventually("the dead letter", || async { (account.depth(queue).await > 0).then_some(()) }).await;
    account.settled().await;
    assert_eq!(account.dead_letters().await, 1);
    account.drain(queue).await.remove(0)
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_poisoned_message_ends_alone_in_the_dead_letter_queue() {
    rehearse(|world| async {
        let account = &world.account;
        assert_eq!(account.dead_letters().await, 0, "no test before left any");
        // A message is received five times, each followed by minutes of invisibility, which the test shortens.
        let before = account.set_visibility_timeout("lifecycle", "1").await;
        for body in [SWEEP, POISON, SWEEP] {
            account.send("lifecycle", body).await;
        }
        let letter = dead_letter(account, DEAD_LETTERS).await;
        account.set_visibility_timeout("lifecycle", &before).await;
        assert_eq!(letter, POISON);
    });
}

/// The server's waits between retries are seconds.
#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_poisoned_invocation_ends_alone_in_the_queue_of_failed_invocations() {
    rehearse(|world| async {
        let account = &world.account;
        assert_eq!(account.dead_letters().await, 0, "no test before left any");
        let mut good = Vec::new();
        for n in 0..3 {
            let image = make_image(&account.ec2, &format!("beside-poison-{n}")).await;
            account.send("images", &state_change(&image, "available").to_string()).await;
            good.push(image);
            if n == 1 {
                account.send("images", POISON).await;
            }
        }
        for image in &good {
            becomes(account, image, "available").await;
        }
        let letter: Value =
            serde_json::from_str(&dead_letter(account, EXECUTION_DEAD_LETTERS).await).expect("a record");
        assert_eq!(
            letter["requestPayload"],
            serde_json::from_str::<Value>(POISON).expect("JSON"),
            "{letter}"
        );
        assert_eq!(letter["requestContext"]["condition"], "RetriesExhausted", "{letter}");
        let function = letter["requestContext"]["functionArn"].as_str().expect("an ARN");
        assert!(function.contains(":function:tenon-images"), "{letter}");
    });
}
