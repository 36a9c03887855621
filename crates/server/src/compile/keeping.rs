//! The response cache as endpoints are compiled against it.

use crate::problem::Problem;
use forebay_cache::Cache;
use forebay_config::model::{self, Config};

/// The response cache, and what of the config it depends on.
pub struct CacheContext<'a> {
    pub(super) cache: &'a Cache<Problem>,
    /// The database's identity: answers from one database are never served for another.
    pub(super) database: String,
    /// Whether some endpoint has strict consistency.
    pub(super) is_strict: bool,
}

impl<'a> CacheContext<'a> {
    /// For the endpoints of this config.
    pub fn new(config: &'a Config, cache: &'a Cache<Problem>) -> CacheContext<'a> {
        let cached = config.endpoints.iter().filter_map(|endpoint| endpoint.cache.as_ref());
        let is_strict =
            cached.map(|caching| caching.consistency).any(|level| level == model::Consistency::Strict);
        CacheContext { cache, database: database_identity(&config.database.url), is_strict }
    }
}

/// A name that differs for different databases, among servers that share a cache: the same SQLite path is a
/// different database on each machine.
fn database_identity(url: &str) -> String {
    let Some(file) = url.strip_prefix("sqlite:") else { return url.to_owned() };
    let path = std::path::absolute(file).unwrap_or_else(|_| file.into());
    let machine = rustix::system::uname();
    format!("sqlite:{}:{}", machine.nodename().to_string_lossy(), path.display())
}

#[cfg(test)]
mod tests {
    use super::database_identity;

    #[test]
    fn a_file_is_the_same_only_on_its_machine_and_in_its_folder() {
        let here = std::env::current_dir().unwrap();
        let absolute = format!("sqlite:{}/data/x.db", here.display());
        assert_eq!(database_identity("sqlite:data/x.db"), database_identity(&absolute));
        assert_ne!(database_identity("sqlite:data/x.db"), database_identity("sqlite:/data/x.db"));
        let nodename = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(database_identity("sqlite:data/x.db").contains(&nodename));
        assert_eq!(database_identity("postgres://db/x"), "postgres://db/x");
    }
}
