//! Sends an event to an installation.
//!
//! Decides the route. Events of our own sources go to the installation's bus, whose rules do the rest. EventBridge
//! accepts events of AWS's sources only from AWS, so those go directly to the targets of the default bus's rules, queues
//! and functions, in EventBridge's envelope.
//!
//! The functions of an event are read from the built-in template, because EventBridge has no API for it.

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use serde_json::Value;
use tenon_domain::Timestamp;
use tenon_region::wiring::{BusName, QueueKind, Wiring};

use super::Account;
use crate::api::EventSent;
use crate::envelope::{self, Envelope};
use crate::errors::{Problem, chain};

/// Sends the event.
pub(super) async fn send(account: &Account, event: &Value, now: Timestamp) -> Result<EventSent, Problem> {
    let bus = envelope::bus_of(event)?;
    let wiring = Wiring::built_in().map_err(|error| {
        Problem::new(chain(&error), "use another build: the `template.yaml` of this one is invalid")
    })?;
    match bus {
        BusName::Tenon => put(account, event, &wiring, now).await,
        BusName::Default => deliver(account, event, &wiring, now).await,
    }
}

/// Puts it on the installation's bus.
async fn put(
    account: &Account,
    event: &Value,
    wiring: &Wiring,
    now: Timestamp,
) -> Result<EventSent, Problem> {
    let complete = complete(account, event, None, now);
    let text = |name: &str| complete.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(account.installation.as_str())
        .source(text("source"))
        .detail_type(text("detail-type"))
        .detail(complete.get("detail").map(ToString::to_string).unwrap_or_default())
        .build();
    let bus = &account.installation;
    let refused = |why: String| {
        let remedy =
            "check `--region` and `--installation`, and that you may `events:PutEvents` for this source";
        Problem::new(format!("bus `{bus}` refused the event: {why}"), remedy)
    };
    let client = aws_sdk_eventbridge::Client::new(&account.config);
    let answer = client.put_events().entries(entry).send().await.map_err(|error| refused(chain(&error)))?;
    let failed = answer.entries().iter().find(|entry| entry.error_code().is_some());
    if let Some(entry) = failed {
        let words = [entry.error_code(), entry.error_message()];
        return Err(refused(words.into_iter().flatten().collect::<Vec<_>>().join(": ")));
    }
    Ok(EventSent::of(&wiring.route(BusName::Tenon, &complete), complete))
}

/// Sends it to the functions that the default bus's rules name.
async fn deliver(
    account: &Account,
    event: &Value,
    wiring: &Wiring,
    now: Timestamp,
) -> Result<EventSent, Problem> {
    let functions = wiring.route(BusName::Default, &complete(account, event, None, now));
    let owner = owner(account).await?;
    let sent = complete(account, event, Some(&owner), now);
    for function in &functions {
        let name = format!("{}-{function}", account.installation);
        match wiring.queues.get(function).map(|queue| queue.kind) {
            Some(QueueKind::Invocations) => invoke(account, &name, &sent).await?,
            Some(QueueKind::Polled) | None => enqueue(account, &name, &sent).await?,
        }
    }
    Ok(EventSent::of(&functions, sent))
}

/// Puts an event on a function's queue.
async fn enqueue(account: &Account, queue: &str, event: &Value) -> Result<(), Problem> {
    let refused = |why: String| {
        let remedy = format!(
            "check `--region` and `--installation`, and that you may `sqs:GetQueueUrl` and `sqs:SendMessage`; or \
             invoke the function itself: `aws lambda invoke --function-name {queue} --payload …`"
        );
        Problem::new(format!("queue `{queue}` refused the event: {why}"), remedy)
    };
    let client = aws_sdk_sqs::Client::new(&account.config);
    let url = client.get_queue_url().queue_name(queue).send().await.map_err(|e| refused(chain(&e)))?;
    let url = url.queue_url().ok_or_else(|| refused("it has no URL".to_owned()))?;
    let message = client.send_message().queue_url(url).message_body(event.to_string());
    message.send().await.map_err(|error| refused(chain(&error)))?;
    Ok(())
}

/// Invokes a function with an event, as EventBridge does: Lambda repeats what fails.
async fn invoke(account: &Account, function: &str, event: &Value) -> Result<(), Problem> {
    let refused = |why: String| {
        let remedy = "check `--region` and `--installation`, and that you may `lambda:InvokeFunction`";
        Problem::new(format!("function `{function}` refused the event: {why}"), remedy)
    };
    let client = aws_sdk_lambda::Client::new(&account.config);
    let invocation = client.invoke().function_name(function).invocation_type(InvocationType::Event);
    let invocation = invocation.payload(Blob::new(event.to_string()));
    invocation.send().await.map_err(|error| refused(chain(&error)))?;
    Ok(())
}

/// The account of the credentials, twelve digits. No right is needed for it.
async fn owner(account: &Account) -> Result<String, Problem> {
    let unknown = |why: String| {
        let remedy = "check the credentials: `aws sts get-caller-identity`";
        Problem::new(format!("can't find out the account: {why}"), remedy)
    };
    let client = aws_sdk_sts::Client::new(&account.config);
    let caller = client.get_caller_identity().send().await.map_err(|error| unknown(chain(&error)))?;
    caller.account().map(str::to_owned).ok_or_else(|| unknown("STS names none".to_owned()))
}

fn complete(account: &Account, event: &Value, owner: Option<&str>, now: Timestamp) -> Value {
    // Milliseconds tell a person's events apart.
    let number = u64::try_from(now.as_millisecond()).unwrap_or_default();
    envelope::complete(event, &Envelope { number, account: owner, region: &account.region, now })
}
