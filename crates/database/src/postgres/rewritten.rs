//! Tables that were rewritten after a snapshot was taken (TRUNCATE, ALTER TABLE): the snapshot shows such a
//! table as empty, or without the rows of a partition.

use super::session::Session;
use super::sql::quoted;
use crate::{Error, Kind};
use forebay_value::{Schema, Value};

/// A table's file, and those of its partitions and heirs, as the snapshot has them and as they are. The
/// partitions are those of both.
const IS_SAME: &str = "WITH RECURSIVE part(oid) AS ( \
       SELECT to_regclass($1)::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN part p ON i.inhparent = p.oid) \
     SELECT to_regclass($1) IS NOT NULL AND NOT EXISTS ( \
       SELECT FROM (SELECT oid FROM part UNION SELECT relid FROM pg_partition_tree(to_regclass($1))) p \
       LEFT JOIN pg_class c ON c.oid = p.oid WHERE c.oid IS NULL \
         OR c.relkind = 'r' AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)::oid)";

/// Fails if the open transaction's snapshot is older than the table or its file: rows that it lacks must not
/// count as deleted. What the transaction has read of the table cannot be rewritten before it ends.
pub(super) async fn not_rewritten(session: &mut Session, schema: &Schema) -> Result<(), Error> {
    let same = session.run(IS_SAME, &[Value::Text(quoted(&schema.name).into())]).await?;
    match same.values[..] {
        [Value::Bool(true)] => Ok(()),
        _ => Err(Error::new(Kind::Busy, format!("table {} was rewritten meanwhile", schema.name))),
    }
}
