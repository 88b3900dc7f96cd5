//! Passes the compiler's version and flags to the lab, which stores them in its records.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler =
        env::var("RUSTC").ok().and_then(|rustc| Command::new(rustc).arg("-V").output().ok());
    let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=LAB_COMPILER={}", compiler.unwrap_or_else(|| "unknown".into()));
    let value = |name: &str| env::var(name).unwrap_or_default();
    // Cargo separates flags by the unit separator character.
    let flags = value("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    let flags = format!("{}, opt-level {}, {flags}", value("TARGET"), value("OPT_LEVEL"));
    println!("cargo::rustc-env=LAB_FLAGS={}", flags.trim_end_matches([' ', ',']));
}
