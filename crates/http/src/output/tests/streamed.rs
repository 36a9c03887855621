//! Complete, deferred and streamed answers in any order of events: the bytes that a client has received are
//! always a prefix of what it must receive, no body that broke off looks complete, and no source runs ahead
//! of its client.

use super::super::*;
use super::Narrow;
use crate::answer::Persistence;
use crate::parse::Version;
use crate::streamed::{BodySource, Filled};
use proptest::prelude::*;
use std::task::Waker;

const FORM: Form = Form { persistence: Persistence::Keep, head_only: false, version: Version::Http11 };
/// The most that a source produces at once in these tests.
const GIVEN_BYTES_MAX: usize = PIPE_BYTES / 2;
/// The framing around a chunk and after the last one.
const FRAMING_BYTES_MAX: usize = 20;

/// What a source does when it is polled.
#[derive(Debug, Clone, Copy)]
enum Does {
    Give(usize),
    Wait,
    Break,
}

/// The announced length of a body, relative to its real length.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Says {
    Exactly,
    /// This many bytes more than will be produced.
    More(usize),
    /// One byte less, if the body has one.
    Less,
    Chunked,
    Close,
}

/// A scripted body that repeats one byte.
struct Source {
    byte: u8,
    script: std::vec::IntoIter<Does>,
}

impl BodySource for Source {
    fn poll_fill(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled> {
        match self.script.next() {
            None => Poll::Ready(Filled::End),
            Some(Does::Wait) => Poll::Pending,
            Some(Does::Break) => Poll::Ready(Filled::Broken),
            Some(Does::Give(count)) => {
                out.resize(out.len() + count, self.byte);
                Poll::Ready(Filled::More)
            }
        }
    }
}

/// One answer as the client must receive it.
#[derive(Debug, Clone)]
enum Expected {
    Unknown,
    Whole {
        bytes: usize,
        mark: u64,
    },
    Streamed {
        head: usize,
        body: usize,
        delimiter: Delimiter,
        /// The client may see its end, and another answer may follow it.
        ends: bool,
    },
}

/// All answers in their order; each has its own byte.
#[derive(Default)]
struct Client {
    answers: Vec<Expected>,
}

fn byte_of(order: usize) -> u8 {
    // Above ASCII, so that it is never mistaken for framing.
    128 + (order % 120) as u8
}

/// Consumes up to `count` bytes, which must all equal `byte`; returns whether all were present.
fn takes(rest: &mut &[u8], byte: u8, count: usize) -> Result<bool, String> {
    let there = count.min(rest.len());
    if let Some(at) = rest[..there].iter().position(|found| *found != byte) {
        return Err(format!("{} instead of {byte} after {at} bytes of {count}", rest[at]));
    }
    *rest = &rest[there..];
    Ok(there == count)
}

/// Consumes the rest of a chunked body of `body` bytes; returns whether the last chunk was present.
fn takes_chunks(rest: &mut &[u8], byte: u8, body: usize, ends: bool) -> Result<bool, String> {
    let mut seen = 0;
    loop {
        if rest.starts_with(b"0\r\n\r\n") {
            *rest = &rest[5..];
            return if ends && seen == body {
                Ok(true)
            } else {
                Err(format!("it ended after {seen} of {body}"))
            };
        }
        if rest.len() < 8 && rest.is_ascii() {
            *rest = &[];
            return Ok(false);
        }
        let (Some(digits), Some(b"\r\n")) = (rest.get(..6), rest.get(6..8)) else {
            return Err("no size of a chunk".into());
        };
        let digits = std::str::from_utf8(digits).map_err(|error| error.to_string())?;
        let size = usize::from_str_radix(digits, 16).map_err(|error| error.to_string())?;
        seen += size;
        if size == 0 || seen > body {
            return Err(format!("a chunk of {size} bytes, {seen} of {body}"));
        }
        *rest = &rest[8..];
        if !takes(rest, byte, size)? {
            return Ok(false);
        }
        *rest = match rest.strip_prefix(b"\r\n") {
            Some(after) => after,
            None if b"\r".starts_with(rest) => &[],
            None => return Err("a chunk is longer than it says".into()),
        };
    }
}

impl Client {
    /// The number of complete answers in what a client received; no answer may have arrived before its mark
    /// was passed.
    fn reads(&self, mut rest: &[u8], passed: u64) -> Result<usize, String> {
        for (order, expected) in self.answers.iter().enumerate() {
            if rest.is_empty() {
                return Ok(order);
            }
            let byte = byte_of(order);
            let whole = match expected {
                Expected::Unknown => return Err("something came of an answer that is not there".into()),
                Expected::Whole { mark, .. } if *mark > passed => return Err(format!("before mark {mark}")),
                Expected::Whole { bytes, .. } => takes(&mut rest, byte, *bytes)?,
                Expected::Streamed { head, body, delimiter, ends } => {
                    takes(&mut rest, byte, *head)?
                        && match delimiter {
                            Delimiter::Length(length) => takes(&mut rest, byte, *length as usize)? && *ends,
                            Delimiter::Chunked => takes_chunks(&mut rest, byte, *body, *ends)?,
                            Delimiter::Close => {
                                takes(&mut rest, byte, *body)?;
                                false
                            }
                        }
                }
            };
            if !whole {
                return if rest.is_empty() {
                    Ok(order)
                } else {
                    Err("something follows what is not whole".into())
                };
            }
        }
        if rest.is_empty() { Ok(self.answers.len()) } else { Err("more than there is".into()) }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Answer { bytes: usize, mark: u64 },
    Defer,
    Fill { which: usize, bytes: usize, mark: u64 },
    Stream { which: usize, head: usize, script: Vec<Does>, says: Says },
    Pump,
    Advance(u64),
    Flush,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        6 => (0usize..300).prop_map(Does::Give),
        2 => Just(Does::Give(GIVEN_BYTES_MAX)),
        3 => Just(Does::Wait),
        1 => Just(Does::Break),
    ]
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        4 => Just(Says::Exactly),
        1 => (1usize..50).prop_map(Says::More),
        1 => Just(Says::Less),
        4 => Just(Says::Chunked),
        1 => Just(Says::Close),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let script = proptest::collection::vec(does(), 0..8);
    prop_oneof![
        2 => (1usize..300, 0u64..6).prop_map(|(bytes, mark)| Step::Answer { bytes, mark }),
        4 => Just(Step::Defer),
        1 => (0usize..4, 1usize..300, 0u64..6).prop_map(|(which, bytes, mark)| Step::Fill { which, bytes, mark }),
        4 => (0usize..4, 1usize..100, script, says())
            .prop_map(|(which, head, script, says)| Step::Stream { which, head, script, says }),
        5 => Just(Step::Pump),
        1 => (0u64..6).prop_map(Step::Advance),
        5 => Just(Step::Flush),
    ]
}

/// One connection's answers, and the client that gets them.
struct Run {
    gate: std::sync::Arc<Gate>,
    pool: Pool,
    output: Output,
    stream: Narrow,
    client: Client,
    open: Vec<(SlotId, usize)>,
    /// An answer ends with the connection: no further answer is given.
    closes: bool,
    broken: bool,
}

impl Run {
    fn takes(&mut self, step: Step) {
        match step {
            Step::Answer { bytes, mark } if !self.closes => {
                let answer = vec![byte_of(self.client.answers.len()); bytes];
                self.output.tail(&mut self.pool).extend(answer);
                self.output.hold(mark);
                self.client.answers.push(Expected::Whole { bytes, mark });
            }
            Step::Defer if !self.closes => {
                self.open.push((self.output.defer(FORM, 0), self.client.answers.len()));
                self.client.answers.push(Expected::Unknown);
            }
            Step::Fill { which, bytes, mark } if which < self.open.len() => {
                let (id, order) = self.open.remove(which);
                let answer = vec![byte_of(order); bytes];
                self.output.fill(id, &mut self.pool, |out, _| {
                    out.extend(answer);
                    mark
                });
                self.client.answers[order] = Expected::Whole { bytes, mark };
            }
            Step::Stream { which, head, script, says } if which < self.open.len() => {
                let (id, order) = self.open.remove(which);
                self.stream_begins(id, order, head, script, says);
            }
            Step::Advance(mark) => self.gate.advance(mark),
            Step::Pump => self.pump(),
            Step::Flush => drop(self.flush()),
            _ => {}
        }
    }

    fn stream_begins(&mut self, id: SlotId, order: usize, head: usize, script: Vec<Does>, says: Says) {
        let is_cut = script.iter().any(|does| matches!(does, Does::Break));
        let body: usize = script
            .iter()
            .map_while(|does| match does {
                Does::Give(count) => Some(*count),
                Does::Wait => Some(0),
                Does::Break => None,
            })
            .sum();
        let (delimiter, fits) = match says {
            Says::Exactly => (Delimiter::Length(body as u64), true),
            Says::More(more) => (Delimiter::Length((body + more) as u64), false),
            Says::Less => (Delimiter::Length(body.saturating_sub(1) as u64), body == 0),
            Says::Chunked => (Delimiter::Chunked, true),
            Says::Close => (Delimiter::Close, true),
        };
        let source = Source { byte: byte_of(order), script: script.into_iter() };
        let outgoing = Outgoing { source: Box::pin(source), delimiter };
        let closed = self.output.fill_streamed(id, &mut self.pool, |out, _| {
            out.resize(out.len() + head, byte_of(order));
            (Some(outgoing), says == Says::Close)
        });
        let ends = fits && !is_cut && says != Says::Close;
        self.client.answers[order] = Expected::Streamed { head, body, delimiter, ends };
        if closed == Closes::Yes {
            self.closes = true;
            self.client.answers.truncate(order + 1);
            self.open.retain(|(_, open)| *open < order);
        }
    }

    fn pump(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        self.broken |= matches!(self.output.pump(&mut cx, &mut self.pool), Pumped::Broken { .. });
    }

    fn flush(&mut self) -> Flush {
        let mut cx = Context::from_waker(Waker::noop());
        let flushed = self.output.poll_flush(&mut cx, &mut self.stream, &self.gate, &mut self.pool);
        flushed.expect("no error").0
    }

    /// The bytes of complete answers and of heads: they are not subject to back-pressure.
    fn whole_bytes(&self) -> usize {
        let bytes = |expected: &Expected| match expected {
            Expected::Unknown => 0,
            Expected::Whole { bytes, .. } => *bytes,
            Expected::Streamed { head, .. } => *head,
        };
        self.client.answers.iter().map(bytes).sum()
    }

    fn is_right(&self) -> Result<usize, TestCaseError> {
        let room = self.whole_bytes() + PIPE_BYTES + GIVEN_BYTES_MAX + FRAMING_BYTES_MAX;
        prop_assert!(self.output.pending_bytes() <= room, "a source runs ahead of its client");
        prop_assert!(self.output.slots() >= self.open.len());
        self.client.reads(&self.stream.taken, self.gate.passed()).map_err(TestCaseError::fail)
    }

    /// Every answer exists and nothing is held any more.
    fn ends(&mut self) -> Result<(), TestCaseError> {
        self.gate.advance(100);
        self.stream.allowances.clear();
        while !self.open.is_empty() {
            self.takes(Step::Fill { which: 0, bytes: 7, mark: 0 });
        }
        while !self.broken && self.flush() != Flush::Empty {
            self.pump();
        }
        // The available part of a broken answer may still leave.
        self.flush();
        let whole = self.is_right()?;
        if !self.broken {
            let last_ends = !matches!(
                self.client.answers.last(),
                Some(Expected::Streamed { delimiter: Delimiter::Close, .. })
            );
            prop_assert_eq!(whole, self.client.answers.len() - usize::from(!last_ends));
            prop_assert!(self.output.is_empty() && self.output.pending_bytes() == 0);
            prop_assert_eq!(self.output.slots(), 0);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streamed_answers_leave_in_order_and_broken_ones_never_look_whole(
        steps in proptest::collection::vec(step(), 1..80),
        allowances in proptest::collection::vec(prop_oneof![Just(0), 1usize..400, Just(PIPE_BYTES)], 0..80),
    ) {
        let mut run = Run {
            gate: Gate::new(1),
            pool: Pool::default(),
            output: Output::default(),
            stream: Narrow { taken: Vec::new(), allowances },
            client: Client::default(),
            open: Vec::new(),
            closes: false,
            broken: false,
        };
        for step in steps {
            run.takes(step);
            run.is_right()?;
            if run.broken {
                break;
            }
        }
        run.ends()?;
    }
}
