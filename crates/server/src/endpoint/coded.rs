//! Request bodies with a content coding (RFC 9110 section 8.4), decoded before an endpoint reads them.
//!
//! Promises that a decoded body is no longer than the limit for any request body.

use crate::problem::Problem;
use forebay_cache::{Coding, Undecoded, decode};
use forebay_http::Request;

/// The content coding of a request's body; `None`: the body has no coding.
pub fn coding_of<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    request.header("Content-Encoding").filter(|name| !name.eq_ignore_ascii_case(b"identity"))
}

/// Decodes the body; the result has at most `bytes_max` bytes.
pub fn decoded(coding: &[u8], body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Problem> {
    let decoded = match Coding::from_name(coding) {
        Some(coding) => decode(coding, body, bytes_max),
        None => Err(Undecoded::Unsupported),
    };
    decoded.map_err(|why| match why {
        Undecoded::TooLong => Problem::new(413, "the request body is too large"),
        Undecoded::Malformed => {
            Problem::new(400, "the body is not in the coding that Content-Encoding names")
        }
        Undecoded::Unsupported => {
            let headers = vec![("Accept-Encoding", "gzip, zstd".to_owned())];
            Problem { headers, ..Problem::new(415, "bodies are read as they are, in gzip or in zstd") }
        }
    })
}
