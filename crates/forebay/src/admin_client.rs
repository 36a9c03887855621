//! A command's connection to a running server: the admin listener, whose address is in the data folder.

use crate::failure::Failure;
use forebay_config::model::{Memory, Tier};
use forebay_server::ADMIN_FILE;
use serde_json::Value;
use std::time::Duration;

/// A client of a server's admin listener.
pub struct AdminClient {
    base: String,
    agent: ureq::Agent,
}

impl AdminClient {
    /// The server that runs on the data folder of an embedded tier, if there is one. `None` for a tier on
    /// Redis or Valkey, which commands open themselves.
    pub fn find(memory: &Memory) -> Option<AdminClient> {
        if memory.tier == Tier::Embedded { AdminClient::running(memory) } else { None }
    }

    /// The server of this machine that runs on the data folder, whatever its tier.
    pub fn running(memory: &Memory) -> Option<AdminClient> {
        let address = std::fs::read_to_string(memory.data_dir.join(ADMIN_FILE)).ok()?;
        let client = AdminClient::at(address.trim());
        // A killed server leaves its address behind. Nothing may answer there, or another program may.
        client.get("/jobs").is_ok_and(|jobs| jobs.get("jobs").is_some()).then_some(client)
    }

    /// The admin listener at this address.
    pub fn at(address: &str) -> AdminClient {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(2)))
            .proxy(None)
            .build();
        AdminClient { base: format!("http://{address}"), agent: config.into() }
    }

    /// GET: the JSON answer, or the text of a problem detail.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        read(self.agent.get(format!("{}{path}", self.base)).call())
    }

    /// GET: the status and the JSON answer, whatever the status.
    pub fn ask(&self, path: &str) -> Result<(u16, Value), Failure> {
        parse(self.agent.get(format!("{}{path}", self.base)).call())
    }

    /// POST with query parameters and no body: the JSON answer, or the text of a problem detail.
    pub fn post(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        read(self.agent.post(format!("{}{path}", self.base)).query_pairs(query.iter().copied()).send_empty())
    }
}

fn parse(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<(u16, Value), Failure> {
    let mut answer = answer.map_err(|error| format!("the running server does not answer: {error}"))?;
    let status = answer.status().as_u16();
    let value = answer.body_mut().read_json();
    let value = value.map_err(|error| format!("the running server answers oddly: {error}"))?;
    Ok((status, value))
}

fn read(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Value, Failure> {
    let (status, value) = parse(answer)?;
    if (200..300).contains(&status) {
        Ok(value)
    } else {
        Err(value["detail"].as_str().unwrap_or("the running server refused").into())
    }
}
