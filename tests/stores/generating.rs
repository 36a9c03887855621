//! A table that was filled by `generate` is read as fast as one that was filled long ago.

use crate::beside::Beside;
use forebay_tests::{Postgres, Stores, wait_for};

#[test]
fn a_generated_table_is_vacuumed_and_counted() {
    // A separate server: a snapshot held by another test would keep pages from becoming all-visible.
    let postgres = Postgres::start(&[]);
    let beside = Beside::on(
        Stores::postgres_at(&postgres.server_url()),
        "CREATE TABLE account (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text NOT NULL)",
        "[table.account]\nhot = false\n\n[[endpoint]]\nroute = \"POST /generate\"\n\
         params = { size = \"bigint\" }\ngenerate = \"account\"\ncount = \"$size\"\n\
         values = { id = \"uuid()\", name = \"a name\" }\n",
    );
    let server = beside.start().start();
    server.client().post("/generate?size=20000").expect(202);
    wait_for("the job has ended", || {
        (!server.admin("GET", "/jobs").text().contains("running")).then_some(())
    });
    assert_eq!(beside.text("SELECT count(*) FROM account"), "20000");
    // All pages are marked all-visible.
    let known = "SELECT reltuples::bigint || ' ' || (relallvisible = relpages) FROM pg_class WHERE relname = 'account'";
    assert_eq!(beside.text(known), "20000 true");
}
