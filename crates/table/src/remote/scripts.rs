//! The scripts, each in its file under `scripts/`, which begins with a description of keys, arguments and
//! answers.
//!
//! Every script that changes rows or queues compares the epoch of its connection with the shard's and does
//! nothing when they differ. Every script checks everything before its first write, or reverts its writes.

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
