//! A redirect counts its click, and its answer does not wait for the disk, however slow the disk is.

use forebay_tests::{Folder, SlowDisk, Start, binary, wait_for};

const CONFIG: &str = r#"
[table.links]
columns = { code = "text key", url = "text", clicks = "bigint" }

[[endpoint]]
route = "POST /links"
insert = "links"
values = { code = "$code", url = "$url", clicks = 0 }
reply = { status = 201 }

[[endpoint]]
route = "GET /links/{code}"
get = "links"

[[endpoint]]
route = "GET /{code}"
redirect = "links"
location = "url"
counter = "clicks"
"#;

#[test]
fn a_redirect_does_not_wait_for_a_click() {
    let folder = Folder::new();
    let config = folder.write("clicks.toml", CONFIG);
    let disk = SlowDisk::new(folder.path());
    let start = Start::new(binary(), &folder, &config);
    let server = disk.with_disk(start.clone()).start();
    server.wait_healthy();
    let mut client = server.client();
    client.post_json("/links", r#"{"code":"a","url":"https://example.com/"}"#).expect(201);
    disk.hold();
    // The first click waits for the disk, but no answer does: neither its own nor the later ones.
    for _ in 0..3 {
        let answer = client.get("/a");
        assert_eq!(
            (answer.status, answer.header("location")),
            (302, Some("https://example.com/")),
            "{answer:?}"
        );
    }
    wait_for("the clicks wait for the disk", || disk.has_waiting_sync().then_some(()));
    assert_eq!(client.get("/a").status, 302);
    disk.release();
    assert_eq!(client.get("/links/a").expect(200)["clicks"], 4);
    server.drain();
    assert_eq!(forebay_tests::Database::open(&folder.database()).number("SELECT clicks FROM links", []), 4);
}
