//! Connections past the limit: they are told so, or closed.

use crate::limits::{REFUSAL_MS, REFUSALS_MAX, ROOM_AHEAD_PART};
use crate::stats::Stats;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The most connections while others are being ended to make room.
pub(crate) fn with_ahead(most: usize) -> usize {
    most + (most / ROOM_AHEAD_PART).max(1)
}

/// Refuses connections past the limit.
#[derive(Clone)]
pub(crate) struct Refuser {
    pub(crate) stats: Stats,
    /// The complete answer.
    pub(crate) refusal: Arc<[u8]>,
    pub(crate) refusals: Arc<AtomicUsize>,
}

impl Refuser {
    /// Sends the client a 503 and closes the connection, in a separate task, so that a slow client does not
    /// delay others. A TLS client gets no answer, only a closed connection: a handshake would cost more than
    /// the answer.
    pub(crate) fn refuse(&self, stream: TcpStream, is_secure: bool) {
        self.stats.refused.fetch_add(1, Relaxed);
        if is_secure || self.refusals.load(Relaxed) >= REFUSALS_MAX {
            return;
        }
        let Ok(mut stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let (refusal, refusals) = (self.refusal.clone(), self.refusals.clone());
        refusals.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            let refuse = async {
                stream.write_all(&refusal).await?;
                stream.shutdown().await?;
                let mut ignored = [0; 1024];
                while stream.read(&mut ignored).await? > 0 {}
                io::Result::Ok(())
            };
            // A client that disconnects early does not need the answer.
            let _ignored = tokio::time::timeout(Duration::from_millis(REFUSAL_MS), refuse).await;
            refusals.fetch_sub(1, Relaxed);
        });
    }
}
