//! Compiles `invalidates` of tables.

use super::caching::CachedRoutes;
use super::context::CompileError;
use super::params::{Columns, ExpectedValue, ParamTable};
use crate::problem::Problem;
use crate::row_invalidation::{Changes, TableTags};
use forebay_cache::Cache;
use forebay_config::Config;
use forebay_value::Schema;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What row changes in these tables drop from the cache.
pub fn changes(
    config: &Config,
    schemas: &HashMap<String, Arc<Schema>>,
    cache: &Cache<Problem>,
    cached_routes: &CachedRoutes,
    runtime: &Handle,
) -> Result<Changes, Vec<CompileError>> {
    let (mut tables, mut errors) = (HashMap::new(), Vec::new());
    for table in config.tables.iter().filter(|table| !table.invalidates.is_empty()) {
        let schema = &schemas[&table.name];
        let compile = |tag| ParamTable::empty().compile(tag, ExpectedValue::ANY, Columns::Own(schema));
        match table.invalidates.iter().map(compile).collect::<Result<Vec<_>, _>>() {
            Ok(tags) => {
                tables.insert(table.name.clone(), TableTags::new(schema.clone(), tags));
            }
            Err(what) => errors.push(CompileError {
                line: table.line,
                message: format!("table {}: invalidates: {what}", table.name),
            }),
        }
    }
    if errors.is_empty() {
        Ok(Changes::new(cache.clone(), tables, cached_routes.clone(), runtime.clone()))
    } else {
        Err(errors)
    }
}
