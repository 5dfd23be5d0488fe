//! Writes XML: elements in the given order.

use std::fmt::Display;

/// A document that is being written.
#[derive(Debug, Default)]
pub(crate) struct Xml(String);

impl Xml {
    /// A whole document.
    pub(crate) fn document(root: &str, content: impl FnOnce(&mut Self)) -> String {
        let mut xml = Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned());
        xml.within(root, content);
        xml.0
    }

    /// An element with elements in it.
    pub(crate) fn within(&mut self, tag: &str, content: impl FnOnce(&mut Self)) {
        self.0.extend(["<", tag, ">"]);
        content(self);
        self.0.extend(["</", tag, ">"]);
    }

    /// An element with a text.
    pub(crate) fn text(&mut self, tag: &str, value: impl Display) {
        let value = value.to_string();
        self.within(tag, |xml| {
            for c in value.chars() {
                match c {
                    '&' => xml.0.push_str("&amp;"),
                    '<' => xml.0.push_str("&lt;"),
                    '>' => xml.0.push_str("&gt;"),
                    other => xml.0.push(other),
                }
            }
        });
    }

    /// An element with a text, if there is one.
    pub(crate) fn maybe(&mut self, tag: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(tag, value);
        }
    }

    /// A list of structures.
    pub(crate) fn set<T>(&mut self, tag: &str, items: &[T], content: impl Fn(&mut Self, &T)) {
        self.within(tag, |xml| {
            for item in items {
                xml.within("item", |xml| content(xml, item));
            }
        });
    }

    /// A list of texts, if there is one.
    pub(crate) fn texts(&mut self, tag: &str, items: Option<&Vec<String>>) {
        if let Some(items) = items {
            self.within(tag, |xml| items.iter().for_each(|item| xml.text("item", item)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let document = Xml::document("a", |xml| {
            xml.text("b", "x & <y>");
            xml.maybe("c", None::<u32>);
            xml.texts("d", Some(&vec!["1".to_owned()]));
        });
        assert!(document.ends_with("<a><b>x &amp; &lt;y&gt;</b><d><item>1</item></d></a>"), "{document}");
    }
}
