//! `forebay load`: its arguments. The load tester interprets them.

use clap::Args;
use forebay_load::LoadFlags;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Load {
    /// The run itself.
    #[command(flatten)]
    pub run: LoadFlags,
    /// Let these agents (forebay agent) send the load, all from the same moment: HOST:PORT, several separated
    /// by commas, or a file with one per line.
    #[arg(long, value_name = "ADDRESSES|FILE")]
    pub agents: Option<String>,
    /// The token with which the agents were started; better in the environment, as FOREBAY_AGENT_TOKEN.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Monitor a server, for the verdict: http://HOST:PORT of its admin listener, or agent://HOST:PORT of an
    /// agent beside any other server. May be repeated.
    #[arg(long, value_name = "URL")]
    pub monitor: Vec<String>,
    /// Write the results as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
    /// Write the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<String>,
    /// Keep the results in this folder, beside those of earlier runs; forebay runs shows them.
    #[arg(long, value_name = "FOLDER")]
    pub history: Option<PathBuf>,
    /// A label of the run, for tables of many runs, such as size=small. May be repeated; --profile sets the
    /// label profile.
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,
    /// Compare with the JSON of an earlier run.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<String>,
    /// What must hold, such as 'p99<10ms' or 'errors==0'; exit code 3 when it does not. May be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub threshold: Vec<String>,
    /// Search for the highest rate at which this holds, such as 'p99<10ms'; -d is the length of a step.
    #[arg(long, value_name = "CONDITION")]
    pub find_max: Option<String>,
}
