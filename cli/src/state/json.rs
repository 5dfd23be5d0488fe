//! An item's attributes as JSON.

use serde_json::{Map, Value as Json};
use tenon_table::key::{EXPIRES_AT, VERSION};
use tenon_table::{Item, Value};

/// The attributes, without those that are the table's own business.
pub(super) fn item(item: &Item) -> Map<String, Json> {
    let shown = item.iter().filter(|(name, _)| !matches!(name.as_str(), VERSION | EXPIRES_AT));
    shown.map(|(name, attribute)| (name.clone(), value(attribute))).collect()
}

/// Learned memory, with the key that clears it.
pub(super) fn learned(what: &str, found: &Item) -> Json {
    let mut shown = item(found);
    shown.insert("what".to_owned(), Json::from(what));
    Json::Object(shown)
}

fn value(attribute: &Value) -> Json {
    match attribute {
        Value::S(text) => Json::from(text.as_str()),
        Value::N(number) => {
            let text = number.to_string();
            serde_json::from_str(&text).unwrap_or(Json::String(text))
        }
        Value::Bool(truth) => Json::from(*truth),
        Value::B(bytes) => Json::from(format!("{} bytes", bytes.len())),
        Value::Null => Json::Null,
        Value::L(list) => list.iter().map(value).collect(),
        Value::M(map) => Json::Object(map.iter().map(|(name, v)| (name.clone(), value(v))).collect()),
    }
}
