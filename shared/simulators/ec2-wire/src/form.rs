//! A request's form: fields by name, taken one by one.
//!
//! Invariant: a field that is left in the end is an unknown parameter.

use std::collections::BTreeMap;
use std::str::FromStr;

use tenon_ec2::port::{PageToken, Tags};

use crate::error::{WireError, invalid, missing, refused};

/// Fields that weren't taken yet.
#[derive(Debug, Default)]
pub(crate) struct FormFields {
    /// The prefix of the fields' names in the request.
    prefix: String,
    fields: BTreeMap<String, String>,
}

impl FormFields {
    /// Reads `application/x-www-form-urlencoded`.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let malformed = || refused("MalformedQueryString", "The query string is malformed");
        let text = std::str::from_utf8(body).map_err(|_| malformed())?;
        let mut fields = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decoded(key).ok_or_else(malformed)?, decoded(value).ok_or_else(malformed)?);
            fields.insert(key, value);
        }
        Ok(Self { prefix: String::new(), fields })
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.fields.remove(name)
    }

    /// A text that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, WireError> {
        self.text(name).ok_or_else(|| missing(&format!("{}{name}", self.prefix)))
    }

    /// A text of a form.
    pub(crate) fn parsed<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, WireError> {
        self.text(name).map(|text| text.parse().map_err(|_| invalid(name, &text))).transpose()
    }

    /// The texts `name.1`, `name.2` and so on.
    pub(crate) fn list(&mut self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(text) = self.text(&format!("{name}.{}", found.len() + 1)) {
            found.push(text);
        }
        found
    }

    /// The fields under `name.`.
    pub(crate) fn within(&mut self, name: &str) -> Option<Self> {
        let prefix = format!("{name}.");
        let (own, rest) =
            std::mem::take(&mut self.fields).into_iter().partition(|(key, _)| key.starts_with(&prefix));
        self.fields = rest;
        let own: BTreeMap<String, String> = own;
        let strip = |(key, value): (String, String)| Some((key.strip_prefix(&prefix)?.to_owned(), value));
        let fields: BTreeMap<_, _> = own.into_iter().filter_map(strip).collect();
        (!fields.is_empty()).then(|| Self { prefix: format!("{}{prefix}", self.prefix), fields })
    }

    /// The structures under `name.1.`, `name.2.` and so on, each read to its end.
    pub(crate) fn structures<T>(
        &mut self,
        name: &str,
        read: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let mut found = Vec::new();
        while let Some(mut form) = self.within(&format!("{name}.{}", found.len() + 1)) {
            found.push(read(&mut form)?);
            form.finish()?;
        }
        Ok(found)
    }

    /// The structure under `name.`, read to its end.
    pub(crate) fn structure<T>(
        &mut self,
        name: &str,
        read: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        let Some(mut form) = self.within(name) else { return Ok(None) };
        let found = read(&mut form)?;
        form.finish()?;
        Ok(Some(found))
    }

    /// Tags under `Tag.n.`.
    pub(crate) fn tags(&mut self) -> Result<Tags, WireError> {
        let pair = |form: &mut Self| Ok((form.required("Key")?, form.text("Value").unwrap_or_default()));
        Ok(self.structures("Tag", pair)?.into_iter().collect())
    }

    /// The requested page.
    pub(crate) fn page(&mut self) -> Option<PageToken> {
        self.text("NextToken").map(PageToken)
    }

    /// Nothing may be left.
    pub(crate) fn finish(&self) -> Result<(), WireError> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(key) => Err(refused(
                "UnknownParameter",
                format!("The parameter {}{key} is not recognized", self.prefix),
            )),
        }
    }
}

/// A percent-encoded text; none if it isn't one.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_by_name_list_and_structure() {
        let mut form =
            FormFields::parse(b"Action=X&Id.1=a%20b&Id.2=c+d&Tag.1.Key=k&Tag.1.Value=%26&Count=3").unwrap();
        assert_eq!(form.text("Action").as_deref(), Some("X"));
        assert_eq!(form.list("Id"), ["a b", "c d"]);
        assert_eq!(form.tags().unwrap(), Tags::from([("k".to_owned(), "&".to_owned())]));
        assert_eq!(form.finish().unwrap_err().message, "The parameter Count is not recognized");
        assert_eq!(form.parsed::<u32>("Count").unwrap(), Some(3));
        form.finish().unwrap();
    }

    #[test]
    fn a_parameter_that_is_left_in_a_structure_is_named_whole() {
        let mut form = FormFields::parse(b"Tag.1.Key=k&Tag.1.Colour=red").unwrap();
        assert_eq!(form.tags().unwrap_err().message, "The parameter Tag.1.Colour is not recognized");
    }

    #[test]
    fn a_broken_form_is_refused() {
        assert_eq!(FormFields::parse(b"a=%2").unwrap_err().code, "MalformedQueryString");
    }
}
