//! The queue of lines whose writers must not be delayed.
//!
//! Promises that queueing never waits: a line that finds the queue full is dropped and counted, and the
//! count is reported after the lines that were written.

use crate::event::{Event, Level, line};
use crate::to_stderr;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Most lines in the queue, and most bytes of all of them.
const LINES_MAX: usize = 8192;
const BYTES_MAX: usize = 16 << 20;
/// Lines are written together, up to about this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// The longest wait for a slow reader of standard error at the end of the program.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum Message {
    Line(String),
    Flush(Sender<()>),
}

static QUEUE: OnceLock<SyncSender<Message>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static QUEUED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Queues an event for standard error, whatever its level. Never waits.
pub fn enqueue(event: &Event<'_>) {
    let mut line = line(event);
    line.shrink_to_fit();
    let bytes = line.len();
    let has_room = QUEUED_BYTES.fetch_add(bytes, Relaxed) + bytes <= BYTES_MAX;
    if !has_room || queue().try_send(Message::Line(line)).is_err() {
        QUEUED_BYTES.fetch_sub(bytes, Relaxed);
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// Waits until the queued lines have been written, at most one second. Does not wait if the queue is full.
pub fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let (done, is_done) = channel();
    if queue.try_send(Message::Flush(done)).is_ok() {
        // A reader that does not read must not delay the exit.
        let _late = is_done.recv_timeout(FLUSH_TIMEOUT);
    }
}

fn queue() -> &'static SyncSender<Message> {
    QUEUE.get_or_init(|| {
        let (sender, receiver) = sync_channel(LINES_MAX);
        if let Err(error) = thread::Builder::new().name("log".into()).spawn(move || write(&receiver)) {
            to_stderr(Level::Error, format_args!("the thread of the access log cannot start: {error}"));
        }
        sender
    })
}

fn write(receiver: &Receiver<Message>) {
    let mut batch = String::new();
    while let Ok(first) = receiver.recv() {
        let mut flushed = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    QUEUED_BYTES.fetch_sub(line.len(), Relaxed);
                    batch.push_str(&line);
                }
                Message::Flush(done) => flushed.push(done),
            }
            next = (batch.len() < BATCH_BYTES).then(|| receiver.try_recv().ok()).flatten();
        }
        let dropped = DROPPED.swap(0, Relaxed);
        if dropped > 0 {
            let message = format_args!(
                "{dropped} lines of the access log were dropped: standard error is read too slowly"
            );
            batch.push_str(&line(&Event { level: Level::Warn, message, fields: &[] }));
        }
        // An error cannot be reported anywhere else.
        let _ = io::stderr().write_all(batch.as_bytes());
        batch.clear();
        for done in flushed {
            // The waiting thread may have timed out.
            let _gone = done.send(());
        }
    }
}
