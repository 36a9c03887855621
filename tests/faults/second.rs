//! Only one process may use a data folder.

use crate::{assert_readable, start, write_some};
use forebay_tests::Folder;

#[test]
fn the_second_process_says_who_is_there() {
    let folder = Folder::new();
    let mut first = start(&folder).start();
    let written = write_some(&mut first.client(), "first", 3);
    let Err(ended) = start(&folder).try_start() else { panic!("two servers on one data folder") };
    assert!(!ended.status.success() && !ended.output.contains("panicked"), "{ended:?}");
    assert!(
        ended.output.contains(&first.pid().to_string()),
        "process {} is not named: {ended:?}",
        first.pid()
    );
    // The first server is not affected.
    assert!(first.is_running());
    assert_readable(&mut first.client(), &written);
    write_some(&mut first.client(), "second", 3);
    // A killed server leaves nothing behind that blocks the next one.
    first.kill();
    let server = start(&folder).start();
    assert_readable(&mut server.client(), &written);
}
