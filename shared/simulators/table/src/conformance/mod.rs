//! The shared behaviours of all adapters of the table, run unchanged on each.
//!
//! A case is a function over a [`Harness`], which creates fresh tables and tells the capabilities of the adapter's
//! surroundings. A case that needs a missing capability is skipped with that reason. A case fails with a sentence
//! instead of a panic, so that one run reports on all.

mod reads;
mod sizes;
mod support;
mod time;
mod writes;

use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use tenon_table::port::Table;

/// An adapter under test.
pub trait Harness: Sync {
    /// The adapter.
    type Table: Table;

    /// An empty table, or one whose partitions for the cases are empty.
    fn fresh(&self) -> impl Future<Output = Self::Table> + Send;

    /// Whether the surroundings can do this.
    fn can(&self, capability: Capability) -> Can;

    /// The table's time.
    fn now(&self) -> Timestamp;

    /// Advances the table's time; called only with [`Capability::AdvanceTime`].
    fn advance(&self, by: SignedDuration) -> impl Future<Output = ()> + Send;
}

/// A capability that some tables' surroundings lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Time can be advanced at once.
    AdvanceTime,
    /// A key's throughput is enforced.
    Throughput,
    /// Items with `expires_at` are deleted in the end, within 48 hours.
    Expiry,
}

/// Whether a capability is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Can {
    /// It is.
    Yes,
    /// It isn't: cases that need it are skipped.
    No,
}

/// How a case failed, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseFailure(pub String);

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseOutcome {
    /// The adapter behaves so.
    Passed,
    /// The surroundings lack this.
    Skipped(Capability),
    /// The adapter doesn't behave so.
    Failed(CaseFailure),
}

/// A case's name and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The case, as in [`CASES`].
    pub name: &'static str,
    /// The result.
    pub outcome: CaseOutcome,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<(), CaseFailure>> + Send + 'a>>;

/// A case over one kind of harness.
pub struct Case<H: Harness> {
    /// Its name, as in [`CASES`].
    pub name: &'static str,
    /// The needed capabilities.
    pub needs: &'static [Capability],
    run: for<'a> fn(&'a H) -> Running<'a>,
}

impl<H: Harness> Case<H> {
    /// Runs the case, or skips it if a capability is missing.
    pub async fn run(&self, harness: &H) -> CaseResult {
        let lacking = self.needs.iter().find(|need| harness.can(**need) == Can::No);
        let outcome = match lacking {
            Some(capability) => CaseOutcome::Skipped(*capability),
            None => match (self.run)(harness).await {
                Ok(()) => CaseOutcome::Passed,
                Err(failure) => CaseOutcome::Failed(failure),
            },
        };
        CaseResult { name: self.name, outcome }
    }
}

macro_rules! cases {
    ($($module:ident :: $case:ident [$($need:ident),*];)*) => {
        /// The names of all cases.
        pub const CASES: &[&str] = &[$(stringify!($case)),*];

        /// All cases, in the order of [`CASES`].
        #[must_use]
        pub fn cases<H: Harness>() -> Vec<Case<H>> {
            vec![$(Case {
                name: stringify!($case),
                needs: &[$(Capability::$need),*],
                run: |harness| Box::pin($module::$case(harness)),
            }),*]
        }
    };
}

cases! {
    writes::a_put_replaces_the_whole_item [];
    writes::a_set_keeps_attributes_it_does_not_know [];
    writes::an_add_counts_from_nothing [];
    writes::a_delete_is_no_error_twice [];
    writes::a_cluster_revision_is_created_and_raised [];
    writes::a_lost_race_for_a_cluster_writes_nothing [];
    writes::a_lost_race_names_every_condition [];
    writes::conditions_merge_with_writes_of_their_item [];
    writes::a_condition_alone_is_checked [];
    writes::rivals_at_once_have_one_winner [];
    writes::a_name_may_be_any_text [];
    writes::a_token_makes_a_repetition_harmless [];
    writes::a_token_with_other_content_is_refused [];
    writes::a_token_is_forgotten_after_ten_minutes [AdvanceTime];
    writes::contradictions_are_refused [];
    writes::slices_stop_at_a_lost_race_and_keep_what_is_committed [];
    reads::numbers_are_exact [];
    reads::every_type_of_value_comes_back [];
    reads::a_query_reads_a_range_in_order [];
    reads::keys_are_in_the_order_of_their_bytes [];
    reads::a_limit_makes_pages_that_lead_on [];
    reads::a_page_holds_a_megabyte [];
    reads::a_batch_reads_what_exists [];
    reads::bad_questions_are_refused [];
    sizes::an_item_holds_400_kilobytes [];
    sizes::an_item_is_measured_to_the_byte [];
    sizes::a_set_cannot_outgrow_an_item [];
    sizes::a_transaction_holds_100_actions [];
    sizes::a_transaction_holds_4_megabytes [];
    sizes::a_batch_holds_16_megabytes [];
    sizes::keys_are_bounded [];
    sizes::names_are_bounded [];
    sizes::values_nest_31_levels [];
    sizes::a_set_names_300_attributes [];
    time::a_strong_read_sees_every_write [];
    time::an_eventual_read_sees_one_of_the_written_states [];
    time::an_eventual_read_catches_up [AdvanceTime];
    time::a_hot_key_is_throttled_and_recovers [Throughput, AdvanceTime];
    time::an_expired_item_goes_late [Expiry, AdvanceTime];
}

/// Runs every case, each over a fresh table.
pub async fn run_all<H: Harness>(harness: &H) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for case in cases::<H>() {
        results.push(case.run(harness).await);
    }
    results
}
