//! The destination of values in PostgreSQL's binary form.

/// A buffer for encoded bytes: ours or the client library's.
pub(super) trait Encoded {
    fn put(&mut self, bytes: &[u8]);
}

impl Encoded for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Encoded for bytes::BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
