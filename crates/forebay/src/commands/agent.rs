//! `forebay agent`: sends load for `forebay load --agents`, from this machine.

use crate::cli::agent::Agent as Args;
use crate::failure::{ARGUMENTS, Failure};
use forebay_load::agent::Agent;
use forebay_load::report::Kind;
use forebay_terminal::{answer, say};
use std::path::Path;
use std::process::ExitCode;

/// The environment variable of the token. Other users of a machine can see a token in the
/// arguments.
const TOKEN: &str = "FOREBAY_AGENT_TOKEN";

/// The token from the arguments, or from the environment; empty when there is none.
pub fn token(typed: Option<&str>) -> String {
    typed.map_or_else(|| std::env::var(TOKEN).unwrap_or_default(), str::to_owned)
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let token = token(args.token.as_deref());
    let agent = match Agent::bind(&args.listen, &token, Path::new(&args.folder)) {
        Ok(agent) => agent,
        Err(error) if error.kind() == Kind::Argument => {
            say!("forebay: {error}");
            return Ok(ExitCode::from(ARGUMENTS));
        }
        Err(error) => return Err(Failure::from(error)),
    };
    let agent = args.watch.into_iter().fold(agent, Agent::watching);
    answer!("agent on {}", agent.address().map_err(Failure::from)?);
    agent.serve()
}
