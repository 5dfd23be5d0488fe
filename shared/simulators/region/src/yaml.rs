//! YAML as JSON, for templates and scenarios; short forms of CloudFormation's functions become their long ones.
//!
//! `tenon_domain::manifest` reads manifests, by Kubernetes' rules.

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// Reads one document; `!Ref X` becomes `{"Ref": "X"}`, `!Sub` and `!GetAtt` their `Fn::` forms.
///
/// # Errors
/// The parser's message, with its place.
pub fn parse(text: &str) -> Result<Value, String> {
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    documents.first().map_or_else(|| Err("no document".to_owned()), convert)
}

fn convert(node: &Yaml<'_>) -> Result<Value, String> {
    match node {
        Yaml::Representation(text, _, Some(tag)) => Ok(function(&tag.suffix, json!(text))),
        Yaml::Representation(text, _, None) => Ok(json!(text)),
        Yaml::Value(scalar) => Ok(match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => json!(value),
            Scalar::Integer(value) => json!(value),
            Scalar::FloatingPoint(value) => json!(value.into_inner()),
            Scalar::String(value) => json!(value),
        }),
        Yaml::Sequence(items) => Ok(Value::Array(items.iter().map(convert).collect::<Result<_, _>>()?)),
        Yaml::Mapping(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let key = key.as_str().ok_or_else(|| "a key that isn't a string".to_owned())?;
                map.insert(key.to_owned(), convert(value)?);
            }
            Ok(Value::Object(map))
        }
        Yaml::Tagged(tag, inner) => Ok(function(&tag.suffix, convert(inner)?)),
        Yaml::Alias(_) | Yaml::BadValue => Err("an alias or a malformed scalar".to_owned()),
    }
}

fn function(suffix: &str, argument: Value) -> Value {
    match suffix {
        "Ref" => json!({ "Ref": argument }),
        other => json!({ format!("Fn::{other}"): argument }),
    }
}
