//! Both rules beside each other, as the document shows them.

use crate::case::Case;
use crate::measure::Row;
use crate::play::{BenchError, Policy, Size, cheapest, play};

/// Ours and the peer's, for a case.
///
/// # Errors
/// [`BenchError`].
pub fn both(case: Case, size: Size) -> Result<[Row; 2], BenchError> {
    let exhausted = cheapest(case)?;
    let (ours, peers) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| play(case, Policy::Ours, (&exhausted, size)));
        let peers = play(case, Policy::Peers, (&exhausted, size));
        (ours.join(), peers)
    });
    Ok([ours.map_err(|_| BenchError::Panicked)??, peers?])
}

/// A case's table in Markdown.
#[must_use]
pub fn table(rows: &[Row; 2]) -> String {
    let [ours, peers] = rows.map(|row| row.columns());
    let lines = ours
        .into_iter()
        .zip(peers)
        .map(|((name, ours), (_, peers))| format!("| {name} | {ours} | {peers} |\n"));
    let head = "| | Tenon | the peer's rule |\n|---|---|---|\n".to_owned();
    lines.fold(head, |table, line| table + &line)
}
