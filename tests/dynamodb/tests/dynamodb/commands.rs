//! Random sequences of the port's calls, with few keys, names, tokens and revisions, so that they meet.
//!
//! Generated commands have partitions `p0` and `p1`. [`Command::in_world`] moves them to partitions and tokens of one
//! world, so that worlds share a table.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt;
use tenon_domain::id::ClusterName;
use tenon_table::{
    Commit, CommitToken, Consistency, Expect, Item, Key, Number, Query, QueryOrder, SkRange, Value, Write,
    WriteCondition,
};

/// One call of the port.
#[derive(Clone)]
pub(crate) enum Command {
    Get(Key, Consistency),
    BatchGet(Vec<Key>),
    Query(Query),
    Commit(Commit),
    /// The commit sent so many commits ago, again.
    Repeat(usize),
}

/// A failing sequence is printed whole, but not each of the bytes that make an item large.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Get(key, consistency) => format!("Get({key:?}, {consistency:?})"),
            Self::BatchGet(keys) => format!("BatchGet({keys:?})"),
            Self::Query(query) => format!("{query:?}"),
            Self::Commit(commit) => format!("{commit:?}"),
            Self::Repeat(back) => format!("Repeat({back})"),
        };
        f.write_str(&short(&text))
    }
}

/// The text with long runs of the generator's byte as their lengths.
pub(crate) fn short(text: &str) -> String {
    const FEW: usize = 8;
    let byte = format!("{FILLER}, ");
    let mut short = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&byte.repeat(FEW)) {
        let (before, from) = rest.split_at(at);
        let after = from.trim_start_matches(&*byte);
        short.push_str(&format!("{before}{byte}… {} times … ", (from.len() - after.len()) / byte.len()));
        rest = after;
    }
    short + rest
}

/// The byte of large values.
const FILLER: u8 = 7;

/// The partitions of a world: those of two clusters.
pub(crate) fn partitions(world: u64) -> [String; 2] {
    ["p0", "p1"].map(|pk| moved_pk(pk, world))
}

fn moved_pk(pk: &str, world: u64) -> String {
    if pk.is_empty() { String::new() } else { format!("CLUSTER#{pk}-{world}") }
}

impl Command {
    /// The command in its world.
    pub(crate) fn in_world(self, world: u64) -> Self {
        let moved = |key: Key| Key::new(moved_pk(&key.pk, world), key.sk);
        match self {
            Self::Get(key, consistency) => Self::Get(moved(key), consistency),
            Self::BatchGet(keys) => Self::BatchGet(keys.into_iter().map(moved).collect()),
            Self::Query(query) => Self::Query(Query { pk: moved_pk(&query.pk, world), ..query }),
            Self::Commit(commit) => Self::Commit(Commit {
                token: CommitToken::parse(format!("{}-{world}", commit.token)).expect("a token"),
                conditions: commit.conditions.into_iter().map(|c| moved_condition(c, world)).collect(),
                writes: commit.writes.into_iter().map(|w| moved_write(w, &moved)).collect(),
            }),
            Self::Repeat(back) => Self::Repeat(back),
        }
    }
}

fn moved_condition(condition: WriteCondition, world: u64) -> WriteCondition {
    match condition {
        WriteCondition::Cluster { cluster, revision } => {
            let cluster = ClusterName::parse(format!("{cluster}-{world}")).expect("a name");
            WriteCondition::Cluster { cluster, revision }
        }
        WriteCondition::Item { key, expect } => {
            WriteCondition::Item { key: Key::new(moved_pk(&key.pk, world), key.sk), expect }
        }
    }
}

fn moved_write(write: Write, moved: &dyn Fn(Key) -> Key) -> Write {
    match write {
        Write::Put { key, item } => Write::Put { key: moved(key), item },
        Write::Set { key, set, remove } => Write::Set { key: moved(key), set, remove },
        Write::Add { key, attribute, amount } => Write::Add { key: moved(key), attribute, amount },
        Write::Delete { key } => Write::Delete { key: moved(key) },
    }
}

/// Sequences of commands.
pub(crate) fn commands() -> impl Strategy<Value = Vec<Command>> {
    let command = prop_oneof![
        2 => (key(), consistency()).prop_map(|(key, consistency)| Command::Get(key, consistency)),
        1 => vec(key(), 0..6).prop_map(Command::BatchGet),
        3 => query().prop_map(Command::Query),
        10 => commit().prop_map(Command::Commit),
        2 => (0..4_usize).prop_map(Command::Repeat),
    ];
    vec(command, 1..40)
}

fn consistency() -> impl Strategy<Value = Consistency> {
    select(vec![Consistency::Strong, Consistency::Eventual])
}

/// Sort keys that are prefixes of each other, and ones whose order differs between UTF-8 and UTF-16.
const SORT_KEYS: &[&str] = &[
    "REVISION",
    "A",
    "A#",
    "A#1",
    "A#10",
    "A#2",
    "A#1\0",
    "A#\u{E000}",
    "A#\u{1F600}",
    "A#\u{10FFFF}",
    "B",
    "é",
];

fn pk() -> impl Strategy<Value = String> {
    prop_oneof![60 => Just("p0"), 20 => Just("p1"), 1 => Just("")].prop_map(str::to_owned)
}

fn sk() -> impl Strategy<Value = String> {
    prop_oneof![60 => select(SORT_KEYS), 1 => Just("")].prop_map(str::to_owned)
}

fn key() -> impl Strategy<Value = Key> {
    (pk(), sk()).prop_map(|(pk, sk)| Key::new(pk, sk))
}

fn query() -> impl Strategy<Value = Query> {
    let prefix = || select(vec!["A", "A#", "A#1", "R", "é", "Z"]).prop_map(str::to_owned);
    let range = prop_oneof![
        Just(SkRange::All),
        prefix().prop_map(SkRange::Prefix),
        (prefix(), sk()).prop_map(|(prefix, after)| SkRange::After { prefix, after }),
        (prefix(), select(vec!["", "#", "0", "1\0"]))
            .prop_map(|(prefix, rest)| SkRange::After { after: format!("{prefix}{rest}"), prefix }),
        (sk(), sk()).prop_map(|(a, b)| SkRange::Between(a, b)),
    ];
    let order = select(vec![QueryOrder::Ascending, QueryOrder::Descending]);
    let limit = prop_oneof![2 => Just(None), 2 => (1..5_u32).prop_map(Some), 1 => select(vec![Some(0), Some(u32::MAX)])];
    (pk(), range, consistency(), limit, prop::option::weighted(0.3, sk()), order).prop_map(
        |(pk, range, consistency, limit, start_after, order)| Query {
            pk,
            range,
            consistency,
            limit,
            start_after,
            order,
        },
    )
}

fn commit() -> impl Strategy<Value = Commit> {
    let token = select(vec!["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"]);
    let size = prop_oneof![6 => Just((0..2, 1..2)), 6 => Just((0..3, 0..4)), 1 => Just((0..1, 0..12))];
    size.prop_flat_map(move |(conditions, writes)| {
        (token.clone(), vec(condition(), conditions), vec(write(), writes))
    })
    .prop_map(|(token, conditions, writes)| Commit {
        token: CommitToken::parse(token).expect("a token"),
        conditions,
        writes,
    })
}

fn revision() -> impl Strategy<Value = u64> {
    0..4_u64
}

fn condition() -> impl Strategy<Value = WriteCondition> {
    let cluster = select(vec!["p0", "p1"]).prop_map(|name| ClusterName::parse(name).expect("a name"));
    let expect = prop_oneof![Just(Expect::Absent), revision().prop_map(Expect::Revision)];
    prop_oneof![
        1 => (cluster, revision()).prop_map(|(cluster, revision)| WriteCondition::Cluster { cluster, revision }),
        2 => (key(), expect).prop_map(|(key, expect)| WriteCondition::Item { key, expect }),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    let remove = vec(name(), 0..3);
    let amount = select(vec![1, -1, 7, 0, i64::MIN, i64::MAX]);
    prop_oneof![
        4 => (key(), item()).prop_map(|(key, item)| Write::Put { key, item }),
        3 => (key(), item(), remove).prop_map(|(key, set, remove)| Write::Set { key, set, remove }),
        3 => (key(), name(), amount).prop_map(|(key, attribute, amount)| Write::Add { key, attribute, amount }),
        2 => key().prop_map(|key| Write::Delete { key }),
        1 => (key(), large_item()).prop_map(|(key, item)| Write::Put { key, item }),
        1 => (key(), large_item()).prop_map(|(key, set)| Write::Set { key, set, remove: Vec::new() }),
    ]
}

/// Names that are reserved words, that look like placeholders or paths, and some that are refused.
fn name() -> impl Strategy<Value = String> {
    let names =
        vec!["revision", "v", "name", "status", "count", "a.b", "l[0]", "#0", ":0", "", "pk", "größe"];
    let weight = |name: &&str| if matches!(*name, "" | "pk") { 1 } else { 15 };
    prop::strategy::Union::new_weighted(
        names.iter().map(|name| (weight(name), Just((*name).to_owned()))).collect(),
    )
}

fn item() -> impl Strategy<Value = Item> {
    let revision = revision().prop_map(|revision| ("revision".to_owned(), Value::number(revision)));
    let other = (name(), value());
    let count = (Just("count".to_owned()), number());
    prop::collection::vec(prop_oneof![2 => revision, 1 => count, 3 => other], 0..5)
        .prop_map(|attributes| attributes.into_iter().collect())
}

/// About as large as an item may be; the other attributes decide.
fn large_item() -> impl Strategy<Value = Item> {
    (item(), 409_450..409_600_usize).prop_map(|(mut item, bytes)| {
        item.insert("data".to_owned(), Value::B(vec![FILLER; bytes]));
        item
    })
}

fn number() -> impl Strategy<Value = Value> {
    let edges =
        ["0", "1", "-2", "0.5", "1e38", "-1e-130", "9.9e125", "99999999999999999999999999999999999999"];
    let numbers = edges.map(|text| Value::N(Number::parse(text).expect("a number")));
    select(numbers.to_vec())
}

fn value() -> impl Strategy<Value = Value> {
    let bytes = prop_oneof![20 => 0..20_usize, 1 => 390_000..400_000_usize];
    let leaf = prop_oneof![
        3 => number(),
        3 => select(vec!["", "x", "grün", "\0", "\u{1F600}"]).prop_map(Value::text),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Null),
        1 => bytes.prop_map(|bytes| Value::B(vec![FILLER; bytes])),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let names = prop_oneof![30 => select(vec!["a", "pk", "a b", "size"]), 1 => Just("")];
        let fields = vec((names.prop_map(str::to_owned), inner.clone()), 0..3);
        prop_oneof![
            vec(inner, 0..3).prop_map(Value::L),
            fields.prop_map(|fields| Value::M(fields.into_iter().collect())),
        ]
    })
}
