//! Alarms of the deployed stacks: each looks at a queue, a rule or a function that is there.
//!
//! Decides by the server's own lists, so it doesn't matter how anybody works out a template. The server has no metrics of
//! queues and rules, and few of functions; `tests/structure/tests/alarms` has the values that make alarms ring.

use std::collections::{BTreeMap, BTreeSet};

use crate::account::INSTALLATION;
use crate::tools::{aws, variable};
use crate::world::rehearse;

/// Eleven of the region and one of the cluster.
const ALARMS: usize = 12;

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn every_alarm_looks_at_a_resource_that_is_there() {
    rehearse(|_| async {
        // The AWS CLI has an endpoint of its own for queues, before that of the environment.
        let endpoint = variable("AWS_ENDPOINT_URL");
        let list =
            ["sqs", "list-queues", "--queue-name-prefix", INSTALLATION, "--endpoint-url", endpoint.as_str()];
        let queues = aws(&list).await;
        let urls = queues["QueueUrls"].as_array().expect("queues").iter();
        let queues: BTreeSet<String> =
            urls.filter_map(|url| Some(url.as_str()?.rsplit('/').next()?.to_owned())).collect();
        let rules = aws(&["events", "list-rules", "--event-bus-name", INSTALLATION]).await;
        let rules = rules["Rules"].as_array().expect("rules").iter();
        let rules: BTreeSet<String> =
            rules.filter_map(|rule| Some(rule["Name"].as_str()?.to_owned())).collect();

        let functions = aws(&["lambda", "list-functions"]).await;
        let functions = functions["Functions"].as_array().expect("functions").iter();
        let functions: BTreeSet<String> =
            functions.filter_map(|function| Some(function["FunctionName"].as_str()?.to_owned())).collect();

        let found = aws(&["cloudwatch", "describe-alarms", "--alarm-name-prefix", INSTALLATION]).await;
        let alarms = found["MetricAlarms"].as_array().expect("alarms");
        assert_eq!(alarms.len(), ALARMS, "{found}");
        for alarm in alarms {
            let dimensions = alarm["Dimensions"].as_array().expect("dimensions").iter();
            let dimensions: BTreeMap<&str, &str> =
                dimensions.filter_map(|of| Some((of["Name"].as_str()?, of["Value"].as_str()?))).collect();
            let names: Vec<&str> = dimensions.keys().copied().collect();
            let there = match alarm["Namespace"].as_str() {
                Some("AWS/SQS") => names == ["QueueName"] && queues.contains(dimensions["QueueName"]),
                Some("AWS/Lambda") => {
                    names == ["FunctionName"] && functions.contains(dimensions["FunctionName"])
                }
                Some("AWS/Events") => {
                    names == ["EventBusName", "RuleName"]
                        && dimensions["EventBusName"] == INSTALLATION
                        && rules.contains(dimensions["RuleName"])
                }
                _ => false,
            };
            assert!(there, "{alarm}\nqueues: {queues:?}\nrules: {rules:?}\nfunctions: {functions:?}");
        }
    });
}
