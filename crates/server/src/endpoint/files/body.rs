//! The body of a long file: read in pieces on a thread of the blocking pool.

use super::range::Part;
use crate::endpoint::waiting_requests::WaitingPlace;
use forebay_http::{BodySource, Filled};
use forebay_terminal::warn;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The size of one piece, in bytes.
const PIECE_BYTES: u64 = 128 << 10;

/// A part of a file, as a body.
pub(super) struct FileBody {
    file: Arc<File>,
    left: Part,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
    runtime: Handle,
    /// The request occupies its place among the waiting requests until the whole body is read.
    _place: Arc<WaitingPlace>,
}

impl FileBody {
    pub(super) fn new(file: File, part: Part, runtime: &Handle, place: Arc<WaitingPlace>) -> FileBody {
        FileBody { file: Arc::new(file), left: part, reading: None, runtime: runtime.clone(), _place: place }
    }
}

impl BodySource for FileBody {
    fn poll_fill(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled> {
        let FileBody { file, left, reading, runtime, .. } = &mut *self;
        if left.length == 0 {
            return Poll::Ready(Filled::End);
        }
        let read = reading.get_or_insert_with(|| {
            let (file, start) = (file.clone(), left.start);
            // Allocated here: the allocator would keep some megabytes for each thread that reads.
            let mut piece = vec![0; left.length.min(PIECE_BYTES) as usize];
            runtime.spawn_blocking(move || {
                file.read_exact_at(&mut piece, start)?;
                Ok(piece)
            })
        });
        let read = ready!(Pin::new(read).poll(cx));
        *reading = None;
        match read.map_err(io::Error::other).flatten() {
            Ok(piece) => {
                left.start += piece.len() as u64;
                left.length -= piece.len() as u64;
                out.extend_from_slice(&piece);
                Poll::Ready(Filled::More)
            }
            Err(error) => {
                warn!("forebay: files: an answer was broken off: {error}");
                Poll::Ready(Filled::Broken)
            }
        }
    }
}
