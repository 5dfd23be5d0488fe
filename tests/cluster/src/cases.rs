//! Tables of accepted and rejected manifests: `manifests/accepted` and `manifests/rejected`.
//!
//! A table is a YAML file with an accepted manifest, `base`, and `cases`. Each case is a change of the base, a JSON
//! merge patch, under a name. A rejected one has parts of the API server's error (`server`) and of our own reader's
//! (`reader`); one of the two may be absent if only the other can know.

use std::path::Path;

use serde_json::{Map, Value};
use tenon_domain::manifest;

/// The cases of one base.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its file's name.
    pub name: String,
    /// The manifest that all cases change.
    pub base: Value,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// A manifest, with the expected verdicts.
#[derive(Debug, Clone)]
pub struct Case {
    /// The change, in words.
    pub name: String,
    /// The base with `before`: the object that is there already, where the case is a change of one.
    pub before: Option<Value>,
    /// The manifest.
    pub manifest: Value,
    /// The API server's verdict.
    pub server: Verdict,
    /// Our reader's verdict.
    pub reader: Verdict,
}

/// The verdict on a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is accepted.
    Accepted,
    /// It is rejected with a message that holds this.
    Rejected(String),
}

/// The tables of accepted manifests.
#[must_use]
pub fn accepted() -> Vec<Table> {
    tables("accepted")
}

/// The tables of manifests that the API server, our reader or both reject.
#[must_use]
pub fn rejected() -> Vec<Table> {
    let tables = tables("rejected");
    for (table, case) in tables.iter().flat_map(|table| table.cases.iter().map(move |case| (table, case))) {
        let nobody = case.server == Verdict::Accepted && case.reader == Verdict::Accepted;
        assert!(
            !nobody,
            "{}: neither the API server nor the reader is expected to reject `{}`",
            table.name, case.name
        );
    }
    tables
}

fn tables(folder: &str) -> Vec<Table> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the tables are there")
        .map(|entry| entry.expect("the folder can be listed").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| {
            let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(file).expect("a table can be read");
            read_table(&name, &text)
        })
        .collect()
}

fn read_table(name: &str, text: &str) -> Table {
    let mut documents = manifest::objects(name, text);
    let (Some(mut document), true) = (documents.pop(), documents.is_empty()) else {
        panic!("{name}: a table is one document of YAML, and this can't be read as one");
    };
    let base = document["base"].take();
    let Value::Object(cases) = document["cases"].take() else { panic!("{name}: there is no map `cases`") };
    let cases = cases.into_iter().map(|(title, case)| read_case(name, title, case, &base)).collect();
    Table { name: name.to_owned(), base, cases }
}

fn read_case(file: &str, name: String, case: Value, base: &Value) -> Case {
    let Value::Object(mut case) = case else { panic!("{file}: `{name}` isn't a map") };
    let mut changed = |key: &str| {
        case.remove(key).map(|change| {
            let mut manifest = base.clone();
            merge(&mut manifest, &change);
            manifest
        })
    };
    let before = changed("before");
    let manifest = changed("change").unwrap_or_else(|| panic!("{file}: `{name}` has no `change`"));
    let (server, reader) = (verdict(&mut case, "server"), verdict(&mut case, "reader"));
    assert!(case.is_empty(), "{file}: `{name}` has unknown keys: {case:?}");
    Case { name, before, manifest, server, reader }
}

fn verdict(case: &mut Map<String, Value>, key: &str) -> Verdict {
    match case.remove(key) {
        None => Verdict::Accepted,
        Some(Value::String(text)) => Verdict::Rejected(text),
        Some(other) => panic!("`{key}` is a text, not {other}"),
    }
}

/// RFC 7386.
fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in change {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_a_change_of_the_base() {
        let table = read_table(
            "t.yaml",
            "base: {a: {b: 1, c: [1]}}\ncases:\n  other c:\n    change: {a: {b: null, c: [2], d: {e: x}}}\n    server: never\n",
        );
        let [case] = table.cases.as_slice() else { panic!("one case") };
        assert_eq!(case.manifest, serde_json::json!({"a": {"c": [2], "d": {"e": "x"}}}));
        assert_eq!(case.server, Verdict::Rejected("never".to_owned()));
        assert_eq!((&case.reader, &case.before), (&Verdict::Accepted, &None));
    }
}
