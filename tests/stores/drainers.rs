//! Two drainers that both believe they own a shard.

use super::Ground;
use super::writers::Writers;
use forebay_tests::{Cable, Postgres, Stores, wait_for};
use forebay_topology::{Flavour, Topology};
use rustix::process::Signal;

const SOME: usize = 300;

/// One of them stands still between reading its batch and writing it, for longer than its lease lasts; another takes over its shards and writes
/// the same rows. When the first goes on, all that tells it so is the position in PostgreSQL.
#[test]
fn one_that_stood_still_in_the_middle_of_a_batch_is_fenced() {
    let postgres = Postgres::start(&[]);
    let ground = Ground::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    let cable = Cable::to(postgres.port());
    let direct = ground.stores.record_url(&ground.folder);
    let through = direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", cable.address.port()));
    assert_ne!(direct, through);
    let idle = ground.start("b", "sync").set("drain.paused=true").start();
    let slow = ground.start("a", "sync").record(&through).start();
    idle.wait_healthy();
    slow.wait_healthy();
    let writers = Writers::start(&[idle.address], 4);
    writers.wait_for_more(SOME);
    for _ in 0..3 {
        wait_for("it drains", || (slow.drain_state()["shards_held"].as_u64() == Some(8)).then_some(()));
        cable.hold();
        wait_for("a batch is on its way", || (cable.held_bytes() > 0).then_some(()));
        slow.signal(Signal::STOP);
        idle.pause_drain(false);
        let drained = || idle.drain_state()["rows_total"].as_u64().unwrap_or(0);
        let before = drained();
        wait_for("the other has taken over", || {
            let state = idle.drain_state();
            (state["shards_held"].as_u64() == Some(8) && drained() > before + 50).then_some(())
        });
        slow.signal(Signal::CONT);
        cable.release();
        // The compare-and-set of a position that has moved.
        wait_for("it is fenced", || cable.answered(b"UPDATE 0\0").then_some(()));
        idle.pause_drain(true);
        writers.wait_for_more(SOME);
    }
    let told = writers.stop();
    ground.assert_stored(&idle, &told);
}
