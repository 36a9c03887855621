//! Watches the certificate files.

use super::{Challenges, load};
use forebay_config::model;
use forebay_terminal::{say, warn};
use rustls::ServerConfig;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time between two checks. Changed files are read when they have not changed for this long.
const PERIOD: Duration = Duration::from_secs(1);

/// The states of all files of a config, taken before they were read.
pub type FileStates = Vec<State>;

/// Identifies a version of a file; `None`: the file cannot be read. Redirecting a symbolic link to another
/// file, as Kubernetes does, changes it too.
pub type State = Option<(u64, u64, u64, i64, i64)>;

fn state_of(path: &Path) -> State {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// The states of all files.
pub fn look(tls: &model::Tls) -> FileStates {
    let pairs = tls.certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
    pairs.chain(&tls.client_ca).map(|path| state_of(path)).collect()
}

/// Calls `replace` with the content of files that have changed since `seen`, while it is polled. Unusable
/// files change nothing; the reason is logged once for each of their states.
pub async fn watch<F: Future<Output = ()>>(
    tls: model::Tls,
    challenges: Challenges,
    seen: FileStates,
    replace: impl Fn(Arc<ServerConfig>) -> F,
) {
    let mut judged = seen;
    let mut before = look(&tls);
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = look(&tls);
        let stands = now == before;
        before.clone_from(&now);
        if !stands || now == judged {
            continue;
        }
        judged = now;
        match load(&tls, &challenges) {
            Ok(loaded) if loaded.warnings.is_empty() => {
                replace(loaded.config).await;
                say!("server.tls: the certificates have changed and are in use");
            }
            Ok(loaded) => refuse(&loaded.warnings.join("; ")),
            Err(error) => refuse(&error.to_string()),
        }
    }
}

fn refuse(what: &str) {
    warn!("server.tls: the files have changed and cannot be used: {what}; what was in use stays");
}
