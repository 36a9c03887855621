//! The response cache on the admin listener: its counters, and dropping answers on request.

use crate::compile::CachedRoutes;
use crate::problem::Problem;
use forebay_cache::{Cache, Counts};
use forebay_http::{Request, query_pairs};
use serde_json::json;

/// The cache, for the admin listener.
pub struct CacheAdmin {
    cache: Cache<Problem>,
    /// The tags that stand for everything cached.
    all: CachedRoutes,
}

impl CacheAdmin {
    /// For a cache, with the tags of everything that it may contain.
    pub fn new(cache: Cache<Problem>, all: CachedRoutes) -> CacheAdmin {
        CacheAdmin { cache, all }
    }

    /// The counters.
    pub fn counts(&self) -> serde_json::Value {
        let Counts { hits, misses, fills, failures, shared_hits, shared_failures, .. } = self.cache.counts();
        let Counts { shared_away, pending_invalidations, drops, entries, bytes, .. } = self.cache.counts();
        json!({
            "entries": entries,
            "bytes": bytes,
            "hits": hits,
            "misses": misses,
            "fills": fills,
            "failures": failures,
            "shared_hits": shared_hits,
            "shared_failures": shared_failures,
            "shared_away": shared_away,
            "pending_invalidations": pending_invalidations,
            "drops": drops,
        })
    }

    /// Drops answers by the tags in the query.
    pub fn invalidate(
        &self,
        request: &Request<'_>,
    ) -> Result<impl Future<Output = Result<serde_json::Value, Problem>> + Send + use<>, Problem> {
        let mut tags = Vec::new();
        for pair in query_pairs(request.query().unwrap_or_default()) {
            let (name, value) = pair.map_err(|error| Problem::new(400, format!("the query has {error}")))?;
            if name == "tag" {
                tags.push(value.into_owned());
            }
        }
        if tags.is_empty() {
            return Err(Problem::parameter("tag", "is required: ?tag=item:1&tag=items"));
        }
        Ok(self.drop_tags(tags))
    }

    /// Drops the answers of all cached endpoints.
    pub fn clear(&self) -> impl Future<Output = Result<serde_json::Value, Problem>> + Send + use<> {
        self.cache.drop_all_here();
        self.drop_tags(self.all.tags())
    }

    fn drop_tags(
        &self,
        tags: Vec<String>,
    ) -> impl Future<Output = Result<serde_json::Value, Problem>> + Send + use<> {
        let cache = self.cache.clone();
        async move {
            cache.drop_tags(&tags).await.map_err(|error| Problem::unavailable(error.to_string()))?;
            Ok(json!({ "dropped": tags }))
        }
    }
}
