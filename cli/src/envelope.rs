//! EventBridge's envelope of an event, and the event's bus.
//!
//! Decides the values of absent fields. `detail` is the event's own.

use serde_json::{Value, json};
use tenon_domain::Timestamp;
use tenon_domain::id::Region;
use tenon_region::wiring::BusName;

use crate::errors::Problem;

/// Where and when an event happens.
pub(crate) struct Envelope<'a> {
    /// A number that no other event of the same sender has.
    pub(crate) number: u64,
    /// The account, twelve digits, if known.
    pub(crate) account: Option<&'a str>,
    /// The region.
    pub(crate) region: &'a Region,
    /// The time.
    pub(crate) now: Timestamp,
}

/// The bus of an event: AWS's own sources are on the default bus, all others on ours.
pub(crate) fn bus_of(event: &Value) -> Result<BusName, Problem> {
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    let (Some(source), Some(_)) = (text("source"), text("detail-type")) else {
        let remedy =
            "give one event as EventBridge delivers it: an object with `source`, `detail-type` and `detail`";
        return Err(Problem::new("not an event", remedy));
    };
    Ok(if source.starts_with("aws.") { BusName::Default } else { BusName::Tenon })
}

/// The event as EventBridge delivers it: its own fields stay, absent ones are filled in.
pub(crate) fn complete(event: &Value, envelope: &Envelope<'_>) -> Value {
    let mut complete = json!({
        "version": "0",
        "id": format!("00000000-0000-4000-9000-{:012x}", envelope.number),
        "time": envelope.now.to_string(),
        "region": envelope.region.as_str(),
        "resources": [],
        "detail": {},
    });
    if let (Some(fields), Some(given)) = (complete.as_object_mut(), event.as_object()) {
        fields.extend(envelope.account.map(|account| ("account".to_owned(), json!(account))));
        fields.extend(given.clone());
    }
    complete
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: &Value, expected: &Value) {
        let region = Region::parse("eu-west-1").unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let envelope = Envelope { number: 10, account: Some("111122223333"), region: &region, now };
        let found = complete(event, &envelope);
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&found[field], value, "{field} of {found}");
        }
    }

    #[test]
    fn what_an_event_says_itself_stays() {
        let event = json!({ "source": "aws.ec2", "detail-type": "x", "detail": { "state": "stopped" } });
        check(&event, &event);
        check(
            &event,
            &json!({ "account": "111122223333", "region": "eu-west-1", "time": "2026-01-01T00:00:00Z" }),
        );
        check(&json!({ "account": "444455556666" }), &json!({ "account": "444455556666", "detail": {} }));
    }

    #[test]
    fn only_awss_own_events_are_on_the_default_bus() {
        let bus = |source: &str| bus_of(&json!({ "source": source, "detail-type": "x" })).unwrap();
        assert_eq!((bus("aws.ec2"), bus("aws.health")), (BusName::Default, BusName::Default));
        assert_eq!((bus("ami.pipeline"), bus("tenon.agent.prod")), (BusName::Tenon, BusName::Tenon));
        assert!(bus_of(&json!({ "source": "aws.ec2" })).is_err());
    }
}
