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
    DOUBT = "doubt",
    END_LOAD = "end_load",
    EVICT = "evict",
    FENCE = "fence",
    FULL = "full",
    INCREMENT = "increment",
    INSTALL = "install",
    LEASE = "lease",
    LOAD = "load",
    LOCK = "lock",
    LOOK = "look",
    PLACE = "place",
    PROBE = "probe",
    REBUILD = "rebuild",
    REBUILT = "rebuilt",
    RELEASE = "release",
    REPAIR = "repair",
    RESTORE = "restore",
    STATE = "state",
    SWAP = "swap",
    TIER = "tier",
    UNLOCK = "unlock",
    WRITE = "write",
}
