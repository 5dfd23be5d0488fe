//! The table in memory, against the behaviours that every adapter shares.

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use std::sync::{Arc, Mutex};
    use tenon_memory_table::block_on;
    use tenon_memory_table::conformance::{
        CASES, Can, Capability, CaseOutcome, CaseResult, Harness, run_all,
    };
    use tenon_memory_table::{MemoryConfig, MemoryTable, Throughput};

    struct Memory {
        config: MemoryConfig,
        now: Arc<Mutex<Timestamp>>,
    }

    impl Memory {
        fn new(config: MemoryConfig) -> Self {
            Self { config, now: Arc::new(Mutex::new("2026-01-01T00:00:00Z".parse().unwrap())) }
        }
    }

    impl Harness for Memory {
        type Table = MemoryTable;

        async fn fresh(&self) -> MemoryTable {
            let now = Arc::clone(&self.now);
            MemoryTable::new(self.config, Arc::new(move || *now.lock().unwrap()))
        }

        fn can(&self, capability: Capability) -> Can {
            match (capability, self.config.throughput) {
                (Capability::AdvanceTime | Capability::Expiry, _) => Can::Yes,
                (Capability::Throughput, Throughput::Enforced) => Can::Yes,
                (Capability::Throughput, Throughput::Off) => Can::No,
            }
        }

        fn now(&self) -> Timestamp {
            *self.now.lock().unwrap()
        }

        async fn advance(&self, by: SignedDuration) {
            let mut now = self.now.lock().unwrap();
            *now = now.checked_add(by).unwrap();
        }
    }

    fn check(config: MemoryConfig, skipped: &[Capability]) {
        let results = block_on(run_all(&Memory::new(config)));
        let names: Vec<&str> = results.iter().map(|result| result.name).collect();
        assert_eq!(names, CASES);
        let wrong: Vec<&CaseResult> = results
            .iter()
            .filter(|result| match &result.outcome {
                CaseOutcome::Passed => false,
                CaseOutcome::Skipped(capability) => !skipped.contains(capability),
                CaseOutcome::Failed(_) => true,
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn the_strict_table_behaves() {
        for seed in 0..8 {
            check(MemoryConfig::strict(seed), &[]);
        }
    }

    #[test]
    fn the_lenient_table_behaves() {
        let config = MemoryConfig {
            seed: 1,
            staleness_max: SignedDuration::ZERO,
            ttl_delay_max: SignedDuration::ZERO,
            throughput: Throughput::Off,
        };
        check(config, &[Capability::Throughput]);
    }
}
