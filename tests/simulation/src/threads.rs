//! Plays histories side by side.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls a function with each number, on some threads: the given number, or one a processor.
pub(crate) fn each(numbers: Range<u64>, threads: Option<usize>, play: impl Fn(u64) + Sync) {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicU64::new(numbers.start);
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or_else(processors).max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if !numbers.contains(&number) {
                        return;
                    }
                    play(number);
                }
            });
        }
    });
}
