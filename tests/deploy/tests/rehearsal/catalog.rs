//! The catalogue, filled by the deployed schedules.
//!
//! Each schedule's rate is set to a minute until it has fired once. Its target and its input are as deployed.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use tenon_domain::evidence::CatalogPart;
use tenon_table::{Item, Value as Attribute};

use crate::account::{INSTALLATION, REGION, RehearsalAccount};
use crate::tools::aws;
use crate::wait::eventually;
use crate::world::rehearse;

/// The number of moto's types: EC2's at its release.
const TYPES: usize = 1395;

/// The schedules that wake `catalog`, as they are.
async fn schedules() -> Vec<Value> {
    let listed = aws(&["scheduler", "list-schedules", "--name-prefix", INSTALLATION]).await;
    let listed = listed["Schedules"].as_array().expect("a list").clone();
    let function = format!(":function:{INSTALLATION}-catalog");
    let mut found = Vec::new();
    for schedule in listed {
        if schedule["Target"]["Arn"].as_str().is_some_and(|target| target.ends_with(&function)) {
            let name = schedule["Name"].as_str().expect("a name");
            found.push(aws(&["scheduler", "get-schedule", "--name", name]).await);
        }
    }
    found
}

async fn set_rate(schedule: &Value, rate: &str) {
    let mut set = json!({ "ScheduleExpression": rate });
    for field in ["Name", "GroupName", "State", "FlexibleTimeWindow", "Target"] {
        set[field] = schedule[field].clone();
    }
    aws(&["scheduler", "update-schedule", "--cli-input-json", &set.to_string()]).await;
}

/// Lets each of the catalogue's schedules fire, one after the other, and waits for its part.
pub(crate) async fn run_schedules(account: &RehearsalAccount) {
    let schedules = schedules().await;
    assert_eq!(schedules.len(), CatalogPart::ALL.len(), "{schedules:?}");
    for schedule in &schedules {
        let input: Value =
            serde_json::from_str(schedule["Target"]["Input"].as_str().expect("an input")).expect("JSON");
        let of = input["detail"]["part"].as_str().and_then(CatalogPart::parse).expect("a part");
        let begun = Instant::now();
        set_rate(schedule, "rate(1 minute)").await;
        eventually(&format!("the catalogue's {of}"), || generation(account, of)).await;
        set_rate(schedule, schedule["ScheduleExpression"].as_str().expect("a rate")).await;
        println!("{of}: {:.1} s", begun.elapsed().as_secs_f64());
    }
}

/// A part's entry in the catalogue, once it has content.
pub(crate) async fn part(account: &RehearsalAccount, part: CatalogPart) -> Option<Item> {
    let catalog = account.item(format!("REGION#{REGION}"), "CATALOG").await?;
    let entry = catalog.get(part.as_str())?;
    let Attribute::M(entry) = entry else { panic!("`{part}` is {entry:?}") };
    Some(entry.clone())
}

async fn generation(account: &RehearsalAccount, of: CatalogPart) -> Option<String> {
    part(account, of).await?.get("generation")?.as_number().map(ToString::to_string)
}

/// Names of the types that EC2 has.
async fn ec2_types(account: &RehearsalAccount) -> BTreeSet<String> {
    let mut pages = account.ec2.describe_instance_types().into_paginator().items().send();
    let mut found = BTreeSet::new();
    while let Some(info) = pages.next().await {
        let info = info.expect("EC2 answers");
        found.insert(info.instance_type().expect("a type").as_str().to_owned());
    }
    found
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_schedules_fill_the_table() {
    rehearse(|world| async {
        let known = ec2_types(&world.account).await;
        assert_eq!(known.len(), TYPES);
        let types = world.account.items(format!("REGION#{REGION}"), "TYPE#").await;
        let written: Vec<&str> = types.iter().filter_map(|(key, _)| key.sk.strip_prefix("TYPE#")).collect();
        assert_eq!(written, known.iter().collect::<Vec<_>>(), "Macs among them");
        for part_of in CatalogPart::ALL {
            let entry = part(&world.account, part_of).await.expect("the part is there");
            let count = entry.get("count").and_then(Attribute::as_number).map(ToString::to_string);
            println!("{part_of}: {}", count.clone().unwrap_or_default());
            assert!(!entry.contains_key("last_error"), "{part_of}: {entry:?}");
            if part_of == CatalogPart::InstanceTypes {
                assert_eq!(count, Some(written.len().to_string()));
            }
        }
        let priced = types.iter().filter(|(_, item)| item.contains_key("on_demand_usd_per_hour")).count();
        assert!(priced > written.len() / 2, "{priced} types have a list price");
    });
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_schedules_are_as_they_were_deployed() {
    rehearse(|_| async {
        let mut rates: Vec<String> =
            schedules().await.iter().map(|s| s["ScheduleExpression"].as_str().unwrap().to_owned()).collect();
        rates.sort();
        assert_eq!(rates, ["rate(10 minutes)", "rate(12 hours)", "rate(6 hours)", "rate(6 hours)"]);
    });
}
