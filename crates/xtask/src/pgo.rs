//! `cargo xtask pgo`: builds a server that the compiler optimises by a profile of the server itself
//! under load.
//!
//! It builds the server with counters, runs pgbench's scripts and some larger statements on it, and
//! builds it again with what was counted. The server's code is several times larger than the
//! processor's first-level instruction cache, and hardly any of it repeats within a transaction. A
//! profile puts what usually runs together.
//!
//! Everything is in `target/pgo`. The profile fits only this source and compiler, so each run makes
//! a new one.

use crate::options::Options;
use crate::rust;
use clearway_harness::client::PgClient;
use clearway_harness::pgbench::{Length, QueryMode, Run, Script, init};
use clearway_harness::server::Kind;
use clearway_harness::tools::{self, TempDir};
use clearway_harness::{Endpoint, Res, process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Seconds of each of pgbench's runs, of which `--quick` makes one.
const SECONDS: u32 = 5;
/// pgbench's clients.
const CLIENTS: u32 = 16;
/// Rounds of [`STATEMENTS`].
const ROUNDS: usize = 20;
const LIMIT: Duration = Duration::from_secs(60);

/// Statements that pgbench's scripts do not have, on its tables. What a profile does not contain is
/// compiled for size.
const STATEMENTS: [&str; 9] = [
    "CREATE TABLE pgo (id int PRIMARY KEY, owner text NOT NULL, balance int8)",
    "CREATE INDEX pgo_owner ON pgo (owner)",
    "INSERT INTO pgo SELECT i, 'owner ' || i % 100, i FROM generate_series(1, 2000) i",
    "SELECT count(*), sum(balance), min(owner) FROM pgo WHERE id BETWEEN 100 AND 1900",
    "SELECT owner, sum(balance) FROM pgo GROUP BY owner ORDER BY 2 DESC LIMIT 10",
    "SELECT * FROM pgo WHERE owner = 'owner 7' ORDER BY id",
    "UPDATE pgo SET balance = balance + 1, owner = owner || 'x' WHERE balance % 2 = 0",
    "SELECT bid, count(*) FROM pgbench_accounts WHERE aid < 20000 GROUP BY bid",
    "DROP TABLE pgo",
];

/// Builds the server in `target/pgo` and prints where it is.
pub fn run(options: &Options) -> Res<()> {
    tools::need("pgbench")?;
    let (host, profdata) = (rust::host()?, profdata()?);
    let target = rust::target_directory().join("pgo");
    let (raw, profile) = (target.join("counts"), target.join("clearway.profdata"));
    // Counts of an older source do not fit. There are none before the first run.
    let _ = std::fs::remove_dir_all(&raw);

    let flag = format!("-Cprofile-generate={}", raw.display());
    let counting = build(&target.join("counting"), &host, &flag)?;
    load(&counting, if options.quick { 1 } else { SECONDS })?;
    let mut merge = Command::new(profdata);
    merge.args(["merge", "-o"]).arg(&profile).arg(&raw);
    process::run(&mut merge, "", LIMIT)?.success("llvm-profdata merge")?;
    let flag = format!("-Cprofile-use={}", profile.display());
    let binary = build(&target.join("optimised"), &host, &flag)?;
    println!("pgo: {}", binary.display());
    Ok(())
}

/// Builds the release server with one more flag for the compiler, and returns its path.
fn build(target: &Path, host: &str, flag: &str) -> Res<PathBuf> {
    let mut cargo = tools::cargo();
    // With --target the flags do not reach build scripts, which would count, too.
    cargo.args(["build", "--release", "-p", "clearway-server", "--target", host, "--target-dir"]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    cargo.arg(target).env("RUSTFLAGS", format!("{flags} {flag}"));
    let status = cargo.status().map_err(|e| format!("cargo build: {e}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    Ok(target.join(host).join("release/clearway"))
}

/// Runs the load that is counted. The counts are written when the server stops.
fn load(binary: &Path, seconds: u32) -> Res<()> {
    let directory = TempDir::new("pgo")?;
    let server = Kind::Clearway { binary: binary.to_owned(), args: Vec::new() };
    let server = server.start(&directory.path().join("data"))?;
    let endpoint = server.endpoint();
    init(endpoint, "dtgvp", 1)?;
    let scripts = [
        (Script::TpcbLike, QueryMode::Prepared),
        (Script::TpcbLike, QueryMode::Simple),
        (Script::SimpleUpdate, QueryMode::Extended),
        (Script::SelectOnly, QueryMode::Prepared),
    ];
    for (script, mode) in scripts {
        let length = Length::Seconds(seconds);
        let run = Run { script, mode, clients: CLIENTS, threads: Run::THREADS, length };
        println!("pgo: {}", run.name());
        run.execute(endpoint)?;
    }
    statements(endpoint)?;
    server.stop().map(drop)
}

fn statements(endpoint: &Endpoint) -> Res<()> {
    println!("pgo: larger statements");
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    for _ in 0..ROUNDS {
        for sql in STATEMENTS {
            client.query(sql).map_err(|e| format!("{sql}: {e}"))?;
        }
    }
    client.end()
}

/// Returns the path of the compiler's own llvm-profdata: others may not know the format.
fn profdata() -> Res<PathBuf> {
    let path = profdata_in(Path::new(rust::rustc(&["--print", "target-libdir"])?.trim()));
    if path.exists() {
        return Ok(path);
    }
    Err(format!(
        "there is no {}\nhint: `rustup component add llvm-tools` installs it",
        path.display()
    ))
}

/// Returns where rustup puts llvm-profdata, beside this directory of libraries.
fn profdata_in(libraries: &Path) -> PathBuf {
    libraries.with_file_name("bin").join("llvm-profdata")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_s_own_tool_is_used() {
        let libraries = Path::new("/rust/lib/rustlib/x86_64-unknown-linux-gnu/lib");
        let expected = "/rust/lib/rustlib/x86_64-unknown-linux-gnu/bin/llvm-profdata";
        assert_eq!(profdata_in(libraries), Path::new(expected));
        match profdata() {
            Ok(path) => assert!(path.is_absolute() && path.exists()),
            Err(why) => assert!(why.contains("rustup component add llvm-tools"), "{why}"),
        }
    }
}
