//! The scripts, each in a file of its own under `scripts/`. What their keys, arguments and answers are stands
//! at the top of each.
//!
//! Every one that changes rows or queues compares the epoch of the connection it came over with the shard's
//! and does nothing when they differ; every one checks everything before its first write, or gives back what
//! it took.

use forebay_redis::Script;

macro_rules! scripts {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(crate) static $name: Script = Script::new($file, include_str!(concat!("scripts/", $file, ".lua")));)*
    };
}

scripts! {
    ANNOUNCE = "announce",
    ASSIGN = "assign",
    BEGIN_LOAD = "begin_load",
    CLEAR = "clear",
    REQUEST_REPAIR = "request_repair",
    END_LOAD = "end_load",
    EVICT = "evict",
    FENCE = "fence",
    IS_FULL = "is_full",
    INCREMENT = "increment",
    INSTALL = "install",
    KEEP = "keep",
    LEASE = "lease",
    LOAD = "load",
    LOCK = "lock",
    LOOK_UP = "look_up",
    PLACE_RESERVED = "place_reserved",
    PLACE_STAGED = "place_staged",
    PROBE = "probe",
    REBUILD = "rebuild",
    REBUILT = "rebuilt",
    TRIM = "trim",
    REPAIR = "repair",
    RESTORE = "restore",
    STATE = "state",
    SUCCEED = "succeed",
    SWAP = "swap",
    MAKE_TIER = "make_tier",
    UNLOCK = "unlock",
    WRITE = "write",
}
