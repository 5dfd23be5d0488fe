//! Features of the table in memory alone: its meter, its past, its backups.

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use std::sync::{Arc, Mutex};
    use tenon_memory_table::{MemoryConfig, MemoryTable};
    use tenon_memory_table::{Operation, OperationUsage, block_on};
    use tenon_table::{
        Commit, CommitError, CommitToken, Consistency, Expect, Item, Key, Query, SkRange, Table, Value,
        Write, WriteCondition,
    };

    struct TableWorld {
        table: MemoryTable,
        now: Arc<Mutex<Timestamp>>,
    }

    fn world(seed: u64) -> TableWorld {
        let now = Arc::new(Mutex::new("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()));
        let clock = Arc::clone(&now);
        TableWorld {
            table: MemoryTable::new(MemoryConfig::strict(seed), Arc::new(move || *clock.lock().unwrap())),
            now,
        }
    }

    impl TableWorld {
        fn advance(&self, by: SignedDuration) {
            let mut now = self.now.lock().unwrap();
            *now = now.checked_add(by).unwrap();
        }

        fn commit(
            &self,
            token: &str,
            conditions: Vec<WriteCondition>,
            writes: Vec<Write>,
        ) -> Result<(), CommitError> {
            let token = CommitToken::parse(token).unwrap();
            block_on(self.table.commit(&Commit { token, conditions, writes }))
        }

        fn put(&self, sk: &str, revision: u64) {
            self.commit("put", vec![], vec![put(sk, revision, 0)]).unwrap();
        }

        fn eventual(&self, sk: &str) -> Option<Item> {
            block_on(self.table.get(&key(sk), Consistency::Eventual)).unwrap()
        }
    }

    fn key(sk: &str) -> Key {
        Key::new("P", sk)
    }

    fn item(revision: u64, bytes: usize) -> Item {
        let data = ("data".to_owned(), Value::B(vec![0; bytes]));
        Item::from([("revision".to_owned(), Value::number(revision)), data])
    }

    fn put(sk: &str, revision: u64, bytes: usize) -> Write {
        Write::Put { key: key(sk), item: item(revision, bytes) }
    }

    #[test]
    fn units_are_counted_as_billed() {
        let world = world(1);
        let check = |what: &str, operation: Operation, expected: OperationUsage, run: &dyn Fn()| {
            let before = world.table.meter();
            run();
            let used = world.table.meter().since(&before);
            assert_eq!(used.of(operation), OperationUsage { calls: 1, ..expected }, "{what}");
            assert_eq!(used.total().calls, 1, "{what}");
        };
        let writes = |write_units| OperationUsage { write_units, ..OperationUsage::default() };
        let reads = |read_half_units| OperationUsage { read_half_units, ..OperationUsage::default() };
        let absent = || WriteCondition::Item { key: key("A"), expect: Expect::Absent };
        check("3 KB put", Operation::PutItem, writes(4), &|| {
            world.commit("a", vec![], vec![put("A", 1, 3 * 1024)]).unwrap();
        });
        check("lost put", Operation::PutItem, OperationUsage { lost: 1, ..writes(4) }, &|| {
            world.commit("b", vec![absent()], vec![put("A", 1, 0)]).unwrap_err();
        });
        check("smaller put over it", Operation::PutItem, writes(4), &|| {
            world.commit("c", vec![], vec![put("A", 1, 5)]).unwrap();
        });
        check("two puts together", Operation::TransactWriteItems, writes(4), &|| {
            world.commit("d", vec![], vec![put("A", 1, 0), put("B", 1, 0)]).unwrap();
        });
        check("the same again", Operation::TransactWriteItems, reads(8), &|| {
            world.commit("d", vec![], vec![put("A", 1, 0), put("B", 1, 0)]).unwrap();
        });
        check(
            "lost transaction",
            Operation::TransactWriteItems,
            OperationUsage { lost: 1, ..writes(4) },
            &|| {
                world.commit("e", vec![absent()], vec![put("B", 1, 0)]).unwrap_err();
            },
        );
        check("strong get", Operation::GetItem, reads(2), &|| {
            block_on(world.table.get(&key("A"), Consistency::Strong)).unwrap();
        });
        check("eventual get of nothing", Operation::GetItem, reads(1), &|| {
            block_on(world.table.get(&key("none"), Consistency::Eventual)).unwrap();
        });
        check("batch", Operation::BatchGetItem, reads(4), &|| {
            block_on(world.table.batch_get(&[key("A"), key("B")], Consistency::Strong)).unwrap();
        });
        check("query", Operation::Query, reads(2), &|| {
            block_on(world.table.query(&Query::new("P", SkRange::All, Consistency::Strong))).unwrap();
        });
        assert_eq!(world.table.meter().storage_bytes, 2 * (100 + 2 + 1 + 2 + 1 + 8 + 2 + 4));
        world.table.reset_meter();
        assert_eq!(world.table.meter().total(), OperationUsage::default());
    }

    #[test]
    fn eventual_reads_see_the_last_second_and_nothing_older() {
        let (mut stale, mut fresh) = (0, 0);
        for seed in 0..20 {
            let world = world(seed);
            for revision in 1..=40 {
                world.put("A", revision);
                // Written every 250 ms: a second ago it had four revisions less.
                match world.eventual("A") {
                    Some(found) if found == item(revision, 0) => fresh += 1,
                    found => {
                        let oldest = revision.saturating_sub(4);
                        let seen = (oldest.max(1)..revision).any(|r| found == Some(item(r, 0)));
                        assert!(
                            seen || (revision <= 4 && found.is_none()),
                            "seed {seed}: {revision} sees {found:?}"
                        );
                        stale += 1;
                    }
                }
                world.advance(SignedDuration::from_millis(250));
            }
            world.commit("del", vec![], vec![Write::Delete { key: key("A") }]).unwrap();
            world.advance(SignedDuration::from_secs(2));
            assert_eq!(world.eventual("A"), None, "seed {seed}");
            assert_eq!(world.table.dump().count(), 0);
        }
        assert!(stale > 100, "stale reads must happen: {stale}, fresh {fresh}");
    }

    #[test]
    fn one_seed_gives_the_same_answers() {
        let run = |seed| {
            let world = world(seed);
            let read = |n| {
                world.put("A", n);
                world.advance(SignedDuration::from_millis(300));
                world.eventual("A")
            };
            (1..50).map(read).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn a_restore_brings_back_the_hour_before_and_forgets_tokens() {
        let world = world(5);
        let count = |token| {
            let add = Write::Add { key: key("A"), attribute: "n".to_owned(), amount: 1 };
            world.commit(token, vec![], vec![add]).unwrap();
        };
        count("a");
        let backup = world.table.backup();
        let then: Vec<_> = world.table.dump().collect();
        let bytes = world.table.meter().storage_bytes;
        world.advance(SignedDuration::from_mins(1));
        count("b");
        world.put("B", 1);
        world.table.restore(&backup);
        assert_eq!(world.table.dump().collect::<Vec<_>>(), then);
        assert_eq!(world.table.meter().storage_bytes, bytes);
        assert_eq!(world.eventual("A"), world.table.peek(&key("A")));
        count("b");
        assert_eq!(world.table.peek(&key("A")).unwrap()["n"], Value::number(2_u64));
    }

    #[test]
    fn expired_items_stay_for_a_while_by_the_seed() {
        let hours = |seed| {
            let world = world(seed);
            let expires_at = world.now.lock().unwrap().as_second();
            let item = Item::from([("expires_at".to_owned(), Value::number(expires_at))]);
            world.commit("t", vec![], vec![Write::Put { key: key("A"), item }]).unwrap();
            (0..60).find(|_| {
                world.advance(SignedDuration::from_hours(1));
                world.table.peek(&key("A")).is_none()
            })
        };
        let all: Vec<i32> = (0..20).map(|seed| hours(seed).unwrap()).collect();
        assert!(all.iter().all(|h| *h <= 48), "{all:?}");
        assert!(all.iter().max() > all.iter().min(), "{all:?}");
    }

    #[test]
    fn large_partitions_stay_fast() {
        let world = world(1);
        for n in 0..20_000_u64 {
            world.put(&format!("N{n:05}"), n);
            world.advance(SignedDuration::from_millis(2));
        }
        let query = Query {
            limit: Some(3),
            ..Query::new("P", SkRange::Prefix("N1".to_owned()), Consistency::Strong)
        };
        assert_eq!(block_on(world.table.query(&query)).unwrap().items.len(), 3);
        assert_eq!(world.table.dump().count(), 20_000);
    }
}
