//! A relay of TCP connections: a replica's traffic passes through it, and can be held up.
//!
//! Decides nothing about the content. Held-up bytes are neither lost nor refused, as in a network partition.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Whether bytes get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    Parted,
}

/// A relay to one address.
pub(crate) struct Relay {
    pub(crate) port: u16,
    way: watch::Sender<Way>,
    connections: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Relays to a port of this machine from another one.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let own = listener.local_addr().expect("it is bound").port();
        let (way, open) = watch::channel(Way::Open);
        let connections = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, port, (open, Arc::clone(&connections))));
        Self { port: own, way, connections, accepting }
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    port: u16,
    (open, connections): (watch::Receiver<Way>, Arc<AtomicU64>),
) {
    while let Ok((near, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        let open = open.clone();
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await else { return };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(pump(near_in, far_out, open.clone()));
            pump(far_in, near_out, open).await;
        });
    }
}

/// Forwards one direction while both ends exist.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut way: watch::Receiver<Way>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut buffer).await {
        // The relay's end is theirs.
        if way.wait_for(|way| *way == Way::Open).await.is_err() || count == 0 {
            break;
        }
        let Some(said) = buffer.get(..count) else { break };
        if to.write_all(said).await.is_err() {
            break;
        }
    }
    let _ended = to.shutdown().await;
}
