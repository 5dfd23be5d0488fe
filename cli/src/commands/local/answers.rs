//! What a running region answers, between its steps.

use serde_json::{Value, json};
use tenon_region::wiring::BusName;

use super::world::World;
use crate::api::{EventSent, Reading, Request};
use crate::errors::Problem;
use crate::output::API_VERSION;
use crate::server::Answer;

/// The answer to a request.
pub(super) fn answer(world: &mut World, request: &Request) -> Answer {
    let document = match request {
        Request::Items { kind, cluster, name } => {
            serde_json::to_value(reading(world).items(*kind, cluster.as_deref(), name.as_deref())?)
        }
        Request::Journal { of, cluster, name } => {
            serde_json::to_value(reading(world).journal(*of, cluster.as_deref(), name)?)
        }
        Request::Event(event) => serde_json::to_value(send(world, event)?),
        Request::Stop => Ok(Value::Null),
    };
    document.map_err(|error| Problem::new(error.to_string(), "ask again"))
}

fn reading(world: &World) -> Reading<'_> {
    Reading { table: world.region.table(), region: &world.region_name, now: world.region.now() }
}

/// Puts an event on the bus that its source belongs to.
fn send(world: &mut World, event: &Value) -> Result<EventSent, Problem> {
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    let (Some(source), Some(_)) = (text("source"), text("detail-type")) else {
        let remedy =
            "give one event as EventBridge delivers it: an object with `source`, `detail-type` and `detail`";
        return Err(Problem::new("not an event", remedy));
    };
    let bus = if source.starts_with("aws.") { BusName::Default } else { BusName::Tenon };
    world.events_sent += 1;
    let mut complete = json!({
        "version": "0",
        "id": format!("00000000-0000-4000-9000-{:012x}", world.events_sent),
        "account": "111122223333",
        "time": world.region.now().to_string(),
        "region": world.region_name.as_str(),
        "resources": [],
        "detail": {},
    });
    if let (Some(fields), Some(given)) = (complete.as_object_mut(), event.as_object()) {
        fields.extend(given.clone());
    }
    let functions = world.region.route(bus, complete.clone());
    Ok(EventSent {
        api_version: API_VERSION.to_owned(),
        kind: "EventSent".to_owned(),
        functions: functions.iter().map(|function| function.as_str().to_owned()).collect(),
        event: complete,
    })
}
