//! An operator's clearing of marks and learned memory; returns the items as stored.

use serde_json::Value as Json;
use tenon_domain::Timestamp;
use tenon_domain::id::Region;
use tenon_table::Table;
use tenon_table::items::to_item;
use tenon_table::learned::{LearnedError, clear_learned};
use tenon_table::marks::{MarksError, Meant, clear_marks};

use super::json;

/// Clears marks; returns the earlier ones, by key.
pub(crate) async fn clear<T: Table>(
    table: &T,
    region: &Region,
    meant: &Meant,
    now: Timestamp,
) -> Result<Vec<Json>, MarksError> {
    let cleared = clear_marks(table, region, meant, now).await?;
    Ok(cleared.iter().map(|mark| Json::Object(json::item(&to_item(mark)))).collect())
}

/// Clears learned memory; returns the earlier records, by key.
pub(crate) async fn unlearn<T: Table>(
    table: &T,
    region: &Region,
    meant: &Meant,
    now: Timestamp,
) -> Result<Vec<Json>, LearnedError> {
    let cleared = clear_learned(table, region, meant, now).await?;
    Ok(cleared.iter().map(|(what, record)| json::learned(what, &to_item(record))).collect())
}
