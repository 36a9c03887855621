//! Writes the folders under `fixtures/` again: one good log of three segments, and one copy of it
//! for each way of breaking it.
//!
//! Only for a change of the format; otherwise the files stay as they are, so that what an older
//! program wrote is tested.
//!     cargo run -p forebay-log --example fixtures

use forebay_log::{AppendError, Log, Options};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Done = Result<(), Box<dyn Error>>;

const FIRST: &str = "00000000000000000000.log";
const SECOND: &str = "00000000000000003072.log";
const THIRD: &str = "00000000000000006144.log";

fn main() -> Done {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let good = write_good(&fixtures.join("good"))?;
    let other = write_good(&fixtures.join("other"))?;
    let case = |name: &str| copy(&good, &fixtures.join(name));
    // Three groups of 1,024 bytes fill a segment of 4,096; the last segment holds one of 1,024.
    edit(&case("torn-end")?, THIRD, |bytes| bytes[512 + 512..].fill(0))?;
    edit(&case("garbage-behind-the-end")?, THIRD, |bytes| bytes[1536..1636].fill(0xEE))?;
    edit(&case("damaged-middle")?, SECOND, |bytes| bytes[512 + 70] ^= 4)?;
    edit(&case("damaged-segment-header")?, SECOND, |bytes| bytes[20] ^= 4)?;
    edit(&case("damaged-last-segment-header")?, THIRD, |bytes| bytes[508] ^= 4)?;
    let folder = case("damaged-middle-of-the-last-segment")?;
    append(&folder, 1)?;
    edit(&folder, THIRD, |bytes| bytes[512] ^= 4)?;
    fs::remove_file(case("missing-middle-segment")?.join(SECOND))?;
    fs::remove_file(case("missing-first-segment")?.join(FIRST))?;
    fs::remove_file(case("missing-manifest")?.join("MANIFEST"))?;
    fs::copy(other.join(SECOND), case("segment-of-another-log")?.join(SECOND))?;
    edit(&case("damaged-manifest")?, "MANIFEST", |bytes| bytes[40] ^= 1)?;
    edit(&case("long-manifest")?, "MANIFEST", |bytes| bytes.push(0))?;
    edit(&case("later-version")?, "MANIFEST", |bytes| {
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_le_bytes());
    })?;
    let folder = case("no-segment-behind-the-manifest")?;
    for name in [FIRST, SECOND, THIRD] {
        fs::remove_file(folder.join(name))?;
    }
    let folder = case("unfinished-creation")?;
    for name in ["MANIFEST", SECOND, THIRD] {
        fs::remove_file(folder.join(name))?;
    }
    edit(&folder, FIRST, |bytes| bytes[512..].fill(0))?;
    let folder = case("leftover-new-files")?;
    fs::copy(folder.join(FIRST), folder.join("blank-7.new"))?;
    fs::copy(folder.join("MANIFEST"), folder.join("manifest.new"))?;
    fs::remove_dir_all(other)?;
    Ok(())
}

/// Seven groups of one record each, in three segments.
fn write_good(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    append(folder, 7)?;
    Ok(folder.to_owned())
}

fn append(folder: &Path, groups: u8) -> Done {
    let (log, _) = Log::open(Options { segment_bytes: 4096, buffer_bytes: 2048, ..Options::new(folder) })?;
    for group in 0..groups {
        while let Err(error) = log.append(&[b'a' + group; 900]) {
            if error != AppendError::Busy {
                return Err(error.into());
            }
            std::thread::yield_now();
        }
        log.flush()?;
    }
    log.close()?;
    fs::remove_file(folder.join("LOCK"))?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<PathBuf, Box<dyn Error>> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(to.to_owned())
}

fn edit(folder: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Done {
    let path = folder.join(name);
    let mut bytes = fs::read(&path)?;
    change(&mut bytes);
    fs::write(&path, bytes)?;
    Ok(())
}
