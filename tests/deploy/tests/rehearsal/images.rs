//! Images: EC2's event, in its real form, changes the record.
//!
//! Only AWS can put an event with source `aws.ec2` on a bus. The test checks that the deployed rule matches the
//! event, and sends the event to the rule's target.

use aws_sdk_ec2::Client;
use serde_json::{Value, json};

use crate::account::{REGION, RehearsalAccount, ec2_event};
use crate::network::make_image;
use crate::tools::aws;
use crate::wait::eventually;
use crate::world::rehearse;

/// `EC2 AMI State Change`. Source: Amazon EC2 User Guide, "Monitor AMI events using Amazon EventBridge", read November
/// 2026.
pub(crate) fn state_change(image: &str, state: &str) -> Value {
    let detail = json!({
        "RequestId": "2d9f4a1b-8a4c-4c3f-9ab4-f4a2d3d84e5a",
        "ImageId": image,
        "State": state,
        "ErrorMessage": "",
    });
    ec2_event("EC2 AMI State Change", &format!("arn:aws:ec2:{REGION}::image/{image}"), detail)
}

/// Sends an event to the targets of the default bus's rules; the functions that got it.
async fn deliver(account: &RehearsalAccount, event: &Value) -> Vec<String> {
    let mut functions = Vec::new();
    let rules = aws(&["events", "list-rules"]).await;
    for rule in rules["Rules"].as_array().expect("a list") {
        let (name, Some(pattern)) = (rule["Name"].as_str().expect("a name"), rule["EventPattern"].as_str())
        else {
            continue;
        };
        let asked =
            ["events", "test-event-pattern", "--event-pattern", pattern, "--event", &event.to_string()];
        if aws(&asked).await["Result"] != json!(true) {
            continue;
        }
        let targets = aws(&["events", "list-targets-by-rule", "--rule", name]).await;
        for target in targets["Targets"].as_array().expect("a list") {
            let arn = target["Arn"].as_str().expect("an ARN");
            functions.push(arn.rsplit(':').next().unwrap().trim_start_matches("tenon-").to_owned());
        }
    }
    for function in &functions {
        account.send(function, &event.to_string()).await;
    }
    functions
}

/// The state in an image's record.
pub(crate) async fn state(account: &RehearsalAccount, image: &str) -> Option<String> {
    let item = account.item(format!("REGION#{REGION}"), format!("IMAGE#{image}")).await?;
    item.get("state")?.as_text().map(str::to_owned)
}

/// Waits for the record's state.
pub(crate) async fn becomes(account: &RehearsalAccount, image: &str, wanted: &str) {
    eventually(&format!("the record of {image} as {wanted}"), || async {
        (state(account, image).await.as_deref() == Some(wanted)).then_some(())
    })
    .await;
}

/// Takes an image away from EC2.
pub(crate) async fn deregister(ec2: &Client, image: &str) {
    ec2.deregister_image().image_id(image).send().await.expect("the image goes");
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn an_ami_event_changes_the_images_record() {
    rehearse(|world| async {
        let (account, ec2) = (&world.account, &world.account.ec2);
        let image = make_image(ec2, "of-a-pipeline").await;
        assert_eq!(state(account, &image).await, None);
        assert_eq!(deliver(account, &state_change(&image, "available")).await, ["images"]);
        becomes(account, &image, "available").await;
        deregister(ec2, &image).await;
        // The event only wakes the function: its own state doesn't count.
        deliver(account, &state_change(&image, "available")).await;
        becomes(account, &image, "deregistered").await;
        let told = account.items(format!("JOURNAL#REGION#{REGION}#image#{image}"), "").await;
        assert_eq!(told.len(), 2, "{told:?}");
    });
}
