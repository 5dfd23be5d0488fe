//! Dead letters: an unreadable message ends there, alone.

use crate::images::{becomes, state_change};
use crate::network::make_image;
use crate::wait::eventually;
use crate::world::rehearse;

const POISON: &str =
    r#"{"source":"aws.ec2","detail-type":"EC2 AMI State Change","detail":{"State":"available"}}"#;

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_poisoned_message_ends_alone_in_its_dead_letter_queue() {
    rehearse(|world| async {
        let account = &world.account;
        assert_eq!(account.dead_letters().await, 0, "no test before left any");
        // A message is received three times, each followed by three minutes of invisibility, which the test shortens.
        let before = account.set_visibility_timeout("images", "1").await;
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
        eventually("the dead letter", || async {
            (account.depth("images-dead-letters").await > 0).then_some(())
        })
        .await;
        account.settled().await;
        account.set_visibility_timeout("images", &before).await;
        assert_eq!(account.dead_letters().await, 1);
        assert_eq!(account.drain("images-dead-letters").await, [POISON]);
    });
}
