//! The CustomResourceDefinitions against our reader of manifests, without a server: both have the same fields, and
//! the reader's verdict on each manifest of the tables is the expected one.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of an integration test fail as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tenon_cluster_tests::{Case, Definition, Verdict, accepted, definitions, rejected};
use tenon_domain::manifest::{ManifestObject, read_value};

/// A field that no schema has and that isn't near one that it has.
const STRANGER: &str = "qqqqqqqqqqqq";
/// The API server's own fields of `metadata`, which no schema has.
const METADATA: &str = "/metadata";
/// Tenon writes it, and no code here reads it.
const STATUS: &str = "/status";
/// Its fields are the kubelet's: the reader takes any.
const KUBELET: &str = "/spec/kubelet";

fn read(manifest: &Value) -> Result<ManifestObject, String> {
    read_value(manifest, "manifest").map_err(|errors| errors.to_string())
}

/// Maps with named fields in a schema, by the pointer of an instance of theirs; items of lists are the first.
fn maps<'a>(schema: &'a Value, at: &str, into: &mut BTreeMap<String, &'a Value>) {
    if let Some(items) = schema.get("items") {
        maps(items, &format!("{at}/0"), into);
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    into.insert(at.to_owned(), schema);
    for (name, property) in properties {
        maps(property, &format!("{at}/{name}"), into);
    }
}

/// An object of which nothing is there but the way to a map, with a stranger in it.
fn with_stranger(definition: &Definition, pointer: &str) -> Value {
    let mut value = json!({ STRANGER: 1 });
    for step in pointer.split('/').skip(1).collect::<Vec<_>>().into_iter().rev() {
        value = if step == "0" { json!([value]) } else { json!({ step: value }) };
    }
    value["apiVersion"] = definition.api_version().into();
    value["kind"] = definition.kind().into();
    if value.get("metadata").is_none() {
        value["metadata"] = json!({ "name": "table" });
    }
    value
}

/// The reader's known fields of a map, from its error for an unknown one.
fn known_to_the_reader(definition: &Definition, pointer: &str) -> BTreeSet<String> {
    let errors =
        read_value(&with_stranger(definition, pointer), "manifest").expect_err("a stranger is an error");
    let error =
        errors.0.iter().find(|error| error.field.contains(STRANGER)).unwrap_or_else(|| {
            panic!("{} {pointer}: the reader takes any field: {errors}", definition.kind())
        });
    let (_, known) =
        error.remedy.split_once("known fields are ").expect("the reader names the fields that it knows");
    known.split(['`', ',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn schema_and_reader_know_the_same_fields() {
    let mut looked_at = 0;
    for definition in definitions() {
        let mut found = BTreeMap::new();
        maps(definition.schema(), "", &mut found);
        for (pointer, schema) in found {
            if pointer == METADATA || pointer == KUBELET || pointer.starts_with(STATUS) {
                continue;
            }
            let fields = schema["properties"].as_object().expect("it has fields");
            let fields: BTreeSet<String> = fields.keys().cloned().collect();
            let known = known_to_the_reader(&definition, &pointer);
            assert_eq!(
                fields,
                known,
                "{} {pointer}: the schema's fields, and the reader's",
                definition.kind()
            );
            looked_at += 1;
        }
    }
    assert!(looked_at > 30, "only {looked_at} maps were looked at");
}

#[test]
fn every_field_has_a_description() {
    fn check(schema: &Value, at: &str) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            let said = property["description"].as_str().is_some_and(|text| text.ends_with('.'));
            assert!(said || at.ends_with(".metadata"), "{at}: no description");
            check(property, &at);
            check(&property["items"], &at);
        }
    }
    for definition in definitions() {
        check(definition.schema(), definition.kind());
    }
}

/// The reader's deviation from a case's verdict.
fn wrong(table: &str, case: &Case) -> Option<String> {
    let told = read(&case.manifest);
    let right = match (&case.reader, &told) {
        (Verdict::Accepted, Ok(_)) => true,
        (Verdict::Rejected(part), Err(told)) => told.contains(part.as_str()),
        (Verdict::Accepted, Err(_)) | (Verdict::Rejected(_), Ok(_)) => false,
    };
    let told = told.map(|_| "it is accepted".to_owned()).unwrap_or_else(|told| told);
    (!right).then(|| format!("{table}: {}: expected {:?}: {told}", case.name, case.reader))
}

#[test]
fn the_reader_says_what_the_tables_say() {
    let mut cases = 0;
    let mut found = Vec::new();
    for table in accepted().into_iter().chain(rejected()) {
        found.extend(read(&table.base).err().map(|error| format!("{}: base: {error}", table.name)));
        found.extend(table.cases.iter().filter_map(|case| wrong(&table.name, case)));
        cases += table.cases.len();
    }
    assert!(found.is_empty(), "{} of {cases}:\n{}", found.len(), found.join("\n"));
    assert!(cases > 200, "only {cases} cases");
}
