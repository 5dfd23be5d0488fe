//! Values of YAML and JSON texts, and their first lines.
//!
//! Decides what a scalar is (as `kubectl` reads it: a plain `yes` is a boolean, `0x10` a number), resolves aliases and
//! merge keys, and rejects duplicate keys, custom tags and keys that aren't scalars. It knows no kind of object.
//!
//! Invariants: the depth and the expansion of aliases are bounded; a broken document doesn't hide later ones.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::decode::write_key;

/// Deeper than any object of Kubernetes. The depth is bounded because freeing a value recurses.
const MAX_DEPTH: usize = 100;
/// The most values that all aliases of a file may expand to; without a limit a few lines become gigabytes.
const MAX_ALIASED: usize = 100_000;

/// The first line of each value, by place; empty if the object wasn't read from text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct YamlLines(BTreeMap<String, u32>);

impl YamlLines {
    /// The line of a place or of the value around it: a missing field has none, and neither has a field of an alias.
    pub(super) fn of(&self, place: &str) -> Option<u32> {
        if let Some(line) = self.0.get(place) {
            return Some(*line);
        }
        let around = place.rfind(['.', '[']).unwrap_or(0);
        place.get(..around).filter(|_| !place.is_empty()).and_then(|around| self.of(around))
    }
}

/// One document of a text.
#[derive(Debug, Default)]
pub(super) struct YamlDocument {
    pub(super) value: Value,
    pub(super) lines: YamlLines,
}

/// An error of YAML or JSON syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: Option<u32>,
    pub(super) message: String,
    pub(super) remedy: String,
}

/// The documents of a text, and the errors of broken ones.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) documents: Vec<YamlDocument>,
    pub(super) errors: Vec<SyntaxError>,
}

/// Reads a file's text: YAML with its documents, or JSON.
pub(super) fn parse(file: &str, text: &str) -> Documents {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') { parse_json(file, text) } else { parse_yaml(text) }
}

/// JSON is read as YAML too, for its lines and duplicate keys.
fn parse_json(file: &str, text: &str) -> Documents {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    let mut yaml = parse_yaml(text);
    match values {
        Ok(values) => {
            yaml.errors.retain(|error| error.message.contains("is given twice"));
            // JSON that isn't valid YAML has no lines.
            let known = values.len() == yaml.documents.len();
            let mut lines = yaml.documents.into_iter().map(|document| document.lines).filter(|_| known);
            let with_lines = |value| YamlDocument { value, lines: lines.next().unwrap_or_default() };
            Documents { documents: values.into_iter().map(with_lines).collect(), errors: yaml.errors }
        }
        // `{a: b}` is YAML, but not JSON.
        Err(_) if yaml.errors.is_empty() && !file.ends_with(".json") => yaml,
        Err(error) => {
            let message = format!("not valid JSON: {error}");
            let remedy = "check the commas, quotes and brackets near this line".to_owned();
            let line = u32::try_from(error.line()).ok();
            Documents { documents: Vec::new(), errors: vec![SyntaxError { line, message, remedy }] }
        }
    }
}

fn parse_yaml(text: &str) -> Documents {
    let mut documents = Documents::default();
    let mut aliased = 0;
    let (mut rest, mut lines_before) = (text, 0);
    loop {
        let mut builder = Builder { lines_before, aliased, ..Builder::default() };
        let failure = builder.read(rest, &mut documents);
        aliased = builder.aliased;
        let Some(line) = failure else { return documents };
        let Some((next, skipped)) = next_document(rest, line) else { return documents };
        rest = next;
        lines_before += skipped;
    }
}

/// The text from the first document marker at or after a line (counted from 1; the first line doesn't count), and the
/// number of lines before it.
fn next_document(text: &str, line: usize) -> Option<(&str, usize)> {
    let mut offset = 0;
    for (index, content) in text.split_inclusive('\n').enumerate() {
        let marker = content.strip_prefix("---").is_some_and(|rest| rest.trim_start().len() < rest.len());
        if index > 0 && index + 1 >= line && marker {
            return text.get(offset..).map(|rest| (rest, index));
        }
        offset += content.len();
    }
    None
}

#[derive(Default)]
struct Builder {
    lines_before: usize,
    aliased: usize,
    frames: Vec<Frame>,
    anchors: BTreeMap<usize, Value>,
    done: YamlDocument,
    repeated: Vec<SyntaxError>,
}

struct Frame {
    place: String,
    line: Option<u32>,
    anchor: usize,
    holds: Holds,
}

enum Holds {
    List(Vec<Value>),
    Map { fields: Map<String, Value>, merged: Vec<Value>, key: Option<YamlKey> },
}

enum YamlKey {
    Plain(String, Option<u32>),
    Merge,
}

/// The error that ends the reading of a document.
struct Broken {
    line: Option<u32>,
    message: String,
    remedy: &'static str,
}

impl Builder {
    /// Reads documents up to the end or to the first broken one, whose line it returns.
    fn read(&mut self, text: &str, into: &mut Documents) -> Option<usize> {
        let mut parser = Parser::new(StrInput::new(text));
        while let Some(event) = parser.next_event() {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    into.errors.push(self.scan_error(&error, text));
                    return Some(error.marker().line());
                }
            };
            if let Err(Broken { line, message, remedy }) = self.take(event, span, into) {
                into.errors.push(SyntaxError { line, message, remedy: remedy.to_owned() });
                return Some(span.start.line());
            }
        }
        None
    }

    fn scan_error(&self, error: &ScanError, text: &str) -> SyntaxError {
        let mut line = error.marker().line();
        // For a tab that ends a scalar, the scanner gives the scalar's line.
        let tabs = text.lines().zip(1_usize..).skip(line.saturating_sub(1)).take(2).find(|(content, _)| {
            let indent = content.len() - content.trim_start().len();
            content.get(..indent).is_some_and(|blank| blank.contains('\t'))
        });
        if let Some((_, number)) = tabs {
            line = number;
        }
        let (message, remedy) = if tabs.is_some() {
            ("not valid YAML: a tab in the indentation".to_owned(), "indent with spaces")
        } else {
            (
                format!("not valid YAML: {}", error.info()),
                "check the indentation, colons and quotes near this line",
            )
        };
        SyntaxError { line: self.line_of(line), message, remedy: remedy.to_owned() }
    }

    fn line_of(&self, line: usize) -> Option<u32> {
        u32::try_from(line.saturating_add(self.lines_before)).ok()
    }

    fn take(&mut self, event: Event<'_>, span: Span, into: &mut Documents) -> Result<(), Broken> {
        let line = self.line_of(span.start.line());
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
            Event::DocumentStart(_) => {
                self.anchors.clear();
                self.done = YamlDocument::default();
            }
            Event::DocumentEnd => {
                into.errors.append(&mut self.repeated);
                into.documents.push(std::mem::take(&mut self.done));
            }
            Event::Alias(id) => {
                let value = self.anchors.get(&id).cloned().ok_or_else(|| Broken {
                    line,
                    message: "an alias inside its own anchor".to_owned(),
                    remedy: "write the value out",
                })?;
                self.aliased = self.aliased.saturating_add(size(&value));
                if self.aliased > MAX_ALIASED {
                    let message = format!("aliases expand to more than {MAX_ALIASED} values");
                    return Err(Broken { line, message, remedy: "write the values out" });
                }
                self.begin(line);
                self.put(value, line)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = scalar(&text, plain, tag.as_deref(), line)?;
                if let Some(Holds::Map { key: key @ None, .. }) = self.frames.last_mut().map(|f| &mut f.holds)
                {
                    *key = Some(if plain && text == "<<" {
                        YamlKey::Merge
                    } else {
                        YamlKey::Plain(text.into_owned(), line)
                    });
                } else {
                    self.begin(line);
                    self.anchor(anchor, &value);
                    self.put(value, line)?;
                }
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(anchor, tag.as_deref(), line, Holds::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                let holds = Holds::Map { fields: Map::new(), merged: Vec::new(), key: None };
                self.open(anchor, tag.as_deref(), line, holds)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
        }
        Ok(())
    }

    /// Records the first line of the next value, and returns its place. A field begins with its key.
    fn begin(&mut self, line: Option<u32>) -> String {
        let (place, line) = match self.frames.last() {
            None => (String::new(), line),
            Some(Frame { place, holds: Holds::List(items), .. }) => {
                (format!("{place}[{}]", items.len()), line)
            }
            Some(Frame { place, holds: Holds::Map { key, .. }, .. }) => match key {
                Some(YamlKey::Plain(key, line)) => {
                    let mut child = place.clone();
                    // Writing into memory can't fail.
                    let _ = write_key(&mut child, if place.is_empty() { "" } else { "." }, key);
                    if let Some(first) = self.done.lines.0.get(&child) {
                        let message = format!("key `{key}` is given twice, first at line {first}");
                        let remedy = "keep one of them".to_owned();
                        self.repeated.push(SyntaxError { line: *line, message, remedy });
                    }
                    (child, *line)
                }
                Some(YamlKey::Merge) | None => (format!("{place}<<"), None),
            },
        };
        if let Some(line) = line {
            self.done.lines.0.insert(place.clone(), line);
        }
        place
    }

    fn open(
        &mut self,
        anchor: usize,
        tag: Option<&Tag>,
        line: Option<u32>,
        holds: Holds,
    ) -> Result<(), Broken> {
        refuse_tag(tag, line)?;
        if self.frames.len() >= MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} levels deep");
            return Err(Broken { line, message, remedy: "no object of Kubernetes is that deep" });
        }
        if let Some(Frame { holds: Holds::Map { key: None, .. }, .. }) = self.frames.last() {
            let message = "a key that is a list or a map".to_owned();
            return Err(Broken {
                line,
                message,
                remedy: "keys are texts; quote a key that begins with `{` or `[`",
            });
        }
        let place = self.begin(line);
        self.frames.push(Frame { place, line, anchor, holds });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Broken> {
        let Some(Frame { line, anchor, holds, .. }) = self.frames.pop() else { return Ok(()) };
        let value = match holds {
            Holds::List(items) => Value::Array(items),
            Holds::Map { mut fields, merged, .. } => {
                for value in merged {
                    merge(&mut fields, value, line)?;
                }
                Value::Object(fields)
            }
        };
        self.anchor(anchor, &value);
        self.put(value, line)
    }

    fn anchor(&mut self, id: usize, value: &Value) {
        if id > 0 {
            self.anchors.insert(id, value.clone());
        }
    }

    fn put(&mut self, value: Value, line: Option<u32>) -> Result<(), Broken> {
        match self.frames.last_mut().map(|frame| &mut frame.holds) {
            None => self.done.value = value,
            Some(Holds::List(items)) => items.push(value),
            Some(Holds::Map { fields, merged, key }) => match key.take() {
                Some(YamlKey::Plain(key, _)) => drop(fields.insert(key, value)),
                Some(YamlKey::Merge) => merged.push(value),
                None => {
                    let message = "an alias as a key".to_owned();
                    return Err(Broken { line, message, remedy: "write the key out" });
                }
            },
        }
        Ok(())
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => items.iter().map(size).fold(1, usize::saturating_add),
        Value::Object(fields) => {
            fields.values().map(size).fold(1, |a, b| a.saturating_add(b).saturating_add(1))
        }
    }
}

/// `<<`: fields that the map lacks come from the other map, or from the first map of a list that has them.
fn merge(fields: &mut Map<String, Value>, from: Value, line: Option<u32>) -> Result<(), Broken> {
    match from {
        Value::Object(more) => {
            more.into_iter().for_each(|(key, value)| {
                fields.entry(key).or_insert(value);
            });
            Ok(())
        }
        Value::Array(values) if values.iter().all(Value::is_object) => {
            values.into_iter().try_for_each(|value| merge(fields, value, line))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let message = "`<<` needs a map".to_owned();
            Err(Broken { line, message, remedy: "merge an alias of a map, or a list of them" })
        }
    }
}

fn refuse_tag(tag: Option<&Tag>, line: Option<u32>) -> Result<(), Broken> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => {
            let message = format!("tag `{tag}` isn't supported in a manifest");
            Err(Broken { line, message, remedy: "leave the tag out" })
        }
        Some(_) | None => Ok(()),
    }
}

fn scalar(text: &str, plain: bool, tag: Option<&Tag>, line: Option<u32>) -> Result<Value, Broken> {
    refuse_tag(tag, line)?;
    let forced = tag.is_some_and(|tag| tag.suffix == "str");
    Ok(if plain && !forced { super::scalar::resolve(text) } else { Value::String(text.to_owned()) })
}
