//! Where values in PostgreSQL's binary form are appended.

/// Where encoded bytes go: a buffer of ours or of the client library.
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
