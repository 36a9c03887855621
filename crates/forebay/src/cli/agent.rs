//! `forebay agent`: its arguments.

use clap::Args;

#[derive(Debug, Args)]
pub struct Agent {
    /// Where controllers connect: HOST:PORT, or :PORT for every address of this machine.
    #[arg(long, value_name = "ADDRESS", default_value = ":7070")]
    pub listen: String,
    /// The token that controllers must present; better in the environment, as FOREBAY_AGENT_TOKEN.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The process that `forebay load --monitor agent://…` monitors on this machine: the PID of the server.
    #[arg(long, value_name = "PID")]
    pub watch: Option<u32>,
    /// Where the agent keeps its own files of every run.
    #[arg(long, value_name = "DIR", default_value = "forebay-agent")]
    pub folder: String,
}
