//! Documents as YAML, written while they are made.
//!
//! Decides the layout: blocks, two spaces a level, a list's elements begin on the line of their dash. `serde_json` walks
//! the document, so that its fields have the order and the names that they have in JSON; the emitter of `saphyr` decides
//! which texts need quotes.
//!
//! Invariant: nothing of a document is kept but the text that is being written and where it stands.

use std::io::{self, Write};

use saphyr::{Scalar, Yaml, YamlEmitter};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CharEscape, Formatter};

/// Spaces of a level.
const INDENT: usize = 2;

/// Writes a document, without its last newline.
///
/// # Errors The writer's, and those of documents that JSON can't have either.
pub(super) fn write<W: Write, T: Serialize>(out: W, document: &T) -> serde_json::Result<()> {
    document.serialize(&mut Serializer::with_formatter(out, YamlBlocks::default()))
}

/// What a value follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Follows {
    /// Nothing, or a dash with its space.
    #[default]
    Nothing,
    /// A key's colon.
    Colon,
}

/// A list or a map that isn't ended.
#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    follows: Follows,
    empty: bool,
}

/// The form that `serde_json` writes.
#[derive(Debug, Default)]
struct YamlBlocks {
    open: Vec<OpenBlock>,
    follows: Follows,
    /// The text of a string or key that is being written.
    text: Option<String>,
}

impl YamlBlocks {
    fn begin(&mut self) {
        self.open.push(OpenBlock { follows: self.follows, empty: true });
    }

    /// Ends a list or a map; one without elements is `nothing`.
    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, nothing: &str) -> io::Result<()> {
        match self.open.pop() {
            Some(OpenBlock { follows, empty: true }) => {
                self.follows = follows;
                self.scalar(writer, nothing)
            }
            Some(OpenBlock { empty: false, .. }) | None => Ok(()),
        }
    }

    /// Goes to the place of the next element or key.
    fn next_line<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let level = self.open.len().saturating_sub(1);
        let Some(block) = self.open.last_mut() else { return Ok(()) };
        let first = std::mem::replace(&mut block.empty, false);
        match (first, block.follows) {
            // It begins on the line of the dash around it, or of the document.
            (true, Follows::Nothing) => Ok(()),
            (true, Follows::Colon) | (false, Follows::Nothing | Follows::Colon) => {
                write!(writer, "\n{:1$}", "", level * INDENT)
            }
        }
    }

    /// Writes a value of one line; within a key it is a part of the key.
    fn scalar<W: ?Sized + Write>(&mut self, writer: &mut W, value: &str) -> io::Result<()> {
        if let Some(text) = &mut self.text {
            text.push_str(value);
            return Ok(());
        }
        match self.follows {
            Follows::Nothing => {}
            Follows::Colon => writer.write_all(b" ")?,
        }
        writer.write_all(value.as_bytes())
    }
}

/// A text, in quotes where it would be something else without.
fn quoted(text: &str) -> String {
    let mut written = String::new();
    // Writing into a String doesn't fail.
    let _ = YamlEmitter::new(&mut written).dump(&Yaml::Value(Scalar::String(text.into())));
    written.strip_prefix("---\n").map(str::to_owned).unwrap_or(written)
}

/// Writers of numbers, as the shortest text that has their type.
macro_rules! numbers {
    ($($name:ident: $number:ty),*) => {$(
        fn $name<W: ?Sized + Write>(&mut self, writer: &mut W, value: $number) -> io::Result<()> {
            self.scalar(writer, &format!("{value:?}"))
        }
    )*};
}

impl Formatter for YamlBlocks {
    numbers! {
        write_i8: i8, write_i16: i16, write_i32: i32, write_i64: i64, write_i128: i128,
        write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128,
        write_f32: f32, write_f64: f64
    }

    fn write_null<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.scalar(writer, "~")
    }

    fn write_bool<W: ?Sized + Write>(&mut self, writer: &mut W, value: bool) -> io::Result<()> {
        self.scalar(writer, if value { "true" } else { "false" })
    }

    fn write_number_str<W: ?Sized + Write>(&mut self, writer: &mut W, value: &str) -> io::Result<()> {
        self.scalar(writer, value)
    }

    fn begin_string<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.text = Some(String::new());
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        self.scalar(writer, fragment)
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        _writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let meant = match escape {
            CharEscape::Quote => '"',
            CharEscape::ReverseSolidus => '\\',
            CharEscape::Solidus => '/',
            CharEscape::Backspace => '\u{8}',
            CharEscape::FormFeed => '\u{c}',
            CharEscape::LineFeed => '\n',
            CharEscape::CarriageReturn => '\r',
            CharEscape::Tab => '\t',
            CharEscape::AsciiControl(byte) => char::from(byte),
        };
        if let Some(text) = &mut self.text {
            text.push(meant);
        }
        Ok(())
    }

    fn end_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let text = self.text.take().unwrap_or_default();
        self.scalar(writer, &quoted(&text))
    }

    fn begin_array<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.begin();
        Ok(())
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, _first: bool) -> io::Result<()> {
        self.next_line(writer)?;
        self.follows = Follows::Nothing;
        writer.write_all(b"- ")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, "[]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.begin();
        Ok(())
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, _first: bool) -> io::Result<()> {
        self.next_line(writer)?;
        self.follows = Follows::Nothing;
        Ok(())
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.follows = Follows::Colon;
        writer.write_all(b":")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, "{}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use saphyr::LoadableYamlNode;
    use serde_json::{Value, json};

    use super::*;

    fn text(document: &Value) -> String {
        let mut written = Vec::new();
        write(&mut written, document).unwrap();
        String::from_utf8(written).unwrap()
    }

    fn check(document: &Value, expected: &str) {
        assert_eq!(text(document), expected);
    }

    #[test]
    fn blocks_are_laid_out_as_people_write_them() {
        check(&json!([]), "[]");
        check(&json!({}), "{}");
        check(&json!("a b"), "a b");
        check(&json!({"a": {}, "b": [], "c": null, "d": 1.5}), "a: {}\nb: []\nc: ~\nd: 1.5");
        check(
            &json!({"a": {"b": ["x", {"c": 1, "d": [2, 3]}]}}),
            "a:\n  b:\n    - x\n    - c: 1\n      d:\n        - 2\n        - 3",
        );
        check(&json!([[1, [2]], [], {"a": {}}]), "- - 1\n  - - 2\n- []\n- a: {}");
    }

    #[test]
    fn texts_that_would_be_something_else_are_quoted() {
        check(&json!({"2": "no", "a: b": "say \"hi\"\n"}), "\"2\": \"no\"\n\"a: b\": \"say \\\"hi\\\"\\n\"");
    }

    /// Any document without fractions, which have several forms.
    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\t]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = "[a-z0-9:. ]{1,4}";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The emitter of `saphyr` makes the same text of the whole document.
        #[test]
        fn a_document_reads_as_the_whole_one_would_be_emitted(document in documents()) {
            let loaded = Yaml::load_from_str(&document.to_string()).unwrap();
            let mut whole = String::new();
            YamlEmitter::new(&mut whole).dump(&loaded[0]).unwrap();
            prop_assert_eq!(format!("---\n{}", text(&document)), whole);
        }
    }
}
