//! `forebay unfollow`: removes what following has created in the database, or everything that is ours.

use crate::admin_client::AdminClient;
use crate::cli::Unfollow;
use crate::commands::drain::drain_here;
use crate::failure::Failure;
use crate::start::{load_config, runtime};
use forebay_database::{Options, Store};
use forebay_terminal::answer;
use std::process::ExitCode;

pub fn run(args: &Unfollow) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    if AdminClient::find(&config.memory).is_some() {
        return Err("a server runs on the data folder and would make it all again; stop it first".into());
    }
    if args.all && drain_here(&config, false)? != ExitCode::SUCCESS {
        return Err("not everything is drained, nothing was removed".into());
    }
    let store = Store::open(&config.database.url, Options::default()).map_err(Failure::from)?;
    let removed = runtime()?.block_on(async {
        match args.all {
            true => store.remove_all().await,
            false => store.unfollow().await,
        }
    });
    let removed = removed.map_err(Failure::from)?;
    match removed.as_slice() {
        [] => answer!("there is nothing to remove"),
        removed => removed.iter().for_each(|what| answer!("removed: {what}")),
    }
    Ok(ExitCode::SUCCESS)
}
