//! Output matches its schema in docs/schemas. Only the parts of JSON Schema that these schemas use are checked, which
//! needs no whole validator.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]
#![expect(clippy::panic, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use common::tenon;
use serde_json::Value;

/// The keywords that are checked, and those that say nothing of a value.
const KEYWORDS: [&str; 18] = [
    "$schema",
    "title",
    "description",
    "$defs",
    "$ref",
    "oneOf",
    "type",
    "const",
    "enum",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minItems",
    "minimum",
    "pattern",
    "format",
    "default",
];

fn schema(name: &str) -> Value {
    let path = format!("{}/../docs/schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The problems of a value.
fn problems(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let keywords = schema.as_object().unwrap();
    for keyword in keywords.keys() {
        assert!(KEYWORDS.contains(&keyword.as_str()), "the schema uses `{keyword}`, which isn't checked");
    }
    if let Some(target) = schema["$ref"].as_str() {
        let target = root.pointer(target.trim_start_matches('#')).unwrap();
        return problems(root, target, value, at);
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let fits = options.iter().filter(|option| problems(root, option, value, at).is_empty()).count();
        return if fits == 1 { found } else { vec![format!("{at}: fits {fits} of the forms: {value}")] };
    }
    if let Some(types) = keywords.get("type") {
        let types: Vec<&str> = types
            .as_array()
            .map_or_else(|| vec![types], |all| all.iter().collect())
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        if !types.iter().any(|name| is_of(name, value)) {
            found.push(format!("{at}: {value} isn't {types:?}"));
        }
    }
    if keywords.get("const").is_some_and(|constant| constant != value)
        || keywords.get("enum").is_some_and(|words| !words.as_array().unwrap().contains(value))
    {
        found.push(format!("{at}: {value} isn't a word of the schema"));
    }
    if let Some(fields) = value.as_object() {
        let known = schema["properties"].as_object().cloned().unwrap_or_default();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        found.extend(
            required
                .iter()
                .filter(|name| !fields.contains_key(name.as_str().unwrap()))
                .map(|n| format!("{at}: no {n}")),
        );
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match (known.get(name), &schema["additionalProperties"]) {
                (Some(of), _) => found.extend(problems(root, of, field, &at)),
                (None, Value::Bool(false)) => found.push(format!("{at}: isn't in the schema")),
                (None, of @ Value::Object(_)) => found.extend(problems(root, of, field, &at)),
                (None, _) => {}
            }
        }
    }
    if let (Some(items), Some(of)) = (value.as_array(), keywords.get("items")) {
        for (index, item) in items.iter().enumerate() {
            found.extend(problems(root, of, item, &format!("{at}[{index}]")));
        }
    }
    found
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the schema has the type `{other}`, which isn't checked"),
    }
}

fn check(name: &str, arguments: &[&str]) {
    let (status, out, errors) = tenon(arguments, "");
    let printed = if status == Some(2) { errors } else { out };
    let schema = schema(name);
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&printed).into_iter().collect::<Result<_, _>>().unwrap();
    assert!(!documents.is_empty(), "{arguments:?}");
    for document in documents {
        assert_eq!(problems(&schema, &schema, &document, "$"), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn what_is_printed_has_the_form_of_its_schema() {
    let json = ["-o", "json"];
    let plan = ["simulate", "-f", "pool.yaml", "-f", "pods.yaml", "--timing", "--compare", "pool.yaml"];
    check("simulate", &[&["simulate", "-f", "spot.yaml", "--explain", "cheap-0"][..], &json].concat());
    check(
        "simulate",
        &[&["simulate", "-f", "pool.yaml", "pods.yaml", "--explain", "gated"][..], &json].concat(),
    );
    check("types", &[&["types"][..], &json].concat());
    check("types", &[&["types", "--region", "eu-west-1", "t3.micro"][..], &json].concat());
    check("simulate", &[&plan[..], &json].concat());
    check("simulate", &[&["simulate", "-f", "cluster.yaml", "--region", "eu-west-1"][..], &json].concat());
    let bill = ["local", "--scenario", "idle-hour.yaml", "--speed", "max", "--bill"];
    check("bill", &[&bill[..], &json].concat());
    check("local-line", &[&["local", "--speed", "max", "--until", "2m"][..], &json].concat());
    check("error", &[&["simulate", "-f", "bad.yaml", "-f", "absent.yaml"][..], &json].concat());
    check("error", &[&["types", "--nope"][..], &json].concat());
}

/// Without credentials nobody is asked, so this needs no network.
#[cfg(feature = "aws")]
#[test]
fn a_doctor_without_credentials_has_the_form_of_its_schema() {
    let mut doctor = common::command(&["doctor", "--cluster", "prod", "-o", "json"]);
    doctor.env_clear().env("AWS_EC2_METADATA_DISABLED", "true");
    doctor.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    let output = doctor.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = schema("doctor");
    assert_eq!(problems(&schema, &schema, &document, "$"), Vec::<String>::new());
    assert_eq!((&document["checks"][0]["status"], &document["account"]), (&"failed".into(), &Value::Null));
}

#[test]
fn each_event_of_the_schema_has_an_example_that_fits() {
    let page = std::fs::read_to_string(format!("{}/../docs/events.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (schema, mut told) = (schema("events"), Vec::new());
    for part in page.split("```json\n").skip(1) {
        let example: Value = serde_json::from_str(part.split("```").next().unwrap()).unwrap();
        // A wake is a message on a queue.
        if example["source"] == "tenon" && example["detail-type"] != "Wake" {
            assert_eq!(problems(&schema, &schema, &example, "$"), Vec::<String>::new());
            told.push(example["detail-type"].as_str().unwrap().to_owned());
        }
    }
    let events = schema["oneOf"].as_array().unwrap();
    let mut known: Vec<&str> = events.iter().map(|event| event["title"].as_str().unwrap()).collect();
    known.sort_unstable();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, known);
}

#[test]
fn the_check_finds_what_is_wrong() {
    let schema = schema("error");
    let wrong = serde_json::json!({"apiVersion": "v2", "errors": [{"line": "7"}], "extra": 1});
    let found = problems(&schema, &schema, &wrong, "$").join("\n");
    for part in ["$.apiVersion", "no \"kind\"", "$.errors[0].line", "$.extra"] {
        assert!(found.contains(part), "{part} in\n{found}");
    }
}
