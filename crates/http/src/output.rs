//! The answers of one connection that have not left yet, in the order of their requests.
//!
//! Answers are written into the tail. In the steady state only the tail is used: it is filled, written with
//! one call and returned to the worker's pool. The tail is sealed into the queue only when it must wait for
//! the client, for a deferred answer, or behind an answer that the gate holds. Promises that bytes leave in
//! order and that no answer leaves before its mark is passed.

use crate::answer::Form;
use crate::held_answers::Gate;
use crate::limits::{
    BUFFER_BYTES_START, OPEN_BYTES_MAX, PIECE_BYTES, PIPE_BYTES, POOLED_BUFFER_BYTES_MAX, POOLED_BUFFERS_MAX,
    WAITING_BYTES, WAITING_HEADS, WRITE_SLICES_MAX,
};
use crate::streamed::{Delimiter, Outgoing, Piece};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Identifies a deferred answer within its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotId(pub(crate) u64);

#[derive(Debug)]
enum Chunk {
    /// Answers that wait together for the highest of their marks.
    Bytes { bytes: Vec<u8>, mark: u64 },
    /// The place of a deferred answer.
    Slot { id: SlotId, form: Form, head_bytes: usize },
    /// The rest of a streamed answer; the chunks before it contain the bytes that its source produced so
    /// far.
    Stream(Outgoing),
}

/// Why [`Output::poll_flush`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Everything was written.
    Empty,
    /// The socket is full; the task is woken when it is writable.
    Socket,
    /// The first chunk waits for this mark.
    Held(u64),
    /// The first chunk waits for a deferred answer.
    Deferred,
}

/// Whether a connection ends after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    Yes,
    No,
}

/// Why [`Output::pump`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// The source has no bytes yet and wakes the task.
    Pending,
    /// Enough is buffered: the client must read first.
    Enough,
    /// A body broke off. `is_closing`: the body is delimited by the end of the connection.
    Broken { is_closing: bool },
}

/// Unused buffers of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    buffers: Vec<Vec<u8>>,
}

impl Pool {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES_START))
    }

    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let pooled = BUFFER_BYTES_START..=POOLED_BUFFER_BYTES_MAX;
        if pooled.contains(&buffer.capacity()) && self.buffers.len() < POOLED_BUFFERS_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Output {
    queue: VecDeque<Chunk>,
    /// Bytes of the queue's first chunk that were written.
    front_written: usize,
    /// Unsent bytes in the queue.
    queued_bytes: usize,
    slots: usize,
    /// The heads of the requests whose answers do not exist yet.
    head_bytes: usize,
    next_slot: u64,
    /// Whether the queue may have a chunk whose buffer is longer than a piece.
    is_long: bool,
    tail: Vec<u8>,
    tail_mark: u64,
    /// The gate held the tail when it was flushed: the next answer goes into a new tail.
    is_held: bool,
}

impl Output {
    /// Where the next answer is written.
    pub(crate) fn tail(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.is_held {
            self.seal();
        }
        if self.tail.capacity() == 0 {
            self.tail = pool.take();
        }
        &mut self.tail
    }

    /// Holds the answer that was just written into the tail until `mark` is passed.
    pub(crate) fn hold(&mut self, mark: u64) {
        self.tail_mark = self.tail_mark.max(mark);
    }

    /// Unsent bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.queued_bytes + self.tail.len()
    }

    /// The number of deferred answers that do not exist yet or are incomplete.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    /// The memory of the answers, and of requests whose answers do not exist yet.
    pub(crate) fn held_bytes(&self) -> usize {
        let waiting_bytes = WAITING_BYTES * self.slots + WAITING_HEADS * self.head_bytes;
        self.queued_bytes + self.front_written + self.tail.len() + waiting_bytes
    }

    /// Whether the client, or the gate, must move before the first answer can leave.
    pub(crate) fn is_front_ready(&self) -> bool {
        matches!(self.queue.front(), Some(Chunk::Bytes { .. }))
    }

    /// Reserves the next place in the order, for the answer to a request with a head of this length.
    pub(crate) fn defer(&mut self, form: Form, head_bytes: usize) -> SlotId {
        self.seal();
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        self.slots += 1;
        self.head_bytes += head_bytes;
        self.queue.push_back(Chunk::Slot { id, form, head_bytes });
        id
    }

    /// Puts an answer into its reserved place. `render` writes the answer and returns its mark.
    pub(crate) fn fill(
        &mut self,
        id: SlotId,
        pool: &mut Pool,
        render: impl FnOnce(&mut Vec<u8>, Form) -> u64,
    ) {
        let place = self
            .queue
            .iter_mut()
            .find(|chunk| matches!(chunk, Chunk::Slot { id: found, .. } if *found == id));
        let Some(place) = place else { return };
        if let Chunk::Slot { form, head_bytes, .. } = *place {
            self.head_bytes -= head_bytes;
            let mut bytes = pool.take();
            let mark = render(&mut bytes, form);
            self.queued_bytes += bytes.len();
            self.is_long |= bytes.capacity() > POOLED_BUFFER_BYTES_MAX;
            self.slots -= 1;
            *place = Chunk::Bytes { bytes, mark };
        }
    }

    /// Puts the head of an answer into its reserved place, followed by the source of its body. If the
    /// connection ends with this answer, every later answer is dropped. `render` writes the head.
    pub(crate) fn fill_streamed(
        &mut self,
        id: SlotId,
        pool: &mut Pool,
        render: impl FnOnce(&mut Vec<u8>, Form) -> (Option<Outgoing>, bool),
    ) -> Closes {
        let found = self
            .queue
            .iter()
            .position(|chunk| matches!(chunk, Chunk::Slot { id: found, .. } if *found == id));
        let Some(at) = found else { return Closes::No };
        let Chunk::Slot { form, head_bytes, .. } = self.queue[at] else { return Closes::No };
        self.head_bytes -= head_bytes;
        let mut bytes = pool.take();
        let (outgoing, closes) = render(&mut bytes, form);
        self.queued_bytes += bytes.len();
        self.queue[at] = Chunk::Bytes { bytes, mark: 0 };
        match outgoing {
            Some(outgoing) => self.queue.insert(at + 1, Chunk::Stream(outgoing)),
            None => self.slots -= 1,
        }
        if closes {
            self.cut_behind(at);
            return Closes::Yes;
        }
        Closes::No
    }

    /// Drops every answer after the one that was just put at `at`.
    fn cut_behind(&mut self, at: usize) {
        let kept = match self.queue.get(at + 1) {
            Some(Chunk::Stream(_)) => at + 2,
            _ => at + 1,
        };
        for chunk in self.queue.drain(kept..) {
            match chunk {
                Chunk::Bytes { bytes, .. } => self.queued_bytes -= bytes.len(),
                Chunk::Slot { head_bytes, .. } => {
                    self.head_bytes -= head_bytes;
                    self.slots -= 1;
                }
                Chunk::Stream(_) => self.slots -= 1,
            }
        }
        self.tail = Vec::new();
        self.tail_mark = 0;
        self.is_held = false;
    }

    /// The length of the tail in bytes.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.tail.len()
    }

    /// Whether this deferred answer is the last answer of the connection.
    pub(crate) fn is_last(&self, id: SlotId) -> bool {
        let last = self.queue.back();
        self.tail.is_empty() && matches!(last, Some(Chunk::Slot { id: found, .. }) if *found == id)
    }

    /// Asks the source of the first streamed body for more bytes, as far as there is room and every answer
    /// before that body exists.
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Pumped {
        let mut before_bytes = 0;
        let mut at = 0;
        loop {
            match self.queue.get_mut(at) {
                Some(Chunk::Bytes { bytes, .. }) => {
                    before_bytes += bytes.len() - if at == 0 { self.front_written } else { 0 };
                    at += 1;
                }
                Some(Chunk::Stream(_)) if before_bytes >= PIPE_BYTES => return Pumped::Enough,
                Some(Chunk::Stream(_)) => {
                    // Appended to a waiting head, so that both leave with one write.
                    let open = self.take_open(at);
                    let is_open = open.is_some();
                    let mut bytes = open.unwrap_or_else(|| pool.take());
                    let start = bytes.len();
                    let Some(Chunk::Stream(outgoing)) = self.queue.get_mut(at) else {
                        return Pumped::Pending;
                    };
                    let piece = outgoing.fill(cx, &mut bytes, PIPE_BYTES - before_bytes);
                    let is_closing = outgoing.delimiter == Delimiter::Close;
                    if piece == Piece::Broken {
                        bytes.truncate(start);
                    }
                    if piece == Piece::End {
                        self.slots -= 1;
                        self.queue.remove(at);
                    }
                    before_bytes += bytes.len() - start;
                    self.queued_bytes += bytes.len() - start;
                    match self.queue.get_mut(at.wrapping_sub(1)) {
                        Some(Chunk::Bytes { bytes: head, .. }) if is_open => *head = bytes,
                        _ if bytes.is_empty() => pool.give(bytes),
                        _ => self.queue.insert(at, Chunk::Bytes { bytes, mark: 0 }),
                    }
                    match piece {
                        Piece::Pending => return Pumped::Pending,
                        Piece::Enough => return Pumped::Enough,
                        Piece::Broken => return Pumped::Broken { is_closing },
                        // Continue with the next streamed body.
                        Piece::End => {}
                    }
                }
                Some(Chunk::Slot { .. }) | None => return Pumped::Pending,
            }
        }
    }

    /// Takes the bytes before position `at`, so that more can be appended: only if they are few, wait for no
    /// mark, and none of them was written.
    fn take_open(&mut self, at: usize) -> Option<Vec<u8>> {
        let before = at.checked_sub(1)?;
        match self.queue.get_mut(before)? {
            Chunk::Bytes { bytes, mark: 0 }
                if bytes.len() <= OPEN_BYTES_MAX && (before > 0 || self.front_written == 0) =>
            {
                Some(std::mem::take(bytes))
            }
            _ => None,
        }
    }

    /// Whether a streamed body is in the queue.
    pub(crate) fn is_streaming(&self) -> bool {
        self.queue.iter().any(|chunk| matches!(chunk, Chunk::Stream(_)))
    }

    /// Moves the tail into the queue, so that later answers neither share its wait nor raise its mark.
    fn seal(&mut self) {
        self.is_held = false;
        if !self.tail.is_empty() {
            self.queued_bytes += self.tail.len();
            self.is_long |= self.tail.capacity() > POOLED_BUFFER_BYTES_MAX;
            let bytes = std::mem::take(&mut self.tail);
            self.queue.push_back(Chunk::Bytes { bytes, mark: std::mem::take(&mut self.tail_mark) });
        }
    }

    /// Writes the bytes that may leave. Returns why it stopped, and how many bytes were written.
    pub(crate) fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut W,
        gate: &Gate,
        pool: &mut Pool,
    ) -> io::Result<(Flush, usize)> {
        let mut written = 0;
        if self.queue.is_empty() {
            if self.tail.is_empty() {
                return Ok((Flush::Empty, 0));
            }
            if gate.holds(self.tail_mark) {
                // The tail is not sealed: most clients send nothing more before they have their answer.
                self.is_held = true;
                return Ok((Flush::Held(self.tail_mark), 0));
            }
            // The steady state: one buffer, one write.
            if let Poll::Ready(count) = Pin::new(&mut *stream).poll_write(cx, &self.tail)? {
                written = nonzero(count)?;
                if written == self.tail.len() {
                    (self.tail_mark, self.is_held) = (0, false);
                    pool.give(std::mem::take(&mut self.tail));
                    return Ok((Flush::Empty, written));
                }
            }
        }
        self.seal();
        if written > 0 {
            self.advance(written, pool);
        }
        let (flush, more) = self.flush_queue(cx, stream, gate, pool)?;
        if self.is_long && flush != Flush::Empty {
            self.cut_in_pieces();
        }
        Ok((flush, written + more))
    }

    /// Copies what is left of long buffers into pieces, whose memory is free as soon as they are sent.
    #[cold]
    fn cut_in_pieces(&mut self) {
        self.is_long = false;
        for chunk in std::mem::take(&mut self.queue) {
            match chunk {
                Chunk::Bytes { bytes, mark } if bytes.capacity() > POOLED_BUFFER_BYTES_MAX => {
                    let first = self.queue.is_empty();
                    let written = if first { std::mem::take(&mut self.front_written) } else { 0 };
                    let pieces = bytes[written..].chunks(PIECE_BYTES);
                    self.queue.extend(pieces.map(|piece| Chunk::Bytes { bytes: piece.to_vec(), mark }));
                }
                chunk => self.queue.push_back(chunk),
            }
        }
    }

    fn flush_queue<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut W,
        gate: &Gate,
        pool: &mut Pool,
    ) -> io::Result<(Flush, usize)> {
        let mut written = 0;
        loop {
            let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
            let mut count = 0;
            let mut stop = Flush::Empty;
            for (chunk, slice) in self.queue.iter().zip(&mut slices) {
                match chunk {
                    Chunk::Bytes { mark, .. } if gate.holds(*mark) => stop = Flush::Held(*mark),
                    Chunk::Slot { .. } | Chunk::Stream(_) => stop = Flush::Deferred,
                    Chunk::Bytes { bytes, .. } => {
                        *slice = IoSlice::new(if count == 0 { &bytes[self.front_written..] } else { bytes });
                        count += 1;
                        continue;
                    }
                }
                break;
            }
            let writing = match &slices[..count] {
                [] => return Ok((stop, written)),
                // A plain write costs the kernel less than a vectored one.
                [bytes] => Pin::new(&mut *stream).poll_write(cx, bytes),
                slices => Pin::new(&mut *stream).poll_write_vectored(cx, slices),
            };
            match writing? {
                Poll::Ready(bytes) => {
                    written += nonzero(bytes)?;
                    self.advance(bytes, pool);
                }
                Poll::Pending => return Ok((Flush::Socket, written)),
            }
        }
    }

    /// Removes `count` written bytes from the front of the queue.
    fn advance(&mut self, mut count: usize, pool: &mut Pool) {
        self.queued_bytes -= count;
        while let Some(Chunk::Bytes { bytes, .. }) = self.queue.front() {
            let left = bytes.len() - self.front_written;
            if count < left {
                self.front_written += count;
                return;
            }
            count -= left;
            self.front_written = 0;
            if let Some(Chunk::Bytes { bytes, .. }) = self.queue.pop_front() {
                pool.give(bytes);
            }
            if count == 0 {
                return;
            }
        }
    }
}

fn nonzero(count: usize) -> io::Result<usize> {
    if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) }
}

#[cfg(test)]
mod tests;
