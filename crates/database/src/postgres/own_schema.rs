//! The schema of our own tables and functions.
//!
//! A schema tool drops tables that it does not know, in the schemas that it manages, and two applications in
//! two schemas of one database are strangers to each other: each has a schema of ours, in which no other
//! needs rights. It is `_forebay` for an application whose tables are in `public`, and `_forebay_NAME` for
//! one in the schema NAME (the first of the search path); the URL may say another one.
//!
//! Our statements say `_forebay`: a session puts the name in ([`named`]) where it is another one. What must
//! stay true: no statement of ours finds one of our tables through the search path.

use crate::limits::{CLAIM_MS, FOLLOW_LOCK_PAUSE_MS, FOLLOW_LOCK_TRIES};
use std::borrow::Cow;
use std::sync::Arc;
use tokio_postgres::Client;

/// The schema's name in our statements.
pub(super) const OWN: &str = "_forebay";

/// With it begins each of our tables, as statements name it.
const TABLE: &str = "_forebay.forebay_";

/// The schema's name, which needs no quotes.
const ASK: &str = "SELECT CASE WHEN here IS NULL OR here = 'public' THEN '_forebay' \
     WHEN here ~ '^_forebay(_[a-z0-9_]+)?$' THEN here \
     WHEN here ~ '^[a-z0-9_]{1,54}$' THEN '_forebay_' || here ELSE '_forebay_' || md5(here) END FROM current_schema() AS here";

/// Asks for the schema's name, on a new connection.
pub(super) async fn ask(client: &Client) -> Result<Arc<str>, tokio_postgres::Error> {
    let found = client.simple_query(ASK).await?;
    let name = found.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(name.unwrap_or(OWN).into())
}

/// A statement of ours for the schema `own`.
pub(super) fn named<'a>(own: &str, sql: &'a str) -> Cow<'a, str> {
    match own == OWN || !sql.contains(TABLE) {
        true => Cow::Borrowed(sql),
        false => Cow::Owned(sql.replace(TABLE, &format!("{own}.forebay_"))),
    }
}

/// A server of an earlier version that claims no table gave a sign of life every 5 s; a stopped one is silent
/// before the last try to create them.
const SILENCE_MS: u64 = 6_500;
const _: () = assert!(SILENCE_MS < FOLLOW_LOCK_TRIES as u64 * FOLLOW_LOCK_PAUSE_MS);

/// The statements that create the schema. Earlier versions had our tables beside the application's: they are
/// moved, unless a server of such a version is writing.
pub(super) fn creation(own: &str) -> String {
    let moved = DRAIN_TABLES.map(|table| format!("'{table}'")).join(", ");
    format!(
        "
DO $$ DECLARE name text; home text := current_schema(); running text; BEGIN
  IF to_regnamespace('{own}') IS NULL THEN
    IF NOT has_database_privilege(current_database(), 'CREATE') THEN
      RAISE EXCEPTION 'the tables of Forebay are in the schema {own}, which this role may not create; have it created: CREATE SCHEMA {own} AUTHORIZATION %',
        quote_ident(current_user) USING ERRCODE = '42501';
    END IF;
    CREATE SCHEMA {own};
  END IF;
  IF NOT has_schema_privilege('{own}', 'USAGE') OR
    to_regclass('{own}.forebay_position') IS NULL AND NOT has_schema_privilege('{own}', 'CREATE')
  THEN
    RAISE EXCEPTION 'the tables of Forebay are in the schema {own}, where this role may do nothing; have it allowed: GRANT USAGE, CREATE ON SCHEMA {own} TO %',
      quote_ident(current_user) USING ERRCODE = '42501';
  END IF;
  IF to_regclass('{own}.forebay_position') IS NULL AND to_regclass(format('%I.forebay_position', home)) IS NOT NULL THEN
    EXECUTE format($q$SELECT min(coalesce(nullif(to_jsonb(p) ->> 'server', ''), 'log ' || log)) FROM %I.forebay_position p
      WHERE to_jsonb(p) ->> 'tables' ~ '^[^-]' AND updated_at > clock_timestamp() - interval '{CLAIM_MS} milliseconds'
         OR to_jsonb(p) ->> 'tables' = '' AND updated_at > clock_timestamp() - interval '{SILENCE_MS} milliseconds'$q$, home) INTO running;
    IF running IS NOT NULL THEN
      RAISE EXCEPTION 'an earlier version of Forebay is running, or has died less than {} s ago (%): stop it first, the tables of Forebay are then moved to the schema {own}',
        running USING ERRCODE = '55006';
    END IF;
  END IF;
  FOREACH name IN ARRAY ARRAY[{moved}] LOOP
    IF to_regclass('{own}.' || name) IS NULL AND to_regclass(format('%I.%I', home, name)) IS NOT NULL THEN
      EXECUTE format('ALTER TABLE %I.%I SET SCHEMA {own}', home, name);
    END IF;
  END LOOP;
END $$",
        CLAIM_MS / 1_000
    )
}

/// The drain's tables; those that hold what would be lost with them come first.
pub(super) const DRAIN_TABLES: [&str; 5] =
    ["forebay_dead_letter", "forebay_held", "forebay_position", "forebay_log", "forebay_database"];
