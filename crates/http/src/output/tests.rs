//! Answers leave in order, and none before its mark, whatever a client takes.

mod streamed;

use super::*;
use crate::answer::Persistence;
use crate::parse::Version;
use proptest::prelude::*;
use std::task::Waker;

const FORM: Form = Form { persistence: Persistence::Keep, head_only: false, version: Version::Http11 };

/// Takes at most this many bytes per call, and nothing when the next allowance is 0.
pub(super) struct Narrow {
    pub(super) taken: Vec<u8>,
    pub(super) allowances: Vec<usize>,
}

impl AsyncWrite for Narrow {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.allowances.pop() {
            Some(0) => Poll::Pending,
            allowance => {
                let count = allowance.unwrap_or(usize::MAX).min(bytes.len());
                self.taken.extend_from_slice(&bytes[..count]);
                Poll::Ready(Ok(count))
            }
        }
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, Clone)]
enum Step {
    Answer { bytes: usize, mark: u64 },
    Defer,
    Fill { which: usize, bytes: usize, mark: u64 },
    Advance(u64),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..300, 0u64..6).prop_map(|(bytes, mark)| Step::Answer { bytes, mark }),
        2 => Just(Step::Defer),
        2 => (0usize..4, 1usize..300, 0u64..6).prop_map(|(which, bytes, mark)| Step::Fill { which, bytes, mark }),
        2 => (0u64..6).prop_map(Step::Advance),
        6 => Just(Step::Flush),
    ]
}

/// The expected order of answers, distinguished by their bytes: which answer each is, and which mark it
/// waits for.
#[derive(Default)]
struct Model {
    answers: Vec<Option<(usize, u64)>>,
}

impl Model {
    fn fill(&self, order: usize, bytes: usize) -> Vec<u8> {
        vec![u8::try_from(order % 251).expect("small"); bytes]
    }

    fn all(&self) -> Vec<u8> {
        let known = self.answers.iter().map_while(|answer| *answer).enumerate();
        known.flat_map(|(order, (bytes, _))| self.fill(order, bytes)).collect()
    }

    /// The number of bytes that may have left when `passed` was reached.
    fn free(&self, passed: u64) -> usize {
        let known = self.answers.iter().map_while(|answer| *answer);
        known.take_while(|(_, mark)| *mark <= passed).map(|(bytes, _)| bytes).sum()
    }
}

#[test]
fn what_is_written_behind_a_held_answer_does_not_hold_it_longer() {
    let (gate, mut pool, mut output) = (Gate::new(1), Pool::default(), Output::default());
    let mut stream = Narrow { taken: Vec::new(), allowances: Vec::new() };
    let mut cx = Context::from_waker(Waker::noop());
    let mut flush = |output: &mut Output, pool: &mut Pool| {
        output.poll_flush(&mut cx, &mut stream, &gate, pool).expect("no error")
    };
    for (answer, mark, expected) in [("a", 1, 1), ("b", 5, 1), ("c", 2, 1)] {
        output.tail(&mut pool).extend_from_slice(answer.as_bytes());
        output.hold(mark);
        assert_eq!(flush(&mut output, &mut pool), (Flush::Held(expected), 0), "{answer}");
    }
    assert_eq!(output.pending_bytes(), 3);
    gate.advance(1);
    assert_eq!(flush(&mut output, &mut pool), (Flush::Held(5), 1));
    gate.advance(5);
    assert_eq!(flush(&mut output, &mut pool), (Flush::Empty, 2));
    assert_eq!(stream.taken, b"abc");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_leave_in_order_and_not_before_their_marks(
        steps in proptest::collection::vec(step(), 1..60),
        allowances in proptest::collection::vec(prop_oneof![Just(0), 1usize..400], 0..60),
    ) {
        let (gate, mut pool, mut output) = (Gate::new(1), Pool::default(), Output::default());
        let mut stream = Narrow { taken: Vec::new(), allowances };
        let (mut model, mut open) = (Model::default(), Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        for step in steps {
            match step {
                Step::Answer { bytes, mark } => {
                    let answer = model.fill(model.answers.len(), bytes);
                    output.tail(&mut pool).extend(answer);
                    output.hold(mark);
                    model.answers.push(Some((bytes, mark)));
                }
                Step::Defer => {
                    open.push((output.defer(FORM, 0), model.answers.len()));
                    model.answers.push(None);
                }
                Step::Fill { which, bytes, mark } if which < open.len() => {
                    let (id, order) = open.remove(which);
                    let answer = model.fill(order, bytes);
                    output.fill(id, &mut pool, |out, _| { out.extend(answer); mark });
                    model.answers[order] = Some((bytes, mark));
                }
                Step::Fill { .. } => {}
                Step::Advance(mark) => gate.advance(mark),
                Step::Flush => {
                    output.poll_flush(&mut cx, &mut stream, &gate, &mut pool).expect("no error");
                }
            }
            prop_assert!(model.all().starts_with(&stream.taken));
            prop_assert!(stream.taken.len() <= model.free(gate.passed()));
            prop_assert_eq!(output.slots(), open.len());
        }
        // In the end everything leaves.
        gate.advance(100);
        for (id, order) in open {
            let answer = model.fill(order, 7);
            output.fill(id, &mut pool, |out, _| { out.extend(answer); 0 });
            model.answers[order] = Some((7, 0));
        }
        stream.allowances.clear();
        let (flush, _) = output.poll_flush(&mut cx, &mut stream, &gate, &mut pool).expect("no error");
        prop_assert_eq!(flush, Flush::Empty);
        prop_assert_eq!(&stream.taken, &model.all());
        prop_assert!(output.is_empty() && output.pending_bytes() == 0);
    }
}
