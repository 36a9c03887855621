//! `forebay drain`: by the server that runs on the data folder, or by this process when none does; of a tier
//! on Redis or Valkey always by this process, beside all others.

use crate::admin_client::AdminClient;
use crate::cli::Drain;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::start::{load_config, runtime};
use forebay_config::Config;
use forebay_drain::{NewDatabase, Settings};
use forebay_server::open;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub fn run(args: &Drain) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    let drained = match AdminClient::find(&config.memory) {
        Some(server) => {
            let state = server.post("/drain/finish", &[]).map_err(Failure)?;
            println!("drained by the running server: {} rows since its start", state["rows_total"]);
            ExitCode::SUCCESS
        }
        None => drain_here(&config, args.new_database)?,
    };
    if args.replay { replay_letters(&config) } else { Ok(drained) }
}

/// Dead letters that are named one by one; of more, only their number is said.
const REFUSED_SHOWN: usize = 20;

fn replay_letters(config: &Config) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let (store, schemas) = runtime.block_on(open::database(config)).map_err(Failure::from)?;
    let progress = Arc::new(forebay_drain::Progress::default());
    let mut replayed = forebay_drain::Replayed::default();
    runtime.block_on(Progress::new("replay", None).watch(&progress, async {
        replayed = forebay_drain::replay(&store, &schemas, &progress).await?;
        Ok::<(), forebay_drain::Error>(())
    }))?;
    println!("{} dead letters were applied", replayed.applied);
    for (letter, reason) in replayed.refused.iter().take(REFUSED_SHOWN) {
        println!("letter {} ({} {} {}) stays: {reason}", letter.id, letter.op, letter.table, letter.row);
    }
    match replayed.refused.len() {
        0 => Ok(ExitCode::SUCCESS),
        refused => {
            eprintln!("{refused} dead letters were refused again; they are in the table forebay_dead_letter");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// How often progress is shown.
const TICK: Duration = Duration::from_millis(200);

fn drain_here(config: &Config, new_database: bool) -> Result<ExitCode, Failure> {
    let new_database = if new_database { NewDatabase::Accept } else { NewDatabase::Refuse };
    let runtime = runtime()?;
    let opened = runtime.block_on(open::open(config, new_database)).map_err(Failure::from)?;
    let settings = Settings {
        pace_rows_per_s: config.drain.pace_rows_per_s,
        // Decided when the log was opened; by now the two belong together.
        new_database: NewDatabase::Accept,
        ..Settings::default()
    };
    let tier = opened.tier;
    tier.start_drain(settings).map_err(Failure::from)?;
    let mut progress = Progress::new("drain", None);
    let ended = runtime.block_on(async {
        let mut finished = std::pin::pin!(tier.finish_drain());
        loop {
            tokio::select! {
                ended = &mut finished => return ended,
                () = tokio::time::sleep(TICK) => progress.set(tier.drained_rows()),
            }
        }
    });
    runtime.block_on(tier.stop_drain());
    progress.finish(tier.drained_rows());
    tier.close().map_err(Failure::from)?;
    ended.map_err(|problem| Failure(problem.detail))?;
    match tier.dead_letters() {
        0 => Ok(ExitCode::SUCCESS),
        dead => {
            eprintln!("{dead} rows could not be written; they are in the table forebay_dead_letter");
            Ok(ExitCode::FAILURE)
        }
    }
}
