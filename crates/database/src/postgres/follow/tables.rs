//! The tables of following in the database, beside the triggers: the reported changes, and the followers.

use crate::Error;
use crate::postgres::session::Session;
use crate::postgres::{making, own_schema};

/// One row for each key that changed; without a key: any row of the table may have changed. `xid` is the
/// transaction that made the change, `relation` the table's oid, `old` an object of the previous values of
/// some columns, as text.
const CHANGES: &str = "
CREATE TABLE IF NOT EXISTS _forebay.forebay_change (
  xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  relation bigint NOT NULL,
  key text,
  old jsonb,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)";

/// One row for each log whose server follows. `seen` is a snapshot: every change that is visible in it was
/// read. `tables` is an array of the oids of the tables that it follows.
const FOLLOWERS: &str = "
CREATE TABLE IF NOT EXISTS _forebay.forebay_follower (
  log text PRIMARY KEY,
  seen text NOT NULL,
  updated_at timestamptz NOT NULL,
  tables jsonb NOT NULL
)";

/// Creates the tables.
pub(super) async fn make(session: &mut Session) -> Result<(), Error> {
    let there = "SELECT to_regclass('_forebay.forebay_change') IS NOT NULL AND to_regclass('_forebay.forebay_follower') IS NOT NULL";
    if session.run(there, &[]).await?.values != [forebay_value::Value::Bool(true)] {
        let schema = own_schema::creation(&session.own);
        making::make(session, &format!("{schema};{CHANGES};{FOLLOWERS}")).await?;
    }
    Ok(())
}
