//! `[drain]`: the window.

use super::*;

fn window(text: &str) -> Option<DrainWindow> {
    load_text(&format!("[drain]\nwindow = '{text}'")).ok()?.drain.window
}

#[test]
fn a_window_is_two_times_of_day() {
    assert_eq!(window("22:00-05:30"), Some(DrainWindow { begins_min: 1320, ends_min: 330 }));
    assert_eq!(window("00:00 - 23:59"), Some(DrainWindow { begins_min: 0, ends_min: 1439 }));
    for wrong in
        ["", "22:00", "22-05", "24:00-01:00", "1:00-02:00", "01:60-02:00", "+1:00-02:00", "03:00-03:00"]
    {
        assert_eq!(window(wrong), None, "{wrong}");
    }
}

#[test]
fn a_window_is_refused_beside_writes_that_wait_for_the_database() {
    let table = "[table.t]\ncolumns = { id = 'bigint key' }\n";
    let put = "[[endpoint]]\nroute = 'PUT /t/{id}'\nupsert = 't'\n";
    let drain = "[drain]\nwindow = '22:00-05:30'\n";
    good(&format!("{drain}{table}{put}"));
    for waits in [
        format!("{drain}{table}durability = 'database'\n{put}"),
        format!("{drain}{table}{put}durability = 'database'\n"),
        format!("{drain}[memory]\ndurability = 'database'\n{table}{put}"),
    ] {
        let errors = load_text(&waits).unwrap_err().to_string();
        assert!(errors.starts_with("test.toml:2:10: window: writes with durability"), "{errors}");
    }
}
