//! Several servers on one tier, and drainers beside them.

use super::Fixture;
use super::writers::Writers;
use forebay_topology::{Flavour, Topology};

const SOME: usize = 300;

#[test]
fn a_server_is_killed_and_another_goes_on() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let first = fixture.start("a", "sync").start();
    let second = fixture.start("b", "sync").start();
    first.wait_healthy();
    second.wait_healthy();
    let writers = Writers::start(&[first.address, second.address], 2);
    writers.wait_for_more(SOME);
    first.kill();
    // The server's leases expire, and the other one drains its shards.
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&second, &told);
}

#[test]
fn drainers_of_their_own_take_over_from_each_other() {
    let fixture = Fixture::new(Topology::Single, Flavour::Valkey);
    let start = fixture.start("a", "sync");
    let server = start.clone().set("drain.paused=true").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    for _ in 0..3 {
        writers.wait_for_more(SOME);
        // Both try to drain the same shards; the leases decide.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let output = start.run("drain", &[]);
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                });
            }
        });
    }
    let told = writers.stop();
    assert!(told.count() >= 3 * SOME);
    fixture.assert_stored(&server, &told);
}
