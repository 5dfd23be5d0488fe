//! The CustomResourceDefinitions as the chart installs them.

use std::path::Path;

use serde_json::Value;
use tenon_domain::manifest;

/// One of our CustomResourceDefinitions.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its whole object.
    pub object: Value,
}

impl Definition {
    /// The kind that it defines.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text("/spec/names/kind")
    }

    /// `group/version` of that kind.
    #[must_use]
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.text("/spec/group"), self.text("/spec/versions/0/name"))
    }

    /// The schema of its only version.
    #[must_use]
    pub fn schema(&self) -> &Value {
        self.object.pointer("/spec/versions/0/schema/openAPIV3Schema").expect("a definition has a schema")
    }

    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).expect("a definition names what it defines")
    }
}

/// All definitions, by file.
#[must_use]
pub fn definitions() -> Vec<Definition> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/chart/crds");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the chart has definitions")
        .map(|entry| entry.expect("the folder can be listed").path())
        .collect();
    files.sort();
    let objects = files.iter().flat_map(|file| {
        let text = std::fs::read_to_string(file).expect("a definition can be read");
        manifest::objects(&file.display().to_string(), &text)
    });
    objects.map(|object| Definition { object }).collect()
}
