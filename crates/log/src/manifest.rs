//! The manifest: which log the folder contains and up to where it was released. Replaced as a whole, by
//! rename, so that a crash leaves the old one or the new one.

use crate::disk::{Access, Disk};
use crate::error::{Error, FilePlace, Kind};
use crate::format::{self, Identity, Invalid};
use crate::limits::MANIFEST_BYTES;
use crate::position::{LogId, Position};
use std::io;
use std::path::Path;
use std::time::Instant;

pub(crate) const MANIFEST_FILE: &str = "MANIFEST";
const MANIFEST_NEW: &str = "manifest.new";

/// What the folder knows of the released position.
pub(crate) struct Remembered {
    /// The one in the manifest.
    pub manifest: Position,
    /// When everything that was set aside was released.
    pub aside_since: Option<Instant>,
}

/// Reads the manifest; `None` when there is none.
pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<(Identity, Position)>, Error> {
    let path = folder.join(MANIFEST_FILE);
    let file = match disk.open(&path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", &path, error)),
    };
    // One byte more than a manifest has, so that a longer file is noticed.
    let mut bytes = [0; MANIFEST_BYTES + 1];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) => return Err(Error::io("read", &path, error)),
        }
    }
    let place = FilePlace { file: path, offset: 0, position: Position(0) };
    match format::decode_manifest(&bytes[..length]) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(Invalid::Damaged) => Err(Error::corrupt("the log's manifest is damaged", place)),
        Err(Invalid::Version(version)) => {
            Err(Error::foreign(&format!("log version {version}, which this program does not know,"), place))
        }
    }
}

/// Replaces the manifest, durably.
pub(crate) fn write(
    disk: &dyn Disk,
    folder: &Path,
    identity: Identity,
    released: Position,
) -> Result<(), Error> {
    let new = folder.join(MANIFEST_NEW);
    let path = folder.join(MANIFEST_FILE);
    let replace = || {
        let file = disk.open(&new, Access::Create)?;
        file.write_all_at(&format::encode_manifest(identity, released), 0)?;
        file.sync()?;
        disk.rename(&new, &path)?;
        disk.sync_folder(folder)
    };
    replace().map_err(|source| Error::io("replace", &path, source))
}

/// The error for a folder that has segments and no manifest.
pub(crate) fn missing(folder: &Path) -> Error {
    let path = folder.join(MANIFEST_FILE);
    let text = format!("{} is missing beside segments that hold data", path.display());
    Error::new(Kind::Missing(path), text)
}

/// Draws the identity of a new log.
pub(crate) fn draw_identity(folder: &Path) -> Result<Identity, Error> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| {
        let source = io::Error::other(error.to_string());
        Error::io("draw a log id for", folder, source)
    })?;
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    let mut salt = [0; 8];
    salt.copy_from_slice(&bytes[16..]);
    Ok(Identity { id: LogId(u128::from_le_bytes(id)), salt: u64::from_le_bytes(salt) })
}
