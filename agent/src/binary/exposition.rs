//! A scrape's answer, in pieces: the metrics of a large cluster have 10 to 20 MB, and the agent's memory is small.
//!
//! Decides the size of a piece, and when a scrape is given up. Metrics are written on a thread of their own: meanwhile
//! the main loop turns.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use axum::body::Body;
use futures::stream::poll_fn;
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::metrics::Metrics;

/// Bytes of a piece.
const PIECE: usize = 64 * 1_024;
/// Pieces that wait for a slow reader.
const PIECES: usize = 2;
/// A reader that takes no piece for so long is given up: Prometheus' own timeout of a scrape is 10 s.
const STALLED: Duration = Duration::from_secs(10);
/// Scrapes at once: each holds a few megabytes. Two replicas of Prometheus are usual.
const SCRAPES: usize = 2;

/// Who may scrape.
#[derive(Debug)]
pub(super) struct Scrapes(Arc<Semaphore>);

impl Default for Scrapes {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SCRAPES)))
    }
}

/// The metrics, as a body.
pub(super) async fn body(metrics: Arc<Metrics>) -> Body {
    // The semaphore is never closed.
    let permit = Arc::clone(&metrics.scrapes.0).acquire_owned().await.ok();
    let (pieces, mut written) = mpsc::channel(PIECES);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut writer = PieceWriter { runtime, pieces, piece: String::new() };
        // A reader that is gone takes nothing more.
        let _written = metrics.write(&mut writer, Timestamp::now()).and_then(|()| writer.send());
    });
    let next = move |context: &mut Context<'_>| {
        written.poll_recv(context).map(|piece: Option<String>| piece.map(Ok::<_, Infallible>))
    };
    Body::from_stream(poll_fn(next))
}

/// Writes pieces to a reader.
struct PieceWriter {
    runtime: Handle,
    pieces: mpsc::Sender<String>,
    piece: String,
}

impl PieceWriter {
    fn send(&mut self) -> fmt::Result {
        let piece = mem::replace(&mut self.piece, String::with_capacity(PIECE));
        let sent = self.runtime.block_on(timeout(STALLED, self.pieces.send(piece)));
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(fmt::Error) }
    }
}

impl fmt::Write for PieceWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.piece.push_str(text);
        if self.piece.len() < PIECE { Ok(()) } else { self.send() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(metrics: &Arc<Metrics>) -> String {
        let body = body(Arc::clone(metrics)).await;
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_standby_tells_of_itself_and_nothing_of_the_cluster() {
        let text = text(&Arc::new(Metrics::default())).await;
        assert!(text.starts_with("# HELP tenon_agent_leader ") && text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("tenon_agent_leader 0\n") && text.contains("karpenter_build_info{version="));
        assert!(!text.contains("karpenter_cluster_state_synced"));
    }

    #[tokio::test]
    async fn pieces_come_in_their_order_and_a_reader_that_goes_frees_its_place() {
        let metrics = Arc::new(Metrics::default());
        for _ in 0..=SCRAPES {
            drop(body(Arc::clone(&metrics)).await);
        }
        assert!(text(&metrics).await.ends_with("# EOF\n"));
        let (pieces, mut written) = mpsc::channel(PIECES);
        let runtime = Handle::current();
        let writes = tokio::task::spawn_blocking(move || {
            let mut writer = PieceWriter { runtime, pieces, piece: String::new() };
            for index in 0..30_000 {
                fmt::Write::write_fmt(&mut writer, format_args!("{index}\n"))?;
            }
            writer.send()
        });
        let mut read = String::new();
        let mut count = 0;
        while let Some(piece) = written.recv().await {
            read.push_str(&piece);
            count += 1;
        }
        assert_eq!(writes.await.unwrap(), Ok(()));
        assert!(read.lines().eq((0..30_000).map(|index: u32| index.to_string())), "{} bytes", read.len());
        assert_eq!(count, 3);
    }
}
