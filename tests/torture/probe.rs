//! Causes situations that are rare in a round, once everything is drained and the network works.
//!
//! [`old_tag`] moves a row from one cached answer to another. [`duel`] increments a row in memory and
//! changes it by SQL during reads, so that the follower reads it between an own change and its position.

use crate::evidence;
use crate::model::{History, Outcome};
use crate::schema::{Shape, VIEWS};
use forebay_tests::{Archive, Server};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const DUEL: Duration = Duration::from_millis(400);

/// Changes a row's number of views by SQL, and changes it back: cached counts must be dropped by the old
/// values and by the new ones. The error says which was not.
pub fn old_tag(server: &Server, archive: &Archive) -> Result<(), String> {
    let some = format!("SELECT id::text, views FROM things WHERE views BETWEEN 0 AND {} LIMIT 1", VIEWS - 1);
    let Some(row) = archive.rows(&some).pop() else { return Ok(()) };
    let [Some(id), Some(views)] = &row[..] else { panic!("{some}: {row:?}") };
    let mut client = server.client();
    // Larger than every number that is queried.
    for new in ["1000000", views] {
        client.get(&format!("/with/{views}")).expect(200);
        archive.rows(&format!("UPDATE things SET views = {new} WHERE id::text = '{id}'"));
        let outdated = evidence::outdated(server, archive);
        if !outdated.is_empty() {
            return Err(format!("{id} had {views} views, now {new}, and kept is {outdated:#?}"));
        }
    }
    Ok(())
}

/// Writes by HTTP and by SQL and reads of one row for a while, recorded in the history.
pub fn duel(server: &Server, archive: &Archive, shape: &Shape, history: &History) {
    let key = &shape.pinned()[0];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::Relaxed) {
                history.sends(key, "views", 1);
                let body = json!({ "by": 1 }).to_string();
                let answer = client.post_json(&format!("/things/{key}/views"), &body);
                let is_done = answer.status == 200;
                history.count(
                    key,
                    "views",
                    1,
                    if is_done { Outcome::Acknowledged } else { Outcome::Unknown },
                );
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::Relaxed) {
                let acknowledged = history.acknowledged(key);
                let answer = client.get(&format!("/things/{key}"));
                if answer.status == 200 {
                    let views = answer.json()["views"].as_i64();
                    history.sum_shown(key, acknowledged, views.expect("views are a number"));
                }
            }
        });
        let until = std::time::Instant::now() + DUEL;
        while std::time::Instant::now() < until {
            archive.rows(&format!("UPDATE things SET stock = stock + 1 WHERE id::text = '{key}'"));
            history.count(key, "stock", 1, Outcome::Acknowledged);
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
