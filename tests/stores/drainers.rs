//! Drainers that are stopped or killed in the middle of a batch, and others that take over.

use super::Fixture;
use super::writers::Writers;
use forebay_tests::{Cable, JumpingClock, PATIENCE, Postgres, Server, Stores, wait_for};
use forebay_topology::{Flavour, Topology};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SOME: usize = 200;
/// Each kill takes as long as a dead drainer's lease.
const KILLS: usize = 4;
/// Whether a batch has begun depends on the moment, so more rounds than kills are allowed.
const ROUNDS_MAX: usize = 20;
const HOUR_S: i64 = 3_600;

/// Waits until a drainer works on every shard.
#[track_caller]
fn wait_for_all_shards(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while server.drain_state()["shards_held"] != server.drain_state()["shards"] {
        assert!(Instant::now() < deadline, "{}", server.drain_state());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a transaction of the drainer is open: then the other drainer waits for it, and none need be
/// fenced.
fn is_in_transaction(postgres: &Postgres) -> bool {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forebay' AND state LIKE 'idle in transaction%'";
    postgres.superuser().query_one(open, &[]).expect("a count").get::<_, i64>(0) > 0
}

/// How a drainer loses its leases while a batch of it is under way.
enum Loss {
    /// The drainer is stopped for longer than its leases last.
    StandsStill,
    /// The clock of the tier jumps ahead: the leases have ended at once, and their holder does not
    /// know.
    ClockJumps(JumpingClock),
}

/// A drainer is stopped between reading its batch and writing it, for longer than its lease; another takes
/// over its shards and writes the same rows. When the first continues, only the position in PostgreSQL
/// fences it.
#[test]
fn one_that_stood_still_in_the_middle_of_a_batch_is_fenced() {
    let postgres = Postgres::start(&[]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    fence_one(&postgres, &fixture, Loss::StandsStill);
}

/// The same when the clock of the tier jumps ahead by an hour, again and again. At last the clock goes
/// back by a day, and the leases of a dead drainer still end.
#[test]
fn one_whose_leases_end_by_a_clock_that_jumps_is_fenced() {
    let postgres = Postgres::start(&[]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Valkey, || Stores::postgres_at(&postgres.server_url()));
    let clock = JumpingClock::new(&fixture.folder.path().join("clock"));
    clock.give_to(&fixture.memory, "node-1");
    fence_one(&postgres, &fixture, Loss::ClockJumps(clock));
}

fn fence_one(postgres: &Postgres, fixture: &Fixture, loss: Loss) {
    let cable = Cable::to(postgres.port());
    let direct = fixture.stores.database_url(&fixture.folder);
    let through = direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", cable.address.port()));
    assert_ne!(direct, through);
    let idle = fixture.start("b", "sync").set("drain.paused=true").start();
    let slow = fixture.start("a", "sync").database(&through).start();
    idle.wait_healthy();
    slow.wait_healthy();
    let writers = Writers::start(&[idle.address], 4);
    writers.wait_for_more(SOME);
    let mut fenced = 0;
    for round in 1..=ROUNDS_MAX {
        wait_for_all_shards(&slow);
        cable.hold();
        wait_for("a batch is on its way", || (cable.held_bytes() > 0).then_some(()));
        match &loss {
            Loss::StandsStill => slow.signal(Signal::STOP),
            Loss::ClockJumps(clock) => clock.jump_of(fixture.memory.nodes()[0].port, round as i64 * HOUR_S),
        }
        let has_begun = is_in_transaction(postgres);
        idle.pause_drain(false);
        let drained = || idle.drain_state()["rows_total"].as_u64().unwrap_or(0);
        let before = drained();
        wait_for_all_shards(&idle);
        wait_for("the other has taken over", || (drained() > before + 20).then_some(()));
        if matches!(loss, Loss::StandsStill) {
            slow.signal(Signal::CONT);
        }
        cable.release();
        if !has_begun {
            // The failed compare-and-set of a position that has moved, or of a first batch that the other
            // drainer has written. There is none when no batch was held, or when the other drainer has
            // written nothing of that shard.
            let said = || cable.answered(b"UPDATE 0\0") || cable.answered(b"INSERT 0 0\0");
            wait_for("it is fenced or has given up its shards", || {
                (said() || slow.drain_state()["shards_held"] == 0).then_some(())
            });
            fenced += usize::from(said());
        }
        idle.pause_drain(true);
        writers.wait_for_more(SOME);
        if fenced == 2 {
            break;
        }
    }
    assert!(fenced > 0, "it was never stopped between reading a batch and writing it");
    let told = writers.stop();
    if let Loss::ClockJumps(clock) = &loss {
        wait_for_all_shards(&slow);
        slow.kill();
        clock.jump_of(fixture.memory.nodes()[0].port, -24 * HOUR_S);
        idle.pause_drain(false);
        wait_for_all_shards(&idle);
    }
    fixture.assert_stored(&idle, &told);
}

/// Processes of `forebay drain`, each killed in the middle of a batch while writes go on. A part of the
/// batch, or all of it, reaches PostgreSQL after its sender is dead; the process that takes over finds out
/// which. No row is lost or written twice.
#[test]
fn drain_processes_that_are_killed_are_taken_over() {
    let postgres = Postgres::start(&[]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    let cable = Cable::to(postgres.port());
    let direct = fixture.stores.database_url(&fixture.folder);
    let through = direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", cable.address.port()));
    let server = fixture.start("a", "sync").set("drain.paused=true").start();
    server.wait_healthy();
    let archive = fixture.stores.archive(&fixture.folder);
    let stored = || archive.number("SELECT (SELECT count(*) FROM plain) + (SELECT count(*) FROM tokens)");
    let writers = Writers::start(&[server.address], 4);
    let drainer = fixture.start("c", "sync").database(&through);
    // Drained slowly, so that the kill hits the middle of a batch.
    let slow = drainer.clone().set("drain.pace=100");
    let mut killed = 0;
    for _ in 0..ROUNDS_MAX {
        writers.wait_for_more(SOME);
        let before = stored();
        let mut process = slow.spawn("drain");
        let mut has_ended = || process.try_wait().expect("a child can be waited for").is_some();
        // The dead process's lease must end first.
        wait_for("it has taken over", || (stored() > before || has_ended()).then_some(()));
        cable.hold();
        wait_for("a batch is on its way", || (cable.held_bytes() > 0 || has_ended()).then_some(()));
        killed += usize::from(!has_ended());
        // The error means that the process has already ended.
        let _ = process.kill();
        process.wait().expect("a child can be waited for");
        cable.release();
        if killed == KILLS {
            break;
        }
    }
    assert!(killed > 1, "they ended by themselves while writes went on");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    let last = drainer.run("drain", &[]);
    assert!(last.status.success(), "{last:?}");
    assert!(stored() as usize >= told.count(), "{} of {} are stored", stored(), told.count());
    let check = drainer.run("verify", &[]);
    assert!(check.status.success(), "{check:?}");
    fixture.assert_stored(&server, &told);
}
