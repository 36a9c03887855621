//! The parser as a pure function: a result found in a prefix is found unchanged in every longer input.

use forebay_http::Limits;
use forebay_http::parse::{Parsed, parse};
use proptest::prelude::*;

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed = [
        "GET ",
        "POST ",
        "OPTIONS ",
        "CONNECT ",
        "/",
        "/a?b",
        "*",
        "http://h/",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        " HTTP/2.0",
        "Host: a\r\n",
        "Host",
        ":",
        "Content-Length: 5\r\n",
        "Content-Length: x\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        "5\r\nabcde\r\n",
        "0\r\n\r\n",
        "0\r\n",
        "A: b\r\n",
        "a;b",
        "(",
        "\u{0}",
        "\u{e9}",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
    ];
    prop_oneof![
        12 => proptest::sample::select(fixed.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
        1 => (1usize..120, prop_oneof![Just(b'x'), Just(b'('), Just(b'0'), Just(0xe9)])
            .prop_map(|(count, byte)| vec![byte; count]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_verdict_on_a_prefix_is_final(pieces in proptest::collection::vec(piece(), 1..14)) {
        let limits = Limits { head_bytes: 200, target_bytes: 60, body_bytes: 20, fields: 4, ..Limits::default() };
        let bytes = pieces.concat();
        let whole = parse(&bytes, &limits);
        if let Parsed::Complete { consumed, .. } = &whole {
            prop_assert!(*consumed <= bytes.len());
            prop_assert_eq!(&parse(&bytes[..*consumed], &limits), &whole, "it is complete without what follows");
            prop_assert_eq!(&parse(&bytes[..*consumed - 1], &limits), &Parsed::Partial, "and not with less");
        }
        for cut in 0..bytes.len() {
            let part = parse(&bytes[..cut], &limits);
            prop_assert!(part == Parsed::Partial || part == whole, "cut at {}: {:?}, whole: {:?}", cut, part, whole);
        }
    }
}
