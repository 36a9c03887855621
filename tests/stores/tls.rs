//! TLS and separate users on real servers: `rediss://`, an authority named by the URL, an ACL that
//! permits only what is needed.

use super::Fixture;
use super::failover::wait_replaced;
use super::refused::assert_refused;
use super::writers::Writers;
use forebay_tests::{Certificates, Folder, Stores};
use forebay_topology::{Flavour, Spec, Tls, Topology};

/// The permissions that docs/stores.md lists for Forebay's user.
const USER: &str = "user app on >s3cret ~fb:* resetchannels +@all -@admin -@dangerous +info +config|get";

/// Servers with TLS and a user `app`; the folder holds the certificates.
fn encrypted(topology: Topology) -> (Fixture, Folder, Certificates) {
    let folder = Folder::new();
    let made = Certificates::new(folder.path());
    let (certificate, key, ca) = (made.certificate.clone(), made.key.clone(), made.ca.clone());
    // Valkey's server for tests is built without TLS.
    let mut spec = Spec::new(topology).on(Flavour::Redis).directive(USER);
    spec.tls = Some(Tls { certificate, key, ca });
    (Fixture::up(spec, Stores::postgres), folder, made)
}

#[track_caller]
fn writes_arrive(topology: Topology) {
    let (fixture, _folder, _) = encrypted(topology);
    let url = fixture.memory.url().replace("://", "://app:s3cret@");
    assert!(url.starts_with("rediss"), "{url}");
    let server = fixture.start("a", "sync").memory(&url).start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(500);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

#[test]
fn one_server_with_tls_and_a_user() {
    writes_arrive(Topology::Single);
}

/// Sentinels with TLS too, and a failover.
#[test]
fn sentinels_with_tls_and_a_user() {
    let (fixture, _folder, _) = encrypted(Topology::Sentinel { replicas: 1 });
    let url = fixture.memory.url().replace("://", "://app:s3cret@");
    assert!(url.starts_with("rediss-sentinel"), "{url}");
    let server = fixture.start("a", "replicated(1)").memory(&url).start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(200);
    fixture.memory.kill("node-1").expect("a node can be killed");
    // Without a replica the promoted node accepts no writes.
    wait_replaced(&fixture, "node-1");
    fixture.memory.start("node-1").expect("a node can be started");
    writers.wait_for_more(200);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

#[test]
fn a_cluster_with_tls_and_a_user() {
    writes_arrive(Topology::Cluster { masters: 3, replicas: 0 });
}

#[test]
fn what_is_wrong_with_tls_or_the_user_is_said() {
    let (fixture, _folder, certificates) = encrypted(Topology::Single);
    let node = &fixture.memory.nodes()[0];
    let (plain, tls) = (node.port, node.tls_port.expect("it has TLS"));
    let (ca, other) = (certificates.ca.display(), certificates.other_ca.display());
    for (url, says) in [
        (format!("rediss://127.0.0.1:{tls}?ca={other}"), "certificate"),
        (format!("rediss://127.0.0.1:{tls}"), "certificate"),
        (format!("rediss://127.0.0.1:{tls}?ca=/no/such/file"), "/no/such/file"),
        (format!("rediss://127.0.0.2:{tls}?ca={ca}"), "127.0.0.2"),
        (format!("rediss://127.0.0.1:{plain}?ca={ca}"), "TLS"),
        (format!("redis://127.0.0.1:{tls}"), "TLS"),
        (format!("redis://127.0.0.1:{tls}?ca={ca}"), "rediss"),
        (format!("rediss://app:guessed@127.0.0.1:{tls}?ca={ca}"), "refuses the user \"app\""),
        (format!("rediss://nobody:guessed@127.0.0.1:{tls}?ca={ca}"), "refuses the user \"nobody\""),
    ] {
        let said = assert_refused(&fixture.start("refused", "sync").memory(&url), says);
        assert!(!said.contains("guessed"), "{said}");
    }
}
