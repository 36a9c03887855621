//! What an endpoint needs to accept requests, in every mode: its parameters, and the places of waiting
//! requests.

use super::params::Params;
use super::waiting_requests::WaitingRequests;
use crate::problem::Problem;
use forebay_value::Schema;
use std::sync::Arc;

/// What an endpoint needs to accept requests.
pub struct Intake {
    /// Its parameters.
    pub params: Params,
    /// The largest decoded size of a body with a content coding, in bytes.
    pub body_bytes_max: usize,
    /// The requests that wait for this endpoint.
    pub waiting: Arc<WaitingRequests>,
    /// The columns that it names, by table.
    pub named: Vec<(Arc<Schema>, Vec<usize>)>,
}

impl Intake {
    /// Whether the tables have the columns that the endpoint names.
    ///
    /// # Errors
    /// 503 that names the column that is gone.
    #[inline(always)]
    pub fn check_columns(&self) -> Result<(), Problem> {
        match self.named.iter().any(|(schema, _)| schema.presence.hides()) {
            true => self.lacking(),
            false => Ok(()),
        }
    }

    #[cold]
    fn lacking(&self) -> Result<(), Problem> {
        for (schema, columns) in &self.named {
            if let Some(column) = columns.iter().find(|column| schema.presence.is_hidden(**column)) {
                let (table, column) = (&schema.name, &schema.columns[*column].name);
                return Err(Problem::unavailable(format!("table {table} has no column {column} any more")));
            }
        }
        Ok(())
    }
}
