//! The HTTP parser on arbitrary bytes: it never reads past the end, and its result for a prefix is
//! also its result for the whole.
//!
//! `cargo +nightly fuzz run --fuzz-dir fuzz/http parse -- -max_total_time=300 -dict=fuzz/http/http.dict`
//!
//! The first byte of the input says where the rest is cut.
#![no_main]

use forebay_http::Limits;
use forebay_http::chunked::{ChunkedDecoder, Progress};
use forebay_http::parse::{Parsed, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let cut = bytes.len() * usize::from(*first) / 256;
    // Small limits, so that short inputs reach them.
    let limits = Limits { head_bytes: 300, target_bytes: 80, body_bytes: 60, fields: 6, ..Limits::default() };
    let whole = parse(bytes, &limits);
    let part = parse(&bytes[..cut], &limits);
    assert!(part == Parsed::Partial || part == whole, "{part:?} then {whole:?}");
    if let Parsed::Complete { consumed, body, path, .. } = &whole {
        assert!(*consumed <= bytes.len());
        assert!(body.len() <= limits.body_bytes && path.len() <= limits.target_bytes);
        assert_eq!(parse(&bytes[..*consumed], &limits), whole);
        assert_eq!(parse(&bytes[..*consumed - 1], &limits), Parsed::Partial);
        let _decoded = forebay_http::percent_decode(path);
    }
    chunks(bytes, cut, &limits);
});

/// A chunked body in two pieces is the same as in one.
fn chunks(bytes: &[u8], cut: usize, limits: &Limits) {
    let mut body = Vec::new();
    let whole = ChunkedDecoder::new().feed(bytes, &mut body, limits.body_bytes);
    let (mut decoder, mut pieces) = (ChunkedDecoder::new(), Vec::new());
    let halves = match decoder.feed(&bytes[..cut], &mut pieces, limits.body_bytes) {
        Ok(Progress::More) => match decoder.feed(&bytes[cut..], &mut pieces, limits.body_bytes) {
            Ok(Progress::Done(used)) => Ok(Progress::Done(cut + used)),
            other => other,
        },
        decided => decided,
    };
    assert_eq!(whole, halves);
    assert_eq!(body, pieces);
    assert!(body.len() <= limits.body_bytes);
}
