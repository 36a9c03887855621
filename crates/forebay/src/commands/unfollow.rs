//! `forebay unfollow`: removes the triggers and tables that following has created in the database.

use crate::admin_client::AdminClient;
use crate::cli::Unfollow;
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
    let store = Store::open(&config.database.url, Options::default()).map_err(Failure::from)?;
    let removed = runtime()?.block_on(store.unfollow()).map_err(Failure::from)?;
    match removed.as_slice() {
        [] => answer!("no table is followed; nothing was removed"),
        removed => removed.iter().for_each(|what| answer!("removed: {what}")),
    }
    Ok(ExitCode::SUCCESS)
}
