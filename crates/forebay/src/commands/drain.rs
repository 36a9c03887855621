//! `forebay drain`: by the server that runs on the data folder, or by this process if no server does. A tier
//! on Redis or Valkey is always drained by this process, beside all others.

use crate::admin_client::AdminClient;
use crate::cli::Drain;
use crate::commands::serve;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::start::{load_config, runtime};
use forebay_config::Config;
use forebay_config::model::Tier;
use forebay_drain::{DEAD_LETTER_FILE, NewDatabase, Settings, import_dead_letters};
use forebay_server::{Conditions, Notices, open};
use forebay_terminal::{answer, say};
use forebay_value::Value;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

pub fn run(args: &Drain) -> Result<ExitCode, Failure> {
    if args.forever {
        return serve::work(&args.config, args.new_database);
    }
    let config = load_config(&args.config)?;
    let drained = match AdminClient::find(&config.memory) {
        Some(server) => {
            let state = server.post("/drain/finish", &[])?;
            answer!("drained by the running server: {} rows since its start", state["rows_total"]);
            ExitCode::SUCCESS
        }
        None => drain_here(&config, args.new_database)?,
    };
    if args.replay { replay_letters(&config, args.new_database) } else { Ok(drained) }
}

/// The highest number of dead letters that are listed; of more, only their number is printed.
const REFUSED_SHOWN: usize = 20;

fn replay_letters(config: &Config, new_database: bool) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let (store, schemas) =
        runtime.block_on(open::database(config, open::Unreachable::Fail)).map_err(Failure::from)?;
    let taken =
        runtime.block_on(import_dead_letters(&config.memory.data_dir, &store)).map_err(Failure::from)?;
    if taken > 0 {
        answer!("{taken} dead letters were moved from {DEAD_LETTER_FILE} into the database");
    }
    let progress = Arc::new(forebay_drain::Progress::default());
    let mut replayed = forebay_drain::Replayed::default();
    runtime.block_on(Progress::new("replay", None).watch(&progress, async {
        replayed = forebay_drain::replay(&store, &schemas, &progress).await?;
        Ok::<(), forebay_drain::Error>(())
    }))?;
    answer!("{} dead letters were applied", replayed.applied);
    refresh(config, new_database, &runtime, &replayed.rows)?;
    for (letter, reason) in replayed.refused.iter().take(REFUSED_SHOWN) {
        answer!("letter {} ({} {} {}) stays: {reason}", letter.id, letter.op, letter.table, letter.row);
    }
    match replayed.refused.len() {
        0 => Ok(ExitCode::SUCCESS),
        refused => {
            say!("{refused} dead letters were refused again; they are in the table forebay_dead_letter");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Refreshes the replayed rows in the memory of the running server, or of a tier on Redis. Without either,
/// the next start loads them.
fn refresh(
    config: &Config,
    new_database: bool,
    runtime: &Runtime,
    rows: &[(String, Value)],
) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    if let Some(server) = AdminClient::find(&config.memory) {
        for (table, key) in rows {
            let query = [("table", table.as_str()), ("key", &key_text(key))];
            server.post("/refresh", &query)?;
        }
    } else if config.memory.tier != Tier::Embedded {
        let new_database = if new_database { NewDatabase::Accept } else { NewDatabase::Refuse };
        let opened = runtime
            .block_on(open::open(config, new_database, open::Unreachable::Fail))
            .map_err(Failure::from)?;
        for (table, key) in rows {
            let refreshed = runtime.block_on(opened.tier.refresh(table, key.clone()));
            refreshed.map_err(|problem| problem.detail)?;
        }
        opened.tier.close().map_err(Failure::from)?;
    }
    Ok(())
}

/// A key as the admin listener reads it.
fn key_text(key: &Value) -> String {
    match key {
        Value::Bigint(number) => number.to_string(),
        Value::Uuid(id) => id.to_string(),
        Value::Text(text) => text.to_string(),
        other => format!("{other:?}"),
    }
}

/// How long the drain may take to end once everything is in the database, or it has failed.
const STOP: Duration = Duration::from_secs(10);

/// How often progress is shown.
const TICK: Duration = Duration::from_millis(200);

pub fn drain_here(config: &Config, new_database: bool) -> Result<ExitCode, Failure> {
    let new_database = if new_database { NewDatabase::Accept } else { NewDatabase::Refuse };
    let runtime = runtime()?;
    let opened =
        runtime.block_on(open::open(config, new_database, open::Unreachable::Fail)).map_err(Failure::from)?;
    let settings = Settings {
        pace_rows_per_s: config.drain.pace_rows_per_s,
        letters: Some(config.memory.data_dir.clone()),
        ..Settings::default()
    };
    let tier = Arc::new(opened.tier);
    let conditions = Conditions::new(tier.clone(), Notices::default());
    tier.start_drain(settings).map_err(Failure::from)?;
    let mut progress = Progress::new("drain", None);
    let ended = runtime.block_on(async {
        let mut finished = std::pin::pin!(tier.finish_drain());
        loop {
            tokio::select! {
                ended = &mut finished => return ended,
                () = tokio::time::sleep(TICK) => {
                    progress.set(tier.drained_rows());
                    conditions.look().await;
                }
            }
        }
    });
    runtime.block_on(tier.stop_drain(STOP, false));
    progress.finish(tier.drained_rows());
    tier.close().map_err(Failure::from)?;
    ended.map_err(|problem| problem.detail)?;
    match tier.dead_letters() {
        0 => Ok(ExitCode::SUCCESS),
        dead => {
            say!("{dead} rows could not be written; they are in the table forebay_dead_letter");
            Ok(ExitCode::FAILURE)
        }
    }
}
