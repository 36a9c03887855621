//! forebay-tests.
