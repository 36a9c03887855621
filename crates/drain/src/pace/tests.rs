//! How the batch size follows the duration of batches.

use super::*;

#[test]
fn sizes_follow_the_time_that_batches_take() {
    let ms = Duration::from_millis;
    for (rows, now, took, slice_ms, expected) in [
        (10_000, 10_000, ms(100), 20, 2_000),
        (10_000, 10_000, ms(100), 500, 20_000),
        (50_000, 50_000, ms(100), 500, 50_000),
        (1, 50_000, ms(10), 500, 50_000),
        (1, 50_000, ms(30), 20, BATCH_ROWS_MIN),
        (300, 300, ms(1000), 20, BATCH_ROWS_MIN),
    ] {
        assert_eq!(next_size(rows, now, 50_000, took, slice_ms), expected, "{rows} {now} {took:?}");
    }
    assert_eq!(next_size(5, 5, 10, ms(1), 20), 10);
}
