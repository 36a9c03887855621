//! `forebay seed`

use crate::admin_client::AdminClient;
use crate::cli::Seed;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::start::{load_config, runtime};
use forebay_drain::NewDatabase;
use forebay_server::{Problem, RowMaker, open};
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(args: &Seed) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    if AdminClient::find(&config.memory).is_some() {
        return Err("a server runs on this data folder; stop it before its table is cleared".into());
    }
    let runtime = runtime()?;
    let opened = runtime
        .block_on(open::open(&config, NewDatabase::Refuse, open::Unreachable::Fail))
        .map_err(Failure::from)?;
    let Some(schema) = opened.schemas.get(&args.table).cloned() else {
        let names: Vec<_> = config.tables.iter().map(|table| table.name.as_str()).collect();
        return Err(format!("there is no table {} (there are: {})", args.table, names.join(", ")).into());
    };
    let tier = opened.tier;
    let unavailable = |problem: Problem| problem.detail;
    if runtime.block_on(tier.is_behind()).map_err(unavailable)? {
        return Err("there are rows that are not drained yet; run `forebay drain` first".into());
    }
    let maker = RowMaker::new(&config, schema.clone()).map_err(Failure::from)?;
    // A row is generated before anything is deleted, so that a table that cannot be filled stays as
    // it is.
    maker.values(1).map_err(Failure::from)?;
    // Memory forgets the table before and after, so that a crash in between does not leave memory
    // without the new rows.
    runtime.block_on(tier.forget(&args.table)).map_err(unavailable)?;
    let progress = Arc::new(forebay_drain::Progress::default());
    let bar = Progress::new(&format!("seed {}", args.table), Some(args.rows));
    runtime.block_on(bar.watch(&progress, async {
        let values = |index: u64| maker.values(index as i64 + 1).expect("the first row could be made");
        forebay_drain::seed(&schema, tier.store(), args.rows, values, &progress).await
    }))?;
    runtime.block_on(tier.forget(&args.table)).map_err(unavailable)?;
    tier.close().map_err(Failure::from)?;
    Ok(ExitCode::SUCCESS)
}
