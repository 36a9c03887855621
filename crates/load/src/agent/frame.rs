//! Frames: a length, then JSON. Knows no message.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// Bytes of the length.
const LENGTH_BYTES: usize = 4;

/// Sends one message in one write.
pub(super) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - LENGTH_BYTES).map_err(|_| too_long(bytes.len()))?;
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&bytes)
}

/// Receives one message of at most `most` bytes. `UnexpectedEof` when the other side has closed.
pub(super) fn receive<T: DeserializeOwned>(stream: &mut impl Read, most: usize) -> io::Result<T> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(too_long(length));
    }
    // Memory grows with the received bytes, not with the announced length.
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

fn too_long(bytes: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a message of {bytes} bytes: this speaks another protocol"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_cut() {
        let mut wire = Vec::new();
        send(&mut wire, &"hello").unwrap();
        send(&mut wire, &[1, 2]).unwrap();
        let mut reader = wire.as_slice();
        assert_eq!(receive::<String>(&mut reader, 100).unwrap(), "hello");
        assert_eq!(receive::<Vec<u8>>(&mut reader, 100).unwrap(), [1, 2]);
        for cut in 0..wire.len() - 10 {
            let error = receive::<String>(&mut &wire[..cut.min(10)], 100).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
    }

    #[test]
    fn another_protocol_is_told_apart() {
        let mut http = b"GET / HTTP/1.1\r\n\r\n".as_slice();
        let error = receive::<String>(&mut http, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut wrong = [0, 0, 0, 2, b'{', b'}'].as_slice();
        assert_eq!(receive::<String>(&mut wrong, 4096).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
