//! `forebay agent`: its arguments.

use clap::Args;

#[derive(Debug, Args)]
pub struct Agent {
    /// Where controllers connect: HOST:PORT, or :PORT for every address of this machine.
    #[arg(long, value_name = "ADDRESS", default_value = ":7070")]
    pub listen: String,
    /// What controllers must know, too; better in the environment, as FOREBAY_AGENT_TOKEN.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A process of this machine that `forebay load --monitor agent://…` is shown: the server's, by its
    /// number.
    #[arg(long, value_name = "PID")]
    pub watch: Option<u32>,
    /// Where the agent keeps its own files of every run.
    #[arg(long, value_name = "DIR", default_value = "forebay-agent")]
    pub folder: String,
}
