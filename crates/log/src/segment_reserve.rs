//! The reserve: space for the next segment, allocated before it is needed.
//!
//! A separate thread allocates and zeroes the next segment while the present one is filled, in chunks that
//! are synced one by one, so that no group's sync waits long for them. So a full disk is found here, where it
//! only causes appends to be refused, and not in the middle of a group. While the disk is full the thread
//! tries again every [`FULL_RETRY_MS`].

use crate::error::{Error, is_full};
use crate::limits::{PAGE_BYTES, RESERVE_CHUNK_BYTES, SEGMENT_HEADER_BYTES};
use crate::segment::{Blank, NEW_SUFFIX, discard, make_blank};
use crate::shared::LogShared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Allocates a blank without zeroing it, which is quick. On a full disk it first deletes released segments.
pub(crate) fn allocate(shared: &LogShared, capacity_bytes: u64) -> io::Result<Blank> {
    loop {
        let number = shared.reserve_request.blanks.fetch_add(1, Ordering::Relaxed);
        let path = shared.folder.join(format!("blank-{number}{NEW_SUFFIX}"));
        match make_blank(&*shared.disk, path, capacity_bytes) {
            Err(error) if is_full(&error) && shared.delete_oldest_kept() => {}
            made => return made,
        }
    }
}

/// Makes a blank the lane's reserve, and deletes the one that it replaces.
pub(crate) fn offer(shared: &LogShared, blank: Blank) {
    if let Some(replaced) = shared.lane.offer_reserve(blank) {
        discard(&*shared.disk, &replaced.path);
    }
}

/// The reserve thread.
pub(crate) fn run(shared: &Arc<LogShared>) {
    while shared.reserve_request.wait() {
        match zeroed(shared) {
            Ok(Some(blank)) => offer(shared, blank),
            Ok(None) => return,
            // The file system does not reserve blocks: the disk was full when the zeros were written.
            Err(error) if is_full(&error) && shared.delete_oldest_kept() => shared.reserve_request.ask(),
            Err(error) if is_full(&error) => {
                if shared.lane.has_reserve() {
                    continue;
                }
                shared.lane.refuse_full();
                if !shared.reserve_request.pause() {
                    return;
                }
                shared.reserve_request.ask();
            }
            Err(error) => {
                shared.poison(Error::io("reserve a segment in", &shared.folder, error));
                return;
            }
        }
    }
}

/// Allocates and zeroes a blank; `None` when the log is closed meanwhile.
fn zeroed(shared: &LogShared) -> io::Result<Option<Blank>> {
    let blank = allocate(shared, shared.capacity_bytes)?;
    let zeros = vec![0; RESERVE_CHUNK_BYTES + PAGE_BYTES];
    // Aligned, so that it is written to the disk without a copy.
    let zeros = &zeros[zeros.as_ptr().align_offset(PAGE_BYTES)..][..RESERVE_CHUNK_BYTES];
    let end = SEGMENT_HEADER_BYTES + blank.capacity_bytes;
    let mut offset = 0;
    while offset < end {
        let length = (end - offset).min(RESERVE_CHUNK_BYTES as u64) as usize;
        let written = blank.file.write_all_at(&zeros[..length], offset).and_then(|()| blank.file.sync());
        if written.is_err() || shared.reserve_request.is_stopped() {
            discard(&*shared.disk, &blank.path);
            written?;
            return Ok(None);
        }
        offset += length as u64;
    }
    Ok(Some(blank))
}
