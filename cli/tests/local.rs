//! `local` as a user runs it, and the other commands against it.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]
#![expect(clippy::panic, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

fn tenon(arguments: &[&str]) -> (Option<i32>, String, String) {
    common::tenon(arguments, "")
}

/// A region that is up; it ends with the value.
struct Up {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: String,
}

impl Up {
    fn start() -> Self {
        Self::playing("tour")
    }

    fn playing(scenario: &str) -> Self {
        let arguments = ["local", "--scenario", scenario, "--speed", "max", "--port", "0"];
        let mut child = common::command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut up = Self { child, lines, port: String::new() };
        let line = up.wait_for("answers on 127.0.0.1:");
        up.port = line.rsplit(':').next().unwrap().trim().to_owned();
        up.wait_for("the region stays up");
        up
    }

    fn wait_for(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if line.contains(wanted) {
                return line;
            }
            line.clear();
        }
        panic!("`{wanted}` was never printed")
    }

    fn ask(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let local = format!("--local={}", self.port);
        let (status, out, errors) = tenon(&[arguments, &[&local]].concat());
        (status, out + &errors)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_seed_gives_one_run_whose_last_line_is_the_summary() {
    let arguments = ["local", "--speed", "max", "--until", "settled", "-o", "json", "--seed", "7"];
    let other = std::thread::spawn(move || tenon(&arguments));
    let (status, out, errors) = tenon(&arguments);
    assert_eq!(status, Some(0), "{errors}");
    assert_eq!(out, other.join().unwrap().1);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.last().unwrap();
    assert_eq!(summary["kind"], "summary");
    assert_eq!(summary["settled"], true);
    assert_eq!(summary["pods"], serde_json::json!({"running": 12, "pending": 0}));
    assert!(lines.iter().any(|line| line["kind"] == "decision"));
}

#[test]
fn a_run_that_ends_too_early_has_not_settled() {
    let (status, out, _) = tenon(&["local", "--speed", "max", "--until", "10s", "-o", "json"]);
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((status, &last["settled"]), (Some(1), &Value::from(false)));
}

#[test]
fn manifests_get_the_account_that_their_class_asks_for() {
    let (status, out, errors) =
        tenon(&["local", "-f", "cluster.yaml", "--speed", "max", "--until", "settled", "-o", "json"]);
    assert_eq!(status, Some(0), "{out}{errors}");
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(last["pods"], serde_json::json!({"running": 6, "pending": 0}));
}

#[test]
fn a_class_that_discovers_its_network_by_another_name_than_the_first_gets_one_too() {
    let arguments = ["local", "-f", "two-classes.yaml", "--speed", "max", "--until", "settled", "-o", "json"];
    let (status, out, errors) = tenon(&arguments);
    assert_eq!(status, Some(0), "{out}{errors}");
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(last["pods"], serde_json::json!({"running": 2, "pending": 0}), "{out}");
}

#[test]
fn what_cannot_be_played_is_refused() {
    fn check(arguments: &[&str], expected: &[&str]) {
        let (status, _, errors) = tenon(arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {errors}");
        for part in expected {
            assert!(errors.contains(part), "{arguments:?}: {errors}");
        }
    }
    check(&["local", "--scenario", "tuor"], &["no scenario `tuor`", "did you mean `tour`?"]);
    check(&["local", "-f", "pods.yaml"], &["no NodePool in `pods.yaml`", "kind: NodePool"]);
    check(&["local", "-f", "bad.yaml"], &["bad.yaml:10", "bad.yaml:17", "bad.yaml:21"]);
    check(&["local", "--speed", "fast"], &["expected a positive number"]);
    check(&["local", "--until", "later"], &["expected `settled`, or a duration"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&["local", "--port", &port], &[&format!("port {port} of 127.0.0.1"), "--port"]);
}

#[test]
fn a_region_that_is_up_answers() {
    let up = Up::start();
    let (status, claims) = up.ask(&["get", "claims", "-o", "json"]);
    assert_eq!(status, Some(0), "{claims}");
    let claims: Value = serde_json::from_str(&claims).unwrap();
    assert_eq!(claims["kind"], "NodeClaimList");
    let live =
        claims["items"].as_array().unwrap().iter().find(|claim| claim["phase"] == "Initialized").unwrap();
    let (name, node) = (live["name"].as_str().unwrap(), live["node"].as_str().unwrap());

    for kind in [
        "nodes",
        "pools",
        "classes",
        "images",
        "types",
        "unavailable",
        "learned",
        "rollouts",
        "catalog",
        "events",
    ] {
        let (status, list) = up.ask(&["get", kind]);
        assert_eq!(status, Some(0), "{kind}: {list}");
    }
    let (_, nodes) = up.ask(&["get", "nodes", node, "-o", "json"]);
    let nodes: Value = serde_json::from_str(&nodes).unwrap();
    let shown = &nodes["items"][0];
    assert_eq!(
        (shown["claim"].as_str(), shown["disruption"].as_str()),
        (Some(name), Some("none")),
        "{shown}"
    );
    let price: f64 = shown["usd_per_hour"].as_str().unwrap().parse().unwrap();
    let used = shown["requested_percent"]["cpu"].as_u64().unwrap();
    assert!(price > 0.0 && used > 0 && shown["pods"].as_u64().unwrap() > 0, "{shown}");
    assert_eq!(up.ask(&["get", "claims", name]).0, Some(0));
    assert_eq!(up.ask(&["get", "claims", "absent"]).0, Some(1));
    assert_eq!(up.ask(&["get", "claims", "--cluster", "other"]).0, Some(2));

    let (status, story) = up.ask(&["why", "claim", name]);
    assert_eq!(status, Some(0), "{story}");
    let order = ["Planned", "Launched", "Registered", "Initialized"].map(|d| story.find(d).unwrap());
    assert!(order.is_sorted(), "newest last: {story}");
    assert_eq!(up.ask(&["why", "node", node]).1, story, "a node's story is its claim's");
    let (_, json) = up.ask(&["why", "claim", name, "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let pods = json["records"][0]["details"]["pods"].as_str().unwrap();
    let pod = pods.split(',').next().unwrap();
    assert!(
        up.ask(&["why", "pod", pod]).1.contains(&format!("claim {name}")),
        "a pod's story has its claim's"
    );
    assert_eq!(up.ask(&["why", "pod", "default/absent"]).0, Some(1));

    let instance = live["instance"]["id"].as_str().unwrap();
    let (status, sent) = up.ask(&["event", "spot-interruption", instance]);
    assert_eq!((status, sent.contains("wakes interruption")), (Some(0), true), "{sent}");
    assert_eq!(up.ask(&["event", "instance-stopped", "nonsense"]).0, Some(2));
}

#[test]
fn an_operator_sees_what_is_exhausted_and_clears_it() {
    const ON_DEMAND: &str = "offering#on-demand#use1-az2#m5.large";
    const SPOT: &str = "offering#spot#use1-az2#m5.large";
    let up = Up::playing("exhausted.yaml");
    let marks = || -> Value {
        let (status, list) = up.ask(&["get", "unavailable", "-o", "json"]);
        assert_eq!(status, Some(0), "{list}");
        serde_json::from_str(&list).unwrap()
    };
    let named = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mark| mark["what"].as_str().unwrap().to_owned())
            .collect()
    };
    let list = marks();
    assert_eq!(named(&list), [ON_DEMAND, SPOT]);
    assert_eq!(list["items"][0]["code"], "InsufficientInstanceCapacity");
    assert_eq!(list["items"][0]["seen_by"], "demo");
    let table = up.ask(&["get", "unavailable"]).1;
    for part in ["NEXT PROBE", "PROBED BY", SPOT, " ago"] {
        assert!(table.contains(part), "{table}");
    }

    // Where one isn't marked, none is cleared, and those that are there are named.
    let (status, refused) = up.ask(&["clear", "unavailable", ON_DEMAND, "offering#spot#use1-az2#m5.larg"]);
    assert_eq!(status, Some(2), "{refused}");
    assert!(refused.contains("no capacity is marked as `offering#spot#use1-az2#m5.larg`"), "{refused}");
    assert!(refused.contains(&format!("use `{SPOT}` or `{ON_DEMAND}`")), "{refused}");
    assert_eq!(named(&marks()).len(), 2);

    let (status, cleared) = up.ask(&["clear", "unavailable", SPOT]);
    assert_eq!((status, cleared.contains(&format!("cleared {SPOT}\n"))), (Some(0), true), "{cleared}");
    assert_eq!(named(&marks()), [ON_DEMAND]);
    let (status, cleared) = up.ask(&["clear", "unavailable", "--all", "-o", "json"]);
    let cleared: Value = serde_json::from_str(&cleared).unwrap();
    assert_eq!((status, &cleared["kind"]), (Some(0), &Value::from("UnavailableCleared")));
    assert_eq!(
        (named(&cleared), &cleared["items"][0]["count"]),
        (vec![ON_DEMAND.to_owned()], &Value::from(1))
    );
    assert_eq!(named(&marks()), Vec::<String>::new());
    assert_eq!(up.ask(&["clear", "unavailable", "--all"]), (Some(0), "no capacity is marked\n".to_owned()));
    let (status, refused) = up.ask(&["clear", "unavailable", SPOT]);
    assert_eq!((status, refused.contains("nothing to clear")), (Some(2), true), "{refused}");
    assert_eq!(up.ask(&["clear", "unavailable"]).0, Some(2), "neither keys nor --all");
}

#[test]
fn an_operator_sees_what_was_learned_of_nodes_and_clears_it() {
    let up = Up::start();
    let learned = || -> Vec<Value> {
        let (status, list) = up.ask(&["get", "learned", "-o", "json"]);
        assert_eq!(status, Some(0), "{list}");
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["kind"], "LearnedList");
        list["items"].as_array().unwrap().clone()
    };
    let before = learned();
    let first = &before[0];
    let word = |field: &str| first[field].as_str().unwrap();
    assert_eq!(word("what"), format!("{}#{}#demo", word("instance_type"), word("image")));
    assert!(first["memory_bytes"].as_u64().unwrap() > 0);
    assert!(up.ask(&["get", "learned"]).1.contains("REPORTED BY"));

    let (status, refused) = up.ask(&["clear", "learned", "x9.large"]);
    assert_eq!((status, refused.contains("no learned memory of `x9.large`")), (Some(2), true), "{refused}");
    let (status, cleared) = up.ask(&["clear", "learned", word("instance_type"), word("image")]);
    assert_eq!(
        (status, cleared.contains(&format!("cleared {}\n", word("what")))),
        (Some(0), true),
        "{cleared}"
    );
    assert_eq!(learned().len(), before.len() - 1);
    assert_eq!(up.ask(&["clear", "learned", "--all"]).0, Some(0));
    assert_eq!(learned(), Vec::<Value>::new());
}

#[test]
fn classes_show_their_own_type_as_the_reason_of_what_holds() {
    let up = Up::start();
    let (_, classes) = up.ask(&["get", "classes", "-o", "json"]);
    let classes: Value = serde_json::from_str(&classes).unwrap();
    let conditions = classes["items"][0]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "Ready"));
    for condition in conditions.iter().filter(|condition| condition["status"] == "True") {
        assert_eq!(condition["reason"], condition["type"]);
    }
}

#[test]
fn without_a_region_the_remedy_is_named() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (status, _, errors) = tenon(&["get", "claims", &format!("--local={port}")]);
    assert_eq!(status, Some(2));
    assert!(errors.contains("start a region with `tenon local`"));
}

#[test]
#[cfg(not(feature = "aws"))]
fn a_build_without_aws_says_how_to_get_the_rest() {
    let (status, _, errors) = tenon(&["why", "claim", "x", "--installation", "staging"]);
    assert_eq!(status, Some(2));
    for part in ["reads no AWS account", "`staging`", "`us-east-1`", "add `--local`", "--features aws"] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn a_region_is_one_on_this_machine_or_one_of_an_account() {
    let (status, _, errors) = tenon(&["get", "claims", "--local", "--region", "eu-west-1"]);
    assert_eq!(status, Some(2));
    assert!(errors.contains("cannot be used with"), "{errors}");
}
