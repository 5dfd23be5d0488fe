//! `tenon get`, `clear`, `why` and `event` of the build for accounts, against the deployment.

use serde_json::Value;
use tenon_table::Value as Attribute;

use crate::account::REGION;
use crate::images::{becomes, deregister};
use crate::launches::launch;
use crate::marks::mark;
use crate::network::make_image;
use crate::tools::tenon;
use crate::wait::eventually;
use crate::world::rehearse;

async fn json(arguments: &[&str]) -> Value {
    let printed = tenon(&[arguments, &["-o", "json"]].concat()).await;
    serde_json::from_str(&printed.well(&arguments.join(" "))).expect("JSON")
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn get_and_why_read_the_table() {
    rehearse(|world| async {
        let (_, _, instance) = launch(world).await;
        let instance = instance.instance_id().expect("an id").to_owned();
        eventually("the claim's launch", || world.account.item(format!("INSTANCE#{instance}"), "INSTANCE"))
            .await;
        assert_eq!(json(&["get", "types", "m5.large"]).await["items"][0]["name"], "m5.large");
        assert_eq!(json(&["get", "catalog"]).await["items"].as_array().map(Vec::len), Some(4));
        assert_eq!(json(&["get", "classes"]).await["items"][0]["name"], "default");
        for kind in ["nodes", "pools", "images", "unavailable", "rollouts", "events"] {
            tenon(&["get", kind, "--cluster", "prod"]).await.well(kind);
        }
        let claims = json(&["get", "claims"]).await;
        let claims = claims["items"].as_array().unwrap();
        let claim =
            claims.iter().find(|claim| claim["instance"]["id"] == instance.as_str()).expect("the claim");
        let name = claim["name"].as_str().unwrap();
        let story = json(&["why", "claim", name]).await;
        let decisions: Vec<&str> =
            story["records"].as_array().unwrap().iter().map(|r| r["decision"].as_str().unwrap()).collect();
        assert_eq!(decisions, ["Planned", "Launched"]);
        assert_eq!(json(&["why", "node", &instance]).await, story, "an instance's story is its claim's");

        let refused = tenon(&["get", "claims", "--cluster", "other"]).await;
        assert_eq!(refused.status, Some(2));
        assert!(
            refused.err.contains("there is no cluster `other`") && refused.err.contains("`prod`"),
            "{}",
            refused.err
        );
        assert_eq!(tenon(&["get", "claims", "absent"]).await.status, Some(1));
        let elsewhere = tenon(&["get", "types", "--installation", "absent"]).await;
        assert_eq!(elsewhere.status, Some(2));
        assert!(elsewhere.err.contains("ResourceNotFoundException"), "{}", elsewhere.err);
    });
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn an_operator_clears_a_mark() {
    const WHAT: &str = "offering#spot#use1-az1#m5.large";
    rehearse(|world| async {
        let there = || async {
            let list = json(&["get", "unavailable", WHAT]).await;
            list["items"].as_array().map(Vec::len)
        };
        mark(&world.account, WHAT).await;
        assert_eq!(there().await, Some(1));
        let refused = tenon(&["clear", "unavailable", WHAT, "offering#spot#use1-az1#m5"]).await;
        assert_eq!((refused.status, refused.err.contains(WHAT)), (Some(2), true), "{}", refused.err);
        assert_eq!(there().await, Some(1), "none is cleared where one isn't there");
        let cleared = json(&["clear", "unavailable", WHAT]).await;
        assert_eq!(cleared["items"][0]["what"], WHAT);
        assert_eq!(tenon(&["get", "unavailable", WHAT]).await.status, Some(1));
        // Its revision stays for the next writer.
        let item = world.account.item(format!("REGION#{REGION}"), format!("UNAVAILABLE#{WHAT}")).await;
        let left = item.expect("what is left of it");
        let number = |name: &str| left.get(name).and_then(Attribute::as_number).map(ToString::to_string);
        assert_eq!((number("revision"), number("count")), (Some("2".to_owned()), Some("0".to_owned())));
    });
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn events_reach_the_functions() {
    rehearse(|world| async {
        let account = &world.account;
        let image = make_image(&account.ec2, "by-hand").await;
        // AWS accepts events of its own sources only from itself, so these go to the function.
        let sent = json(&["event", "ami-available", &image]).await;
        assert_eq!(
            (&sent["functions"][0], &sent["event"]["account"]),
            (&"images".into(), &"000000000000".into())
        );
        becomes(account, &image, "available").await;
        deregister(&account.ec2, &image).await;
        // Those of a pipeline go to the installation's bus.
        let sent = json(&["event", "pipeline", &image]).await;
        assert_eq!(sent["functions"][0], "images");
        becomes(account, &image, "deregistered").await;
        let refused = tenon(&["event", "ami-available", &image, "--installation", "absent"]).await;
        assert_eq!(refused.status, Some(2), "{}{}", refused.out, refused.err);
        assert!(refused.err.contains("function `absent-images` refused the event"), "{}", refused.err);
    });
}
