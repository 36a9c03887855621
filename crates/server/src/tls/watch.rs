//! The files of certificates, looked at now and then.

use super::{Challenges, load};
use forebay_config::model;
use forebay_terminal::{say, warn};
use rustls::ServerConfig;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// From one look to the next. Files that change are read when they have stood still for as long.
const PERIOD: Duration = Duration::from_secs(1);

/// The states of all files of a config at one moment, taken before they were read.
pub type Seen = Vec<State>;

/// What tells one state of a file from another; `None`: it cannot be looked at. A link that is turned to
/// another file, as Kubernetes does, changes it as well.
pub type State = Option<(u64, u64, u64, i64, i64)>;

fn state_of(path: &Path) -> State {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// The states of all files.
pub fn look(tls: &model::Tls) -> Seen {
    let pairs = tls.certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
    pairs.chain(&tls.client_ca).map(|path| state_of(path)).collect()
}

/// Gives `replace` what files hold that have changed since they were `seen`, for as long as it is polled.
/// Files that cannot be used change nothing; the reason is said once for each state of theirs.
pub async fn watch<F: Future<Output = ()>>(
    tls: model::Tls,
    challenges: Challenges,
    seen: Seen,
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
            Err(what) => refuse(&what),
        }
    }
}

fn refuse(what: &str) {
    warn!("server.tls: the files have changed and cannot be used: {what}; what was in use stays");
}
