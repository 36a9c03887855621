//! Splits answers that the engine rendered into a head and a body of HTTP/2.
//!
//! Promises that no connection-specific field is sent (RFC 9113 section 8.2.2).

use crate::Service;
use crate::answer::{Answer, Form, Persistence};
use crate::date::Stamp;
use crate::exchange::respond_error;
use crate::parse::Version;
use crate::reject::Reject;
use crate::streamed::{Delimiter, Outgoing, Streamed};
use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Response, StatusCode};

/// A whole answer, or the head of a streamed one.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) head: Response<()>,
    pub(super) body: Bytes,
    /// The mark that the gate must have passed.
    pub(super) mark: u64,
    /// Whether the service wants the connection closed.
    pub(super) closes: bool,
}

/// The form of an answer on a connection that stays open.
pub(super) fn form(head_only: bool) -> Form {
    Form { persistence: Persistence::Keep, head_only, version: Version::Http11 }
}

impl Rendered {
    /// Renders the answer that `write` produces.
    pub(super) fn write<R>(
        stamp: &Stamp,
        head_only: bool,
        write: impl FnOnce(&mut Answer<'_>) -> R,
    ) -> (R, Rendered) {
        let mut out = Vec::new();
        let mut answer = Answer::new(&mut out, stamp, form(head_only));
        let result = write(&mut answer);
        let (mark, closes) = (answer.mark(), answer.form().persistence == Persistence::Close);
        (result, Rendered { mark, closes, ..Rendered::of(out) })
    }

    /// The answer to a request that the engine refuses.
    pub(super) fn error<S: Service>(service: &S, stamp: &Stamp, head_only: bool, reject: Reject) -> Rendered {
        Rendered::write(stamp, head_only, |answer| respond_error(answer, service, reject)).1
    }

    /// The head of a streamed answer, and the source of its body.
    pub(super) fn streamed(
        streamed: Streamed,
        stamp: &Stamp,
        head_only: bool,
    ) -> (Rendered, Option<Outgoing>) {
        let mut out = Vec::new();
        let (outgoing, _) = streamed.write_head(form(head_only), stamp, &mut out);
        let raw = outgoing.map(|outgoing| match outgoing.delimiter {
            // Frames have their own lengths and their own end.
            Delimiter::Chunked => Outgoing { delimiter: Delimiter::Close, ..outgoing },
            Delimiter::Length(_) | Delimiter::Close => outgoing,
        });
        (Rendered::of(out), raw)
    }

    /// Parses an answer that the engine wrote. An input that the engine did not write gives an empty answer.
    ///
    /// The fields have a copy: h2 keeps some of them as long as the connection, and would keep the body with
    /// them.
    fn of(out: Vec<u8>) -> Rendered {
        const HEAD_END: &[u8] = b"\r\n\r\n";
        let head_end = out.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END);
        let head_end = head_end.map_or(out.len(), |at| at + HEAD_END.len());
        let bytes = Bytes::copy_from_slice(&out[..head_end]);
        let body = Bytes::from(out).slice(head_end..);
        let line_end =
            |from: usize| bytes[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at + 1);
        let mut head = Response::new(());
        let status = bytes.get(9..12).and_then(|digits| StatusCode::from_bytes(digits).ok());
        *head.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut at = line_end(0).unwrap_or(bytes.len());
        while let Some(end) = line_end(at) {
            let line = &bytes[at..end - 2];
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
            let name = HeaderName::from_bytes(&line[..colon]);
            let value = HeaderValue::from_maybe_shared(bytes.slice(at + colon + 2..end - 2));
            // The name and the value were checked when they were written.
            if let (Ok(name), Ok(value)) = (name, value)
                && !is_of_connection(&name)
            {
                head.headers_mut().append(name, value);
            }
            at = end;
        }
        Rendered { head, body, mark: 0, closes: false }
    }
}

fn is_of_connection(name: &HeaderName) -> bool {
    let others = ["keep-alive", "proxy-connection"];
    [CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(name) || others.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Head, HeaderLines};

    fn shown(rendered: &Rendered) -> String {
        let head = &rendered.head;
        let mut fields: Vec<_> = head
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        fields.retain(|field| !field.starts_with("date: "));
        assert_eq!(head.headers().len(), fields.len() + 1, "one date");
        format!(
            "{} [{}] {}",
            head.status().as_u16(),
            fields.join(", "),
            String::from_utf8_lossy(&rendered.body)
        )
    }

    #[test]
    fn answers_are_taken_apart() {
        let stamp = Stamp::now();
        let head =
            Head::new(200).content_type("text/plain").header("Keep-Alive", "timeout=5").header("A", "");
        let whole = |head_only| {
            Rendered::write(&stamp, head_only, |answer| {
                answer.hold_until(7);
                answer.close();
                answer.respond(&head, b"a: b\r\n\r\n");
            })
            .1
        };
        let lines = "200 [content-type: text/plain, a: , content-length: 8]";
        assert_eq!(shown(&whole(false)), format!("{lines} a: b\r\n\r\n"));
        assert_eq!(shown(&whole(true)), format!("{lines} "));
        assert_eq!((whole(false).mark, whole(false).closes), (7, true));
        let (_, none) = Rendered::write(&stamp, false, |answer| answer.respond(&Head::new(204), b"x"));
        assert_eq!(shown(&none), "204 [] ");
    }

    #[test]
    fn the_fields_do_not_keep_the_body() {
        let body = vec![b'a'; 1 << 20];
        let (_, rendered) =
            Rendered::write(&Stamp::now(), false, |answer| answer.respond(&Head::new(200), &body));
        assert!(rendered.body.is_unique() && !rendered.head.headers().is_empty());
    }

    #[test]
    fn a_streamed_head_has_a_length_or_nothing() {
        let stamp = Stamp::now();
        let mut lines = Vec::new();
        HeaderLines::new(&mut lines).add("X", "y").expect("valid");
        for (length, expected) in [(Some(5), "200 [x: y, content-length: 5] "), (None, "200 [x: y] ")] {
            let streamed = Streamed { status: 200, lines: lines.clone(), dated: false, length, body: None };
            let (rendered, outgoing) = Rendered::streamed(streamed, &stamp, true);
            assert_eq!(shown(&rendered), expected);
            assert!(outgoing.is_none());
        }
    }
}
