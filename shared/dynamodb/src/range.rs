//! Ranges of sort keys as bounds for DynamoDB: both inclusive, neither longer than a sort key.
//!
//! Decides the first key after another, and the last key with a prefix. So a range with an exclusive lower bound
//! needs no filter, with any order and limit.

use tenon_table::limits::SK_BYTES;
use tenon_table::{QueryOrder, SkRange};

/// A query's condition on the sort key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SortKeyBounds {
    /// Nothing: every key.
    All,
    /// `begins_with`.
    Prefix(String),
    /// `BETWEEN`, both included.
    Between(String, String),
    /// No key can be in the range: there is nothing to ask.
    Empty,
}

impl SortKeyBounds {
    /// Whether no key can follow this one: DynamoDB refuses to begin there ("the provided starting key does not match
    /// the range key predicate").
    pub(crate) fn end_at(&self, start: &str, order: QueryOrder) -> bool {
        match (self, order) {
            (Self::All, QueryOrder::Ascending | QueryOrder::Descending) => false,
            (Self::Prefix(prefix), QueryOrder::Ascending) => start >= last_with(prefix).as_str(),
            (Self::Prefix(first) | Self::Between(first, _), QueryOrder::Descending) => {
                start <= first.as_str()
            }
            (Self::Between(_, last), QueryOrder::Ascending) => start >= last.as_str(),
            (Self::Empty, QueryOrder::Ascending | QueryOrder::Descending) => true,
        }
    }
}

/// The bounds of a range.
pub(crate) fn bounds_of(range: &SkRange) -> SortKeyBounds {
    match range {
        SkRange::All => SortKeyBounds::All,
        SkRange::Prefix(prefix) => SortKeyBounds::Prefix(prefix.clone()),
        SkRange::Between(first, last) => SortKeyBounds::Between(first.clone(), last.clone()),
        SkRange::After { prefix, after } => {
            let last = last_with(prefix);
            match first_after(after) {
                Some(first) if first <= last => SortKeyBounds::Between(first, last),
                Some(_) | None => SortKeyBounds::Empty,
            }
        }
    }
}

/// The first key after this one, if there is one.
fn first_after(sk: &str) -> Option<String> {
    if sk.len() < SK_BYTES {
        return Some(format!("{sk}\0"));
    }
    // Nothing longer is a key: the first that differs by a higher character, as far back as one fits.
    let mut rest = sk.to_owned();
    while let Some(last) = rest.pop() {
        // A range of characters leaves out the surrogates, which no text holds.
        if let Some(next) = (last..=char::MAX).nth(1).filter(|next| rest.len() + next.len_utf8() <= SK_BYTES)
        {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

/// The last key that begins so: filled up with the highest characters of each length.
fn last_with(prefix: &str) -> String {
    let mut last = prefix.to_owned();
    for highest in ['\u{10FFFF}', '\u{FFFF}', '\u{7FF}', '\u{7F}'] {
        while last.len() + highest.len_utf8() <= SK_BYTES {
            last.push(highest);
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_between_a_key_and_the_next() {
        let check = |sk: &str, expected: Option<&str>| assert_eq!(first_after(sk).as_deref(), expected);
        check("a", Some("a\0"));
        let fill = |end: &str| format!("{}{end}", "k".repeat(SK_BYTES - end.len()));
        let rest = |end: &str| format!("{}{end}", "k".repeat(SK_BYTES - end.len() - 1));
        check(&fill("a"), Some(&fill("b")));
        // U+0080 has two bytes and doesn't fit.
        check(&fill("\u{7F}"), Some(&rest("l")));
        check(&fill("\u{D7FF}"), Some(&fill("\u{E000}")));
        check(&"\u{10FFFF}".repeat(SK_BYTES / 4), None);
    }

    #[test]
    fn the_last_key_is_as_long_as_keys_get() {
        let check = |prefix: &str, rest: &str| {
            let last = last_with(prefix);
            assert_eq!(last.len(), SK_BYTES);
            assert!(last.ends_with(rest), "{prefix}");
        };
        check(&"k".repeat(SK_BYTES), "k");
        check(&"k".repeat(SK_BYTES - 1), "k\u{7F}");
        check(&"k".repeat(SK_BYTES - 2), "k\u{7FF}");
        check(&"k".repeat(SK_BYTES - 3), "k\u{FFFF}");
        check(&"k".repeat(SK_BYTES - 4), "k\u{10FFFF}");
        check(&"k".repeat(SK_BYTES - 6), "k\u{10FFFF}\u{7FF}");
    }

    #[test]
    fn nothing_follows_the_last_key_of_a_range() {
        let check = |bounds: &SortKeyBounds, start: &str, up: bool, down: bool| {
            assert_eq!(bounds.end_at(start, QueryOrder::Ascending), up, "{bounds:?} {start}");
            assert_eq!(bounds.end_at(start, QueryOrder::Descending), down, "{bounds:?} {start}");
        };
        let between = SortKeyBounds::Between("b".to_owned(), "d".to_owned());
        check(&between, "b", false, true);
        check(&between, "c", false, false);
        check(&between, "d", true, false);
        let prefix = SortKeyBounds::Prefix("b".to_owned());
        check(&prefix, "b", false, true);
        check(&prefix, "b1", false, false);
        check(&prefix, &last_with("b"), true, false);
        check(&SortKeyBounds::All, "b", false, false);
        check(&SortKeyBounds::Empty, "b", true, true);
    }

    #[test]
    fn ranges_become_bounds() {
        let check = |range: SkRange, expected: SortKeyBounds| assert_eq!(bounds_of(&range), expected);
        check(SkRange::All, SortKeyBounds::All);
        check(SkRange::Prefix("a".to_owned()), SortKeyBounds::Prefix("a".to_owned()));
        let after =
            |prefix: &str, after: &str| SkRange::After { prefix: prefix.to_owned(), after: after.to_owned() };
        check(after("a", "ab"), SortKeyBounds::Between("ab\0".to_owned(), last_with("a")));
        check(after("a", &last_with("a")), SortKeyBounds::Empty);
    }
}
