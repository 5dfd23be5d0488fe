//! The usage of the region, an idle and a busy cluster stays within limits, line by line: half a day of the whole
//! region and an hour of each cluster in a small one, projected to a month. docs/bill.md has whole days.
#![expect(clippy::indexing_slicing, reason = "helpers of integration tests aren't inside #[test] functions")]
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use common::tenon;
use serde_json::Value;

fn bill(scenario: &str) -> Value {
    let arguments = ["local", "--scenario", scenario, "--speed", "max", "--bill", "-o", "json"];
    let (status, bill, errors) = tenon(&arguments, "");
    assert_eq!(status, Some(0), "{errors}");
    serde_json::from_str(&bill).unwrap()
}

/// Each line of a part's month, in USD, is within its limit; a line without one costs nothing.
fn check_month(bill: &Value, part: &str, limits: &[(&str, f64)]) {
    let usd = |text: &Value| text.as_str().unwrap().parse::<f64>().unwrap();
    for (line, price) in bill[part]["usdPerMonth"].as_object().unwrap() {
        let limit = limits.iter().find(|(name, _)| name == line).map_or(0.0, |(_, limit)| *limit);
        assert!(usd(price) <= limit, "{part}: {line}: {price} of at most {limit}\n{bill:#}");
    }
    for (name, _) in limits {
        assert!(bill[part]["usdPerMonth"].get(name).is_some(), "{part} has no line `{name}`\n{bill:#}");
    }
}

/// Invocations a day, by function, are within their limits; one without is never invoked.
fn check_invocations(bill: &Value, part: &str, limits: &[(&str, u64)]) {
    for (function, count) in bill[part]["perDay"]["invocations"].as_object().unwrap() {
        let limit = limits.iter().find(|(name, _)| name == function).map_or(0, |(_, limit)| *limit);
        assert!(count.as_u64().unwrap() <= limit, "{part}: {function}: {count} of at most {limit}\n{bill:#}");
    }
}

fn total(bill: &Value, part: &str) -> f64 {
    bill[part]["totalUsdPerMonth"].as_str().unwrap().parse().unwrap()
}

// Limits leave about a tenth for other changes.

#[test]
fn the_region_stays_within_limits() {
    let bill = bill("region-half-day.yaml");
    assert!(total(&bill, "region") <= 3.0, "{bill:#}");
    check_month(
        &bill,
        "region",
        &[
            ("Lambda, requests", 0.0093),
            ("Lambda, time", 0.0960),
            ("SQS, messages", 0.0380),
            // Four queues with five long polls, and one with two.
            ("SQS, polls of empty queues", 1.1405),
            ("EventBridge, events of our own", 0.0206),
            ("EventBridge Scheduler", 0.0290),
            ("DynamoDB, reads", 0.0250),
            ("DynamoDB, writes", 0.1400),
            ("DynamoDB, storage", 0.0015),
            ("CloudWatch, alarms", 1.1000),
            ("CloudWatch, logs", 0.0099),
        ],
    );
    // Spot prices every ten minutes, and in half a day five looks of the other parts; images every five minutes, status
    // checks every three, with a sweep that wakes `provisioner` too.
    let limits = [("catalog", 144 + 10), ("images", 288), ("lifecycle", 482), ("provisioner", 482)];
    check_invocations(&bill, "region", &limits);
}

#[test]
fn an_idle_cluster_stays_within_limits() {
    let bill = bill("idle-hour.yaml");
    assert!(total(&bill, "clusters") <= 0.4, "{bill:#}");
    check_month(
        &bill,
        "clusters",
        &[
            ("Lambda, requests", 0.0100),
            ("Lambda, time", 0.0400),
            ("SQS, messages", 0.0600),
            ("SQS, polls of empty queues", 0.0519),
            ("EventBridge, events of our own", 0.0260),
            ("EventBridge Scheduler", 0.0231),
            ("DynamoDB, reads", 0.0620),
            ("DynamoDB, writes", 0.0460),
            ("DynamoDB, storage", 0.0001),
            ("CloudWatch, alarms", 0.1000),
            ("CloudWatch, logs", 0.0090),
        ],
    );
    // Two functions every three minutes, two every five.
    let sweeps = [("provisioner", 482), ("lifecycle", 482), ("node-classes", 290), ("disruption", 290)];
    check_invocations(&bill, "clusters", &sweeps);
    let day = &bill["clusters"]["perDay"];
    assert_eq!(day["ec2Calls"].get("create_fleet"), None, "nothing is launched: {bill:#}");
}

#[test]
fn a_busy_cluster_stays_within_limits() {
    let bill = bill("busy-hour.yaml");
    assert!(total(&bill, "clusters") <= 3.0, "{bill:#}");
    check_month(
        &bill,
        "clusters",
        &[
            ("Lambda, requests", 0.0200),
            ("Lambda, time", 0.0950),
            ("SQS, messages", 0.1300),
            ("SQS, polls of empty queues", 0.0519),
            ("EventBridge, events of our own", 0.0650),
            ("EventBridge Scheduler", 0.0240),
            ("DynamoDB, reads", 0.2500),
            ("DynamoDB, writes", 0.4560),
            ("DynamoDB, storage", 0.0002),
            ("CloudWatch, alarms", 0.1000),
            ("CloudWatch, logs", 0.0300),
        ],
    );
    let busy = [("provisioner", 1350), ("lifecycle", 1250), ("node-classes", 310), ("disruption", 450)];
    check_invocations(&bill, "clusters", &busy);
    assert_eq!(bill["clusters"]["perDay"]["ec2Calls"]["create_fleet"], 100, "{bill:#}");
}
