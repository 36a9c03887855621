//! `forebay_database`: distinguishes this database from others, for a memory tier that remembers its
//! database.

use super::Postgres;
use super::making::make;
use super::own_schema;
use super::table::text;
use crate::Error;

/// Created at the first request; it has one row.
const IDENTITY: &str = "
CREATE TABLE IF NOT EXISTS _forebay.forebay_database (id text PRIMARY KEY);
INSERT INTO _forebay.forebay_database
  SELECT md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text)
  WHERE NOT EXISTS (SELECT FROM _forebay.forebay_database)";

impl Postgres {
    pub(crate) async fn identity(&self) -> Result<String, Error> {
        self.job(|bulk| async move {
            let session = &mut *bulk.sessions.lease().await?;
            let schema = own_schema::creation(&session.own);
            make(session, &format!("{schema};{IDENTITY}")).await?;
            let rows = session.run("SELECT id FROM _forebay.forebay_database", &[]).await?;
            Ok(rows.values.first().map(|id| text(id).to_owned()).unwrap_or_default())
        })
        .await
    }
}
