//! `files`: serves the files of a folder.
//!
//! Promises that no path and no symbolic link leads out of the folder (the kernel resolves names beneath it),
//! that no file or folder whose name begins with a dot is served, that a worker never waits for a disk, and
//! that serving a file of any size needs memory for a few pieces only.

mod body;
mod range;
mod types;

use super::intake::Intake;
use super::matched_request::Matched;
use super::waiting_requests::{WaitingPlace, reply_of, within};
use crate::problem::Problem;
use crate::start_error::StartError;
use body::FileBody;
use forebay_cache::{Coding, Conditions};
use forebay_config::model;
use forebay_http::{
    Head, HeaderLines, Method, Outcome, Reply, Request, ServiceAnswer, Streamed, percent_decode,
};
use forebay_terminal::warn;
use range::{Part, part};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

/// Files of at most this many bytes are read whole.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// The last second that an HTTP date can express (RFC 9110 section 5.6.7).
const DATE_MAX_S: u64 = 253_402_300_799;

/// A folder whose files are served.
pub struct Files {
    dir: PathBuf,
    index: String,
    /// The runtime whose blocking pool reads files.
    runtime: Handle,
}

/// The parts of a request that are needed after it, owned.
struct FileRequest {
    /// The path below the folder, decoded; with a slash at its end if the client sent one.
    path: String,
    /// The URL of the path with a slash at its end: where a request for a folder without it is redirected.
    with_slash: String,
    is_head: bool,
    conditions: Conditions<'static>,
    modified_since: Option<SystemTime>,
    codings: Vec<Coding>,
    range: Option<String>,
    if_range: Option<String>,
}

/// An open file, and its content coding.
struct OpenedFile {
    file: File,
    metadata: Metadata,
    coding: Option<Coding>,
}

/// An answer: its status and header lines, and which part of which file is its body.
struct FileAnswer {
    status: u16,
    lines: Vec<u8>,
    body: Option<(File, Part)>,
}

impl Files {
    /// Creates it from the config.
    ///
    /// # Errors
    /// A sentence when the folder does not exist or is not a folder.
    pub fn new(model: &model::Files, runtime: &Handle) -> Result<Files, StartError> {
        let model::Files { dir, index } = model;
        match std::fs::metadata(dir) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(format!("files: {} is not a folder", dir.display()).into()),
            Err(error) => return Err(format!("files: {}: {error}", dir.display()).into()),
        }
        Ok(Files { dir: dir.clone(), index: index.clone(), runtime: runtime.clone() })
    }

    /// Answers a request of this endpoint.
    pub(super) fn call(
        self: &Arc<Files>,
        intake: &Intake,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<Outcome, Problem> {
        let rest = matched.path.first().map_or("", |(_, rest)| rest);
        let wanted = FileRequest::of(request, rest).ok_or_else(nothing)?;
        let place = Arc::new(intake.waiting.take(request.client().network())?);
        let timeout = intake.waiting.timeout;
        let me = self.clone();
        Ok(Outcome::Streamed(Box::pin(async move {
            let (own, runtime) = (me.clone(), &me.runtime);
            let finding = runtime.spawn_blocking(move || own.answer(&wanted));
            let found = within(timeout, finding)
                .await
                .map(|found| found.unwrap_or_else(|_| Err(Problem::new(500, "the file could not be read"))));
            match found.flatten() {
                Ok(given) => given.streamed_by(runtime, place),
                Err(problem) => reply_of(Err(problem)).into(),
            }
        })))
    }

    fn answer(&self, wanted: &FileRequest) -> Result<PreparedAnswer, Problem> {
        let root = open(&self.dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(|error| self.failed(error.into()))?;
        let beneath = |path: &str| match open_beneath(&root, path) {
            Ok(found) => Ok(found),
            Err(error) => Err(self.failed(error)),
        };
        let mut path = wanted.path.clone();
        if path.is_empty() || path.ends_with('/') {
            path.push_str(&self.index);
        }
        let mut found = beneath(&path)?.ok_or_else(nothing)?;
        if found.metadata.is_dir() {
            // Redirect only when the folder has an index, so that other folders stay hidden.
            beneath(&format!("{path}/{}", self.index))?.filter(OpenedFile::is_file).ok_or_else(nothing)?;
            return Ok(PreparedAnswer::Whole(moved(&wanted.with_slash)?));
        }
        if !found.is_file() {
            return Err(nothing());
        }
        let range = wanted.range.as_deref().filter(|_| wanted.may_have_part(&found));
        if range.is_none() {
            for coding in &wanted.codings {
                let other = beneath(&format!("{path}.{}", extension(*coding)))?;
                // A compressed file that is older than the file itself was made from an earlier version.
                if let Some(other) =
                    other.filter(|other| other.is_file() && other.modified() >= found.modified())
                {
                    found = OpenedFile { coding: Some(*coding), ..other };
                    break;
                }
            }
        }
        let answered = found.answer(&path, wanted, range)?;
        answered.ready(wanted.is_head).map_err(|error| self.failed(error))
    }

    /// Logs the error, which the client does not see.
    fn failed(&self, error: io::Error) -> Problem {
        warn!("forebay: files of {}: {error}", self.dir.display());
        Problem::unavailable("the file could not be read")
    }
}

fn nothing() -> Problem {
    Problem::not_found("there is no such file")
}

/// Opens a file or folder beneath `root`; `None`: it does not exist or may not be served.
fn open_beneath(root: &impl std::os::fd::AsFd, path: &str) -> io::Result<Option<OpenedFile>> {
    // NONBLOCK: opening a FIFO or a device must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // A folder was renamed during the lookup.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => break opened,
        }
    };
    match opened {
        Ok(file) => {
            let file = File::from(file);
            let metadata = file.metadata()?;
            Ok(Some(OpenedFile { file, metadata, coding: None }))
        }
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::INVAL,
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The extension of compressed files.
fn extension(coding: Coding) -> &'static str {
    match coding {
        Coding::Brotli => "br",
        Coding::Zstd => "zst",
        Coding::Gzip => "gz",
    }
}

/// Redirects to the folder's URL with a slash, so that relative links in its index resolve.
fn moved(to: &str) -> Result<Reply, Problem> {
    let mut extra = Vec::new();
    HeaderLines::new(&mut extra).add("Location", to).map_err(|_| nothing())?;
    Ok(Reply { head: Arc::new(Head::new(301)), extra, body: Vec::new(), mark: 0 })
}

impl FileRequest {
    /// `None`: no file can have such a name. `rest` is the normalized path below the folder.
    fn of(request: &Request<'_>, rest: &str) -> Option<FileRequest> {
        let mut path = String::new();
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            let name = percent_decode(segment).ok()?;
            if name.starts_with('.')
                || name.contains(['/', '\\', '\0'])
                || (name.is_empty() && segments.peek().is_some())
            {
                return None;
            }
            path.push_str(&name);
            if segments.peek().is_some() {
                path.push('/');
            }
        }
        // A Location that begins with `//host` would redirect to another server.
        let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
        let with_slash = format!("/{}/{query}", request.path().trim_matches('/'));
        // The folder itself, requested without its slash.
        if path.is_empty() && !request.path().ends_with('/') {
            path.push('.');
        }
        let text = |name: &str| request.header(name).and_then(|value| std::str::from_utf8(value).ok());
        Some(FileRequest {
            path,
            with_slash,
            is_head: request.method() == Method::Head,
            conditions: Conditions::of(request).into_owned(),
            modified_since: text("If-Modified-Since").and_then(|date| httpdate::parse_http_date(date).ok()),
            codings: request.header("Accept-Encoding").map(Coding::accepted).unwrap_or_default(),
            range: text("Range").map(str::to_owned),
            if_range: text("If-Range").map(str::to_owned),
        })
    }

    /// Whether a Range may be served: `If-Range` is absent or names this version (RFC 9110 section 13.1.5).
    fn may_have_part(&self, found: &OpenedFile) -> bool {
        let Some(condition) = &self.if_range else { return true };
        *condition == found.etag() || *condition == found.last_modified()
    }
}

impl OpenedFile {
    fn is_file(&self) -> bool {
        self.metadata.is_file()
    }

    /// The modification time in whole seconds, as Last-Modified shows it.
    fn modified(&self) -> SystemTime {
        let seconds = u64::try_from(self.metadata.mtime()).unwrap_or(0).min(DATE_MAX_S);
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn last_modified(&self) -> String {
        httpdate::fmt_http_date(self.modified())
    }

    fn etag(&self) -> String {
        let coding = self.coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
        let (metadata, length) = (&self.metadata, self.metadata.len());
        format!("\"{:x}.{:x}-{length:x}{coding}\"", metadata.mtime(), metadata.mtime_nsec())
    }

    /// `path` is the path of the file without a content coding.
    fn answer(self, path: &str, wanted: &FileRequest, range: Option<&str>) -> Result<FileAnswer, Problem> {
        let length = self.metadata.len();
        let etag = self.etag();
        let mut lines = Vec::new();
        let mut add = |name: &str, value: &str| {
            HeaderLines::new(&mut lines).add(name, value).expect("fields of our own are well-formed");
        };
        add("ETag", &etag);
        add("Last-Modified", &self.last_modified());
        add("Vary", "Accept-Encoding");
        let is_known = match wanted.conditions.has_none_match() {
            true => wanted.conditions.has(&etag),
            false => wanted.modified_since.is_some_and(|since| self.modified() <= since),
        };
        if is_known {
            return Ok(FileAnswer { status: 304, lines, body: None });
        }
        add("Content-Type", types::of(path));
        add("Accept-Ranges", "bytes");
        if let Some(coding) = self.coding {
            add("Content-Encoding", coding.name());
        }
        let whole = Part { start: 0, length };
        let (status, part) = match range.map(|range| part(range, length)) {
            None | Some(Ok(None)) => (200, whole),
            Some(Ok(Some(part))) => {
                let end = part.start + part.length - 1;
                add("Content-Range", &format!("bytes {}-{end}/{length}", part.start));
                (206, part)
            }
            Some(Err(_)) => {
                let headers = vec![("Content-Range", format!("bytes */{length}"))];
                return Err(Problem { headers, ..Problem::new(416, "the file has no such part") });
            }
        };
        Ok(FileAnswer { status, lines, body: Some((self.file, part)) })
    }
}

/// An answer with its head, and with its body unless the body is long.
enum PreparedAnswer {
    Whole(Reply),
    Long { status: u16, lines: Vec<u8>, length: u64, body: Option<(File, Part)> },
}

impl FileAnswer {
    fn ready(self, is_head: bool) -> io::Result<PreparedAnswer> {
        let FileAnswer { status, lines, body } = self;
        let whole = |body| Reply { head: Arc::new(Head::new(status)), extra: Vec::new(), body, mark: 0 };
        Ok(match body {
            None => PreparedAnswer::Whole(Reply { extra: lines, ..whole(Vec::new()) }),
            Some((_, part)) if is_head => {
                PreparedAnswer::Long { status, lines, length: part.length, body: None }
            }
            Some((file, part)) if part.length <= WHOLE_BYTES_MAX => {
                let mut bytes = vec![0; part.length as usize];
                file.read_exact_at(&mut bytes, part.start)?;
                PreparedAnswer::Whole(Reply { extra: lines, ..whole(bytes) })
            }
            Some((file, part)) => {
                PreparedAnswer::Long { status, lines, length: part.length, body: Some((file, part)) }
            }
        })
    }
}

impl PreparedAnswer {
    fn streamed_by(self, runtime: &Handle, place: Arc<WaitingPlace>) -> ServiceAnswer {
        match self {
            PreparedAnswer::Whole(reply) => reply.into(),
            PreparedAnswer::Long { status, lines, length, body } => {
                let body = body.map(|(file, part)| Box::pin(FileBody::new(file, part, runtime, place)) as _);
                ServiceAnswer::Streamed(Streamed { status, lines, dated: false, length: Some(length), body })
            }
        }
    }
}
