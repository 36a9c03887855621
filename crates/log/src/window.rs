//! A window that moves over a file: recovery reads bytes through it without loading a whole segment into
//! memory.

use crate::disk::DiskFile;
use crate::format::{self, GroupHeader, Identity};
use crate::limits::{GROUP_HEADER_BYTES, WINDOW_BYTES};
use crate::position::Position;
use std::io;

pub(crate) struct Window<'a> {
    file: &'a dyn DiskFile,
    /// Length of the file when the window was opened.
    length: u64,
    /// File offset of the first byte in `bytes`.
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn DiskFile) -> io::Result<Window<'a>> {
        Ok(Window { file, length: file.length()?, start: 0, bytes: Vec::new() })
    }

    /// The bytes at `offset`; `None` when the file does not have that many.
    pub fn get(&mut self, offset: u64, length: usize) -> io::Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(length as u64) else {
            return Ok(None);
        };
        if end > self.length {
            return Ok(None);
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if offset < held.start || end > held.end {
            self.load(offset, length.max(WINDOW_BYTES))?;
        }
        let at = (offset - self.start) as usize;
        Ok(self.bytes.get(at..at + length))
    }

    fn load(&mut self, offset: u64, length: usize) -> io::Result<()> {
        let length = (length as u64).min(self.length - offset) as usize;
        self.start = offset;
        self.bytes.resize(length, 0);
        let filled = read_full(self.file, &mut self.bytes, offset)?;
        self.bytes.truncate(filled);
        Ok(())
    }

    /// The header of an intact group of this log at `offset`, whatever start position it has.
    pub fn group(&mut self, offset: u64, identity: Identity) -> io::Result<Option<GroupHeader>> {
        let Some(bytes) = self.get(offset, GROUP_HEADER_BYTES)? else {
            return Ok(None);
        };
        let Some(header) = format::decode_group_header(bytes, identity.id) else {
            return Ok(None);
        };
        let Some(group) = self.get(offset, header.bytes as usize)? else {
            return Ok(None);
        };
        Ok(format::check_group(group, &header, identity.salt).then_some(header))
    }

    /// The first intact group of this log at or behind `offset`, at any byte, that starts at or
    /// above `at_least`.
    pub fn find_group(
        &mut self,
        mut offset: u64,
        identity: Identity,
        at_least: Position,
    ) -> io::Result<Option<(u64, GroupHeader)>> {
        while offset + (GROUP_HEADER_BYTES as u64) <= self.length {
            let length = (self.length - offset).min(WINDOW_BYTES as u64) as usize;
            let Some(chunk) = self.get(offset, length)? else {
                return Ok(None);
            };
            match memchr::memmem::find(chunk, format::GROUP_MAGIC) {
                Some(at) => {
                    let candidate = offset + at as u64;
                    match self.group(candidate, identity)? {
                        Some(header) if header.start >= at_least => {
                            return Ok(Some((candidate, header)));
                        }
                        _ => offset = candidate + 1,
                    }
                }
                // A magic may lie across the edge of the chunk.
                None => offset += (length - (format::GROUP_MAGIC.len() - 1)) as u64,
            }
        }
        Ok(None)
    }

    /// The offset behind the last nonzero byte, searched from `offset`; `None` when all bytes are zero.
    pub fn nonzero_end(&mut self, mut offset: u64) -> io::Result<Option<u64>> {
        let mut end = None;
        while offset < self.length {
            let length = (self.length - offset).min(WINDOW_BYTES as u64) as usize;
            let Some(chunk) = self.get(offset, length)? else {
                break;
            };
            if let Some(last) = chunk.iter().rposition(|byte| *byte != 0) {
                end = Some(offset + last as u64 + 1);
            }
            offset += length as u64;
        }
        Ok(end)
    }
}

/// Reads until the buffer is full or the file ends; returns how many bytes were read.
pub(crate) fn read_full(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}
