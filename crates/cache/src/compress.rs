//! Compresses bodies with gzip, Brotli or Zstandard, and decodes the bodies of requests.

use crate::conditions::Coding;
use crate::limits;
use flate2::write::GzEncoder;
use std::io::{Read, Write};

/// The body in that coding; `None` when it is too small or too large, or when encoding saves less
/// than a quarter.
pub fn encode(coding: Coding, body: &[u8]) -> Option<Vec<u8>> {
    if !is_worth(body.len()) {
        return None;
    }
    // Writing into memory cannot fail.
    let encoded = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(limits::GZIP_LEVEL));
            encoder.write_all(body).and_then(|()| encoder.finish()).ok()?
        }
        Coding::Brotli => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: limits::BROTLI_QUALITY,
                lgwin: limits::BROTLI_WINDOW_LOG,
                size_hint: body.len(),
                ..Default::default()
            };
            let mut out = Vec::new();
            brotli::BrotliCompress(&mut &body[..], &mut out, &params).ok()?;
            out
        }
        Coding::Zstd => zstd::bulk::compress(body, limits::ZSTD_LEVEL).ok()?,
    };
    (encoded.len() <= body.len() * limits::COMPRESSED_QUARTERS_MAX / 4).then_some(encoded)
}

/// Why a body was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecoded {
    /// It would be longer than permitted.
    TooLong,
    /// It is not in this coding, or not complete.
    Malformed,
    /// Bodies in this coding are not supported.
    Unsupported,
}

/// Decodes a body in gzip or Zstandard. Never produces more than `bytes_max` plus one byte.
///
/// # Errors
/// See [`Undecoded`].
pub fn decode(coding: Coding, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Undecoded> {
    let mut decoded = Vec::new();
    let most = bytes_max as u64 + 1;
    let read = match coding {
        Coding::Gzip => flate2::read::MultiGzDecoder::new(body).take(most).read_to_end(&mut decoded),
        Coding::Zstd => zstd::Decoder::new(body).and_then(|mut decoder| {
            decoder.window_log_max(limits::ZSTD_WINDOW_LOG_MAX)?;
            decoder.take(most).read_to_end(&mut decoded)
        }),
        Coding::Brotli => return Err(Undecoded::Unsupported),
    };
    match read {
        Ok(_) if decoded.len() > bytes_max => Err(Undecoded::TooLong),
        Ok(_) => Ok(decoded),
        Err(_) => Err(Undecoded::Malformed),
    }
}

/// Whether a body of this length is compressed at all.
pub(crate) fn is_worth(length: usize) -> bool {
    (limits::COMPRESS_BYTES_MIN..=limits::COMPRESS_BYTES_MAX).contains(&length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_decoded_up_to_their_limit() {
        let body = b"{\"a\":1}".repeat(1000);
        let gzip = encode(Coding::Gzip, &body).expect("it is long");
        let zstd = encode(Coding::Zstd, &body).expect("it is long");
        for (coding, coded) in [(Coding::Gzip, &gzip), (Coding::Zstd, &zstd)] {
            assert_eq!(decode(coding, coded, body.len()).as_deref(), Ok(&body[..]));
            assert_eq!(decode(coding, coded, body.len() - 1), Err(Undecoded::TooLong), "{coding:?}");
            assert_eq!(decode(coding, &coded[..coded.len() / 2], 1 << 20), Err(Undecoded::Malformed));
            assert_eq!(decode(coding, &body, 1 << 20), Err(Undecoded::Malformed));
            let behind = [&coded[..], b"more"].concat();
            assert_eq!(decode(coding, &behind, 1 << 20), Err(Undecoded::Malformed));
        }
        assert_eq!(decode(Coding::Brotli, &body, 1 << 20), Err(Undecoded::Unsupported));
    }

    #[test]
    fn what_is_encoded_can_be_decoded() {
        let body: Vec<u8> = (0..500).flat_map(|i| format!("{{\"id\":{i}}},").into_bytes()).collect();
        let mut decoded = Vec::new();
        let gzip = encode(Coding::Gzip, &body).expect("it is long");
        flate2::read::GzDecoder::new(&gzip[..]).read_to_end(&mut decoded).expect("gzip");
        assert_eq!(decoded, body);
        decoded.clear();
        let brotli = encode(Coding::Brotli, &body).expect("it is long");
        brotli::Decompressor::new(&brotli[..], 4096).read_to_end(&mut decoded).expect("Brotli");
        assert_eq!(decoded, body);
        let zstd = encode(Coding::Zstd, &body).expect("it is long");
        assert_eq!(zstd::bulk::decompress(&zstd, body.len()).expect("Zstandard"), body);
    }

    #[test]
    fn what_gains_nothing_stays_as_it_is() {
        let noise: Vec<u8> = std::iter::repeat_with(rand::random).take(4096).collect();
        for coding in Coding::ALL {
            assert_eq!(encode(coding, &noise), None);
            assert_eq!(encode(coding, &[b'a'; limits::COMPRESS_BYTES_MIN - 1]), None);
        }
    }
}
