//! A running region's answers, between its steps.

use serde_json::Value;
use tenon_memory_table::MemoryTable;
use tenon_memory_table::block_on;

use super::region::LocalRegion;
use crate::api::{ApiRequest, EventSent, TableReading};
use crate::envelope::{self, Envelope};
use crate::errors::Problem;
use crate::server::ServerAnswer;

/// The account of a region on this machine.
const ACCOUNT: &str = "111122223333";

/// The answer to a request.
pub(super) fn answer(world: &mut LocalRegion, request: &ApiRequest) -> ServerAnswer {
    let document = match request {
        ApiRequest::Items { kind, cluster, name } => {
            serde_json::to_value(block_on(reading(world).items(*kind, cluster.as_deref(), name.as_deref()))?)
        }
        ApiRequest::Journal { of, cluster, name } => {
            serde_json::to_value(block_on(reading(world).journal(*of, cluster.as_deref(), name))?)
        }
        ApiRequest::Clear(what) => serde_json::to_value(block_on(reading(world).clear(what))?),
        ApiRequest::Event(event) => serde_json::to_value(send(world, event)?),
        ApiRequest::Stop => Ok(Value::Null),
    };
    document.map_err(|error| Problem::new(error.to_string(), "ask again"))
}

fn reading(world: &LocalRegion) -> TableReading<'_, MemoryTable> {
    TableReading { table: world.region.table(), region: &world.region_name, now: world.region.now() }
}

/// Puts an event on the bus that its source belongs to.
fn send(world: &mut LocalRegion, event: &Value) -> Result<EventSent, Problem> {
    let bus = envelope::bus_of(event)?;
    world.events_sent += 1;
    let complete = envelope::complete(
        event,
        &Envelope {
            number: world.events_sent,
            account: Some(ACCOUNT),
            region: &world.region_name,
            now: world.region.now(),
        },
    );
    let functions = world.region.route(bus, complete.clone());
    Ok(EventSent::of(&functions, complete))
}
