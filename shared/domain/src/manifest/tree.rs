//! Values with positions: what YAML and JSON texts are before anybody asks what they mean.
//!
//! Decides what a scalar is (as `kubectl` reads it: a plain `yes` is a boolean, `0x10` a number), what aliases and merge
//! keys stand for, and which texts aren't values at all: keys given twice, tags of applications, keys that are no text.
//! It doesn't know of any kind of object.
//!
//! Invariants: reading is bounded in depth and in what aliases may multiply; after a broken document the documents
//! behind it are still read.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

/// Deeper than any object of Kubernetes; freeing a tree walks it, so the depth has to be bounded.
const MAX_DEPTH: usize = 100;
/// How many values all aliases of a file may stand for together; without a bound a few lines become gigabytes.
const MAX_ALIASED: usize = 100_000;

/// A value and the line at which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    /// Counted from 1; absent in values that come from no text.
    pub(super) line: Option<u32>,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Its text; decimal where it is an integer.
    Number(String),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

/// A key with its value, in the order of the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: Option<u32>,
    pub(super) value: Tree,
}

/// A text that isn't a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: Option<u32>,
    pub(super) message: String,
    pub(super) remedy: String,
}

/// What a text holds: its documents, and what is wrong with those that are left out.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) trees: Vec<Tree>,
    pub(super) errors: Vec<SyntaxError>,
}

impl Tree {
    /// A value that comes from no text.
    pub(super) fn from_json(value: &serde_json::Value) -> Self {
        let value = match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(given) => Value::Bool(*given),
            serde_json::Value::Number(number) => Value::Number(number.to_string()),
            serde_json::Value::String(text) => Value::Text(text.clone()),
            serde_json::Value::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(fields) => Value::Map(
                fields
                    .iter()
                    .map(|(key, value)| Entry { key: key.clone(), line: None, value: Self::from_json(value) })
                    .collect(),
            ),
        };
        Self { line: None, value }
    }

    /// Compact JSON with sorted keys.
    pub(super) fn to_json(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(given) => given.to_string(),
            Value::Number(text) if serde_json::from_str::<serde_json::Number>(text).is_ok() => text.clone(),
            // `.5` and `1.` are numbers in YAML alone; what is too large for a number is one nowhere.
            Value::Number(text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => number.to_string(),
                Ok(_) | Err(_) => quote(text),
            },
            Value::Text(text) => quote(text),
            Value::List(items) => {
                format!("[{}]", items.iter().map(Self::to_json).collect::<Vec<_>>().join(","))
            }
            Value::Map(entries) => {
                let sorted: BTreeMap<&str, &Self> =
                    entries.iter().map(|entry| (entry.key.as_str(), &entry.value)).collect();
                let fields: Vec<String> =
                    sorted.iter().map(|(key, value)| format!("{}:{}", quote(key), value.to_json())).collect();
                format!("{{{}}}", fields.join(","))
            }
        }
    }

    /// The value of a key, if this is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// The value of a key, if it is a text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.value.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    fn same_value(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_value(b))
            }
            (Value::Map(a), Value::Map(b)) => {
                let other = |key: &str| b.iter().find(|entry| entry.key == key);
                a.len() == b.len()
                    && a.iter().all(|x| other(&x.key).is_some_and(|y| x.value.same_value(&y.value)))
            }
            // Both number grammars write the same number in several ways.
            (Value::Number(_), Value::Number(_)) => true,
            (a, b) => a == b,
        }
    }

    fn size(&self) -> usize {
        match &self.value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => 1,
            Value::List(items) => items.iter().map(Self::size).fold(1, usize::saturating_add),
            Value::Map(entries) => {
                entries.iter().map(|e| e.value.size()).fold(1, |a, b| a.saturating_add(b).saturating_add(1))
            }
        }
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads a file's text: YAML with its documents, or JSON.
pub(super) fn parse(file: &str, text: &str) -> Documents {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') { parse_json(file, text) } else { parse_yaml(text) }
}

/// JSON is read as YAML for its lines. Where the two differ (surrogate pairs, several values behind each other), JSON's
/// meaning counts, without lines.
fn parse_json(file: &str, text: &str) -> Documents {
    let values: Result<Vec<serde_json::Value>, _> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    let yaml = parse_yaml(text);
    let values = match values {
        Ok(values) => values,
        // `{a: b}` is YAML and no JSON.
        Err(_) if yaml.errors.is_empty() && !file.ends_with(".json") => return yaml,
        Err(error) => {
            let message = format!("not valid JSON: {error}");
            let remedy = "check the commas, quotes and brackets near this line".to_owned();
            let line = u32::try_from(error.line()).ok();
            return Documents { trees: Vec::new(), errors: vec![SyntaxError { line, message, remedy }] };
        }
    };
    let trees: Vec<Tree> = values.iter().map(Tree::from_json).collect();
    let repeated = yaml.errors.iter().any(|error| error.message.contains("is given twice"));
    let same = trees.len() == yaml.trees.len() && trees.iter().zip(&yaml.trees).all(|(a, b)| a.same_value(b));
    if repeated || same { yaml } else { Documents { trees, errors: Vec::new() } }
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

/// The text from the first document marker at or after a line (counted from 1, never the first one), and how many lines
/// precede it.
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
    anchors: BTreeMap<usize, Tree>,
    done: Option<Tree>,
}

struct Frame {
    line: Option<u32>,
    anchor: usize,
    holds: Holds,
}

enum Holds {
    List(Vec<Tree>),
    Map { entries: Vec<Entry>, merged: Vec<Tree>, key: Option<Key> },
}

enum Key {
    Plain(String, Option<u32>),
    Merge,
}

/// Reading of a document can't go on.
struct Broken {
    line: Option<u32>,
    message: String,
    remedy: &'static str,
}

impl Builder {
    /// Reads documents up to the end or to the first that is broken; returns that one's line.
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
        // Of a tab that ends a scalar, the scanner gives the scalar's line.
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
                self.done = None;
            }
            Event::DocumentEnd => into.trees.extend(self.done.take()),
            Event::Alias(id) => {
                let tree = self.anchors.get(&id).cloned().ok_or_else(|| Broken {
                    line,
                    message: "an alias to something that isn't complete yet".to_owned(),
                    remedy: "write the value out",
                })?;
                self.aliased = self.aliased.saturating_add(tree.size());
                if self.aliased > MAX_ALIASED {
                    let message = format!("aliases stand for more than {MAX_ALIASED} values");
                    return Err(Broken { line, message, remedy: "write the values out" });
                }
                self.put(tree, line)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = scalar(&text, plain, tag.as_deref(), line)?;
                if let Some(Holds::Map { key: key @ None, .. }) = self.frames.last_mut().map(|f| &mut f.holds)
                {
                    *key = Some(if plain && text == "<<" {
                        Key::Merge
                    } else {
                        Key::Plain(text.into_owned(), line)
                    });
                } else {
                    let tree = Tree { line, value };
                    self.anchor(anchor, &tree);
                    self.put(tree, line)?;
                }
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(anchor, tag.as_deref(), line, Holds::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                let holds = Holds::Map { entries: Vec::new(), merged: Vec::new(), key: None };
                self.open(anchor, tag.as_deref(), line, holds)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(into)?,
        }
        Ok(())
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
        self.frames.push(Frame { line, anchor, holds });
        Ok(())
    }

    fn close(&mut self, into: &mut Documents) -> Result<(), Broken> {
        let Some(Frame { line, anchor, holds }) = self.frames.pop() else { return Ok(()) };
        let value = match holds {
            Holds::List(items) => Value::List(items),
            Holds::Map { mut entries, merged, .. } => {
                into.errors.extend(repeated_keys(&entries));
                for tree in merged {
                    merge(&mut entries, tree, line)?;
                }
                Value::Map(entries)
            }
        };
        let tree = Tree { line, value };
        self.anchor(anchor, &tree);
        self.put(tree, line)
    }

    fn anchor(&mut self, id: usize, tree: &Tree) {
        if id > 0 {
            self.anchors.insert(id, tree.clone());
        }
    }

    fn put(&mut self, tree: Tree, line: Option<u32>) -> Result<(), Broken> {
        match self.frames.last_mut().map(|frame| &mut frame.holds) {
            None => self.done = Some(tree),
            Some(Holds::List(items)) => items.push(tree),
            Some(Holds::Map { entries, merged, key }) => match key.take() {
                Some(Key::Plain(key, line)) => entries.push(Entry { key, line, value: tree }),
                Some(Key::Merge) => merged.push(tree),
                None => {
                    let message = "an alias as a key".to_owned();
                    return Err(Broken { line, message, remedy: "write the key out" });
                }
            },
        }
        Ok(())
    }
}

fn repeated_keys(entries: &[Entry]) -> Vec<SyntaxError> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| (&entry.key, entry.line));
    sorted
        .iter()
        .zip(sorted.iter().skip(1))
        .filter(|(first, second)| first.key == second.key)
        .map(|(first, second)| SyntaxError {
            line: second.line,
            message: format!(
                "key `{}` is given twice, first at line {}",
                second.key,
                first.line.unwrap_or_default()
            ),
            remedy: "keep one of them".to_owned(),
        })
        .collect()
}

/// `<<`: what the map doesn't say itself comes from the other map, or from the first of a list that says it.
fn merge(entries: &mut Vec<Entry>, from: Tree, line: Option<u32>) -> Result<(), Broken> {
    match from.value {
        Value::Map(more) => {
            for entry in more {
                if !entries.iter().any(|known| known.key == entry.key) {
                    entries.push(entry);
                }
            }
            Ok(())
        }
        Value::List(trees) => trees.into_iter().try_for_each(|tree| match tree.value {
            Value::Map(_) => merge(entries, tree, line),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                Err(not_mergeable(line))
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Err(not_mergeable(line)),
    }
}

fn not_mergeable(line: Option<u32>) -> Broken {
    let message = "`<<` of something that isn't a map".to_owned();
    Broken { line, message, remedy: "merge an alias of a map, or a list of them" }
}

fn refuse_tag(tag: Option<&Tag>, line: Option<u32>) -> Result<(), Broken> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => {
            let message = format!("tag `{tag}` means nothing in a manifest");
            Err(Broken { line, message, remedy: "leave the tag out" })
        }
        Some(_) | None => Ok(()),
    }
}

fn scalar(text: &str, plain: bool, tag: Option<&Tag>, line: Option<u32>) -> Result<Value, Broken> {
    refuse_tag(tag, line)?;
    let forced = tag.is_some_and(|tag| tag.suffix == "str");
    Ok(if plain && !forced { super::scalar::resolve(text) } else { Value::Text(text.to_owned()) })
}
