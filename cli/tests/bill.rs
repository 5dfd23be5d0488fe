//! What an idle cluster takes stays within limits: an hour of it in a small region, worked out for a month. What the
//! whole region takes is in docs/bill.md.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::process::Command;

use serde_json::Value;

fn bill() -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_tenon"))
        .args(["local", "--scenario", "idle-hour.yaml", "--speed", "max", "--bill", "-o", "json"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn an_idle_cluster_stays_within_limits() {
    let bill = bill();
    let usd = |part: &str| bill[part]["totalUsdPerMonth"].as_str().unwrap().parse::<f64>().unwrap();
    assert!(usd("clusters") <= 0.3, "{bill:#}");
    assert!(usd("region") <= 3.0, "{bill:#}");
    let day = &bill["clusters"]["perDay"];
    let sweeps: u64 = day["invocations"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    // Two functions every three minutes, two every five; and what the catalogue wakes.
    assert!(sweeps <= 2 * 480 + 2 * 288 + 8, "{bill:#}");
    assert_eq!(day["ec2Calls"].get("create_fleet"), None, "nothing is launched: {bill:#}");
}
