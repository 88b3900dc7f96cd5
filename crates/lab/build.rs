//! Passes what the lab is built from to the lab, which stores it in its records: the commit, the
//! compiler's version, and its flags.

#[path = "src/describe.rs"]
mod describe;

use describe::{describe, git};
use std::env;
use std::path::Path;
use std::process::Command;

/// Files that change with the commit, or with the code of the lab or of a server.
const FILES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];
const GIT_FILES: [&str; 4] = ["HEAD", "logs/HEAD", "refs/heads", "packed-refs"];

fn main() {
    let value = |name: &str| env::var(name).unwrap_or_default();
    let root = Path::new(&value("CARGO_MANIFEST_DIR")).join("../..");
    let git_file = |name| git(&root, &["rev-parse", "--git-path", name]);
    let watched =
        FILES.map(str::to_owned).into_iter().chain(GIT_FILES.into_iter().filter_map(git_file));
    // A path that does not exist would run this script at every build.
    for path in watched.map(|path| root.join(path)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=LAB_COMMIT={}", describe(&root));
    let compiler =
        env::var("RUSTC").ok().and_then(|rustc| Command::new(rustc).arg("-V").output().ok());
    let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=LAB_COMPILER={}", compiler.unwrap_or_else(|| "unknown".into()));
    println!("cargo::rustc-env=LAB_TARGET={}", value("TARGET"));
    println!("cargo::rustc-env=LAB_OPT_LEVEL={}", value("OPT_LEVEL"));
    // Cargo separates flags by the unit separator character.
    let flags = value("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    println!("cargo::rustc-env=LAB_RUSTFLAGS={flags}");
    // <target>/<profile>/build/<package>/out. The profile `dev` has the directory `debug`.
    let out = value("OUT_DIR");
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = profile.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let profile = if profile == "debug" { "dev".to_owned() } else { profile };
    for setting in ["LTO", "CODEGEN_UNITS"] {
        let name = format!("CARGO_PROFILE_{}_{setting}", profile.to_uppercase().replace('-', "_"));
        println!("cargo::rerun-if-env-changed={name}");
        println!("cargo::rustc-env=LAB_{setting}={}", value(&name));
    }
    println!("cargo::rustc-env=LAB_PROFILE={profile}");
}
