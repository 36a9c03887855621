//! Where the server's binary and the examples are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in a folder of the repository")
}

/// The path of an example file, as `example("codes.toml")`.
pub fn example(name: &str) -> PathBuf {
    root().join("examples").join(name)
}

/// The server, built on the first call with the profile that tests are built with. `FOREBAY_BIN` names
/// another binary, which is used as it is: `make test` names the one that `cargo test --workspace` has
/// just built.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("FOREBAY_BIN").map_or_else(build, PathBuf::from)).clone()
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let profile = if cfg!(debug_assertions) { "test" } else { "release" };
    let status = Command::new(cargo)
        .current_dir(root())
        // Built for the whole workspace: with `--package` its crates would have other features, and be built
        // again.
        .args(["build", "--quiet", "--bin", "forebay", "--profile", profile])
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "`cargo build --bin forebay` failed");
    let folder = if profile == "test" { "debug" } else { "release" };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let binary = target.join(folder).join("forebay");
    assert!(binary.is_file(), "cargo built no {}", binary.display());
    binary
}
