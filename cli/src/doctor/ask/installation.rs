//! Questions about an installation's stacks and queues.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::QueueAttributeName;
use aws_types::SdkConfig;
use tenon_domain::wake::FunctionName;

use super::{Answer, answered};
use crate::doctor::facts::StackFacts;

/// What else queues are named after: see `template.yaml`.
const OTHERS: [&str; 3] = ["dead-letters", "delivery-", "execution-"];
/// How the names of dead-letter queues end.
const DEAD_LETTERS: &str = "-dead-letters";

/// All stacks of the region are listed, because a stack may have any name.
pub(super) async fn stacks(config: &SdkConfig, installation: &str) -> Answer<Vec<StackFacts>> {
    let asked = aws_sdk_cloudformation::Client::new(config).describe_stacks();
    let stacks = asked.into_paginator().items().send().try_collect().await;
    let stacks = answered("cloudformation:DescribeStacks", stacks)?;
    let facts = stacks.iter().map(|stack| StackFacts {
        name: stack.stack_name().unwrap_or_default().to_owned(),
        status: stack.stack_status().map(|status| status.as_str().to_owned()).unwrap_or_default(),
        parameters: stack
            .parameters()
            .iter()
            .filter_map(|one| Some((one.parameter_key()?.to_owned(), one.parameter_value()?.to_owned())))
            .collect(),
    });
    let ours = |stack: &StackFacts| stack.parameters.get("Installation").is_some_and(|id| id == installation);
    Ok(facts.filter(ours).collect())
}

/// Whether a queue is of the installation of this prefix, and of no other whose id begins like it.
fn is_of(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| {
        let of_function = |function: FunctionName| {
            rest.strip_prefix(function.as_str()).is_some_and(|end| end.starts_with('-'))
        };
        FunctionName::ALL.into_iter().any(of_function) || OTHERS.iter().any(|word| rest.starts_with(word))
    })
}

pub(super) async fn dead_letters(config: &SdkConfig, installation: &str) -> Answer<BTreeMap<String, u64>> {
    let sqs = aws_sdk_sqs::Client::new(config);
    let prefix = format!("{installation}-");
    // A page of queues, without a size, is the first 1,000: more than an installation has.
    let listed = answered("sqs:ListQueues", sqs.list_queues().queue_name_prefix(&prefix).send().await)?;
    let mut counts = BTreeMap::new();
    for url in listed.queue_urls() {
        let name = url.rsplit('/').next().unwrap_or_default();
        if !name.ends_with(DEAD_LETTERS) || !is_of(name, &prefix) {
            continue;
        }
        let count = QueueAttributeName::ApproximateNumberOfMessages;
        let sent = sqs.get_queue_attributes().queue_url(url).attribute_names(count.clone()).send().await;
        let answer = answered("sqs:GetQueueAttributes", sent)?;
        let value: u64 =
            answer.attributes().and_then(|all| all.get(&count)?.parse().ok()).unwrap_or_default();
        counts.insert(name.to_owned(), value);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn another_installation_has_its_own_queues() {
        for name in ["tenon-dead-letters", "tenon-delivery-dead-letters", "tenon-images-dead-letters"] {
            assert!(is_of(name, "tenon-"), "{name}");
        }
        for name in ["tenon-staging-dead-letters", "tenon-mine", "other-dead-letters"] {
            assert!(!is_of(name, "tenon-"), "{name}");
        }
    }
}
