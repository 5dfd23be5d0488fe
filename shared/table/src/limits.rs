//! DynamoDB's limits on requests, as numbers.
//!
//! Item sizes and the limits and tokens of transactions are from the DynamoDB developer guide ("DynamoDB item sizes
//! and formats") and the API reference of `TransactWriteItems`, read in November 2026. The others (keys, pages,
//! batches, throughput of one partition, the age of `expires_at`) are general knowledge, not checked there.

use jiff::SignedDuration;

/// One item, names and values and key: 400 KB.
pub const ITEM_BYTES: u64 = 400 * 1024;
/// Actions of one transaction.
pub const TRANSACTION_ACTIONS: usize = 100;
/// The items of one transaction together: 4 MB.
pub const TRANSACTION_BYTES: u64 = 4 * 1024 * 1024;
/// Keys of one `BatchGetItem`.
pub const BATCH_KEYS: usize = 100;
/// The answer of one `BatchGetItem`: 16 MB.
pub const BATCH_BYTES: u64 = 16 * 1024 * 1024;
/// One page of a `Query`: 1 MB.
pub const PAGE_BYTES: u64 = 1024 * 1024;
/// A partition key's value.
pub const PK_BYTES: usize = 2048;
/// A sort key's value.
pub const SK_BYTES: usize = 1024;
/// An attribute's name: 64 KB - 1.
pub const NAME_BYTES: usize = 65_535;
/// Levels of lists and maps in one attribute. DynamoDB allows 32, including the item itself; scalars in the innermost
/// level don't count.
pub const DEPTH: usize = 31;
/// Attributes that one `UpdateItem` sets or removes. Its expression may have 4 KB, which hold some 400 attributes by
/// placeholders, and 300 operators.
pub const UPDATED_ATTRIBUTES: usize = 300;
/// A client request token, in characters.
pub const TOKEN_CHARACTERS: usize = 36;
/// How long a client request token is remembered after its transaction went through.
pub const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(10);
/// Write units that one partition key takes in a second.
pub const WRITE_UNITS_A_SECOND: u64 = 1_000;
/// Read units that one partition key takes in a second.
pub const READ_UNITS_A_SECOND: u64 = 3_000;
/// The bytes of one write unit.
pub const WRITE_UNIT_BYTES: u64 = 1024;
/// The bytes of one strongly consistent read unit; an eventually consistent read costs half.
pub const READ_UNIT_BYTES: u64 = 4 * 1024;
/// The storage overhead of an item.
pub const STORAGE_OVERHEAD_BYTES: u64 = 100;
/// The oldest `expires_at` that DynamoDB deletes by: it takes older ones for mistakes.
pub const TTL_OLDEST: SignedDuration = SignedDuration::from_hours(5 * 365 * 24);
