//! forebay-example-handlers.
