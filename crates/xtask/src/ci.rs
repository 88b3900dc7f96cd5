//! `cargo xtask ci`: everything that `.ci/run` runs, cheapest checks first.

use crate::options::Options;
use clearway_harness::tools::{in_ci, need};
use clearway_harness::{Res, tools};
use std::path::Path;
use std::time::Instant;

/// Crash rounds in CI; `cargo xtask crash` alone runs more.
const CRASH_ROUNDS: u32 = 3;

/// All values of `--hot-rows`.
const ALL_HOT_ROWS: &str = "increments,whole,retire";

/// Values of `--hot-rows` in histories besides the default, which is `increments` alone.
const HOT_ROWS: [&str; 4] = ["off", "retire", "whole", ALL_HOT_ROWS];

const LEVELS: [&str; 3] = ["serializable", "repeatable read", "read committed"];

/// Rounds of a history of Clearway: the server is killed after each except the last.
const HISTORY_ROUNDS: u32 = 3;

/// The end-to-end scenario whose clients queue for one row.
const CROWDED: &str = "more clients than rows";

/// The crates with memory orderings of their own, whose interleavings loom explores. Other flags
/// use another directory, so that built files stay.
const LOOM: &str = "-p clearway-latch -p clearway-specimens -p clearway-replacement -p clearway-buffer \
    -p clearway-storage -p clearway-partition -p clearway-fabric -p clearway-remote --lib \
    --target-dir target/loom";
const LOOM_FLAGS: (&str, &str) = ("RUSTFLAGS", "--cfg loom");

/// The engine as the simulations build it.
const SIM_CLIPPY: &str =
    "clippy -p clearway-sim -p clearway-cluster --target-dir target/sim -- -D warnings";

/// Planted bugs that only the tests of the lock table and of the waits-for graph can find: no
/// client sees them.
const LOCK_CANARIES: &str = "test -p clearway-partition -p clearway-coordinator --lib --target-dir target/sim canaries_are_found";

/// Planted bugs that the tests of storage and of partitions must find.
const PARTITION_CANARIES: &str = "test -p clearway-storage -p clearway-partition --test it --target-dir target/sim canaries_are_found";

/// The fabric with the provider that needs libibverbs. Without a device, its tests report that they
/// are skipped.
const VERBS: &str = "-p clearway-fabric --features verbs";

/// Debian's directory of libclang, with which Rust reads libibverbs' headers.
const LLVM: &str = "/usr/lib";

/// The crates that can be used alone, and what they depend on: each must build from its package.
const PACKAGES: &str = "package --quiet --allow-dirty -p clearway-latch -p clearway-replacement -p clearway-buffer -p clearway-wire -p clearway-history \
    -p clearway-sync -p clearway-types -p clearway-env -p clearway-ir";

/// The seed of the random cases of property tests: CI must not depend on chance. `cargo test` alone
/// draws other cases each time.
const PROPERTY_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

fn has_libclang() -> bool {
    let is_llvm =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("llvm-");
    let llvm = std::fs::read_dir(LLVM).into_iter().flatten().flatten().filter(is_llvm);
    let found = llvm.map(|entry| entry.path().join("lib/libclang.so")).any(|path| path.exists());
    tools::find("cmake").is_some() && (found || std::env::var_os("LIBCLANG_PATH").is_some())
}

/// Runs everything; stops at the first failure.
pub fn run(options: &Options) -> Res<()> {
    if in_ci() {
        // CI skips nothing: fail now rather than after half an hour.
        for tool in ["pgbench", "psql", "postgres", "initdb"] {
            need(tool)?;
        }
    }
    let started = Instant::now();
    cargo("format", "fmt --all --check", &[])?;
    cargo("clippy", "clippy --workspace --all-targets -- -D warnings", &[])?;
    step("tidy", || crate::tidy::run(false))?;
    cargo("docs", "doc --workspace --no-deps", &[("RUSTDOCFLAGS", "-D warnings")])?;
    cargo("tests", "test --workspace", &[])?;
    cargo("packages", PACKAGES, &[])?;
    step("chips", crate::chips::run)?;
    if crate::fuzz::has_compiler() {
        // The search takes minutes, so CI only compiles its driver. The tests replay the kept
        // inputs.
        cargo("fuzz driver", "check -p clearway-fuzz --features libfuzzer --bin libfuzzer", &[])?;
    } else {
        println!("ci: fuzz driver SKIPPED: there is no C++ compiler");
    }
    if in_ci() || has_libclang() {
        cargo(
            "clippy for InfiniBand",
            &format!("clippy {VERBS} --all-targets -- -D warnings"),
            &[],
        )?;
        cargo("tests for InfiniBand", &format!("test {VERBS} --lib verbs:: -- --nocapture"), &[])?;
    } else {
        println!("ci: InfiniBand SKIPPED: there is no CMake or no libclang (see .ci/run)");
    }
    // Checks the code that only these flags enable.
    cargo(
        "clippy for loom",
        &format!("clippy {LOOM} --profile test -- -D warnings"),
        &[LOOM_FLAGS],
    )?;
    cargo("loom", &format!("test {LOOM} --release loom"), &[LOOM_FLAGS])?;
    cargo("clippy for the simulation", SIM_CLIPPY, &[crate::sim::FLAGS])?;
    step("simulation", || crate::sim::run(&Options::default()))?;
    cargo("canaries of the lock table", LOCK_CANARIES, &[crate::sim::FLAGS])?;
    cargo("canaries of storage and partitions", PARTITION_CANARIES, &[crate::sim::FLAGS])?;
    step("canaries", || crate::sim::run(&Options { canaries: true, ..Options::default() }))?;
    let of_histories = Options { canaries: true, histories: true, ..Options::default() };
    step("canaries of the checker of histories", || crate::sim::run(&of_histories))?;
    step("simulation of the pool", || {
        crate::sim::run(&Options { pool: true, ..Options::default() })
    })?;
    step("canaries of the pool", || {
        crate::sim::run(&Options { pool: true, canaries: true, ..Options::default() })
    })?;
    step("simulation of the cluster", || {
        crate::sim::run(&Options { cluster: true, ..Options::default() })
    })?;
    step("canaries of the cluster", || {
        crate::sim::run(&Options { cluster: true, canaries: true, ..Options::default() })
    })?;
    if tools::find("pgbench").is_none() || tools::find("psql").is_none() {
        println!(
            "ci: end-to-end tests, crashes and lab SKIPPED: pgbench or psql is not installed (see .ci/run)"
        );
        return Ok(());
    }
    step("e2e", || crate::e2e::run(options))?;
    let crash = Options { rounds: Some(CRASH_ROUNDS), ..Options::default() };
    step("crash", || crate::crash::run(&crash))?;
    histories()?;
    schemes()?;
    hot_rows()?;
    // Benchmarks are code: each has a tiny run here, so that it keeps working.
    for what in ["run all --quick", "bars --quick", "report --quick"] {
        cargo(&format!("lab {what}"), &format!("run --release -p clearway-lab -- {what}"), &[])?;
    }
    println!("ci: all passed in {:.0?}", started.elapsed());
    Ok(())
}

/// Runs short histories: Clearway at each level, without its hot-row mechanisms, with the default
/// ones, with the others alone, and with all of them; and PostgreSQL as the control.
fn histories() -> Res<()> {
    for (name, own) in own_histories(&tools::build_server()?) {
        step(&name, || crate::history::run(&own))?;
    }
    let short = || Options { quick: true, ..Options::default() };
    if tools::find("initdb").is_none() {
        println!("ci: control of histories SKIPPED: PostgreSQL is not installed (see .ci/run)");
        return Ok(());
    }
    ["read committed", "serializable"].into_iter().try_for_each(|isolation| {
        let control = Options { postgres: true, isolation: Some(isolation.into()), ..short() };
        step(&format!("history of PostgreSQL at {isolation}"), || crate::history::run(&control))
    })
}

/// Returns the histories of this binary of Clearway, with their names.
fn own_histories(binary: &Path) -> Vec<(String, Options)> {
    let mechanisms = || std::iter::once(None).chain(HOT_ROWS.map(Some));
    let of_level = |level: &'static str| mechanisms().map(move |only| (level, only));
    let history = |(level, only): (&str, Option<&str>)| {
        let name = only.map(|only| format!(" with hot rows {only}")).unwrap_or_default();
        let serve_args = only.map(|only| vec!["--hot-rows".into(), only.into()]);
        let options = Options {
            binary: Some(binary.to_owned()),
            rounds: Some(HISTORY_ROUNDS),
            isolation: Some(level.into()),
            serve_args: serve_args.unwrap_or_default(),
            ..Options::default()
        };
        (format!("history at {level}{name}"), options)
    };
    LEVELS.into_iter().flat_map(of_level).map(history).collect()
}

/// Runs short histories with kills under each scheme except the default.
fn schemes() -> Res<()> {
    ["blocking", "speculative", "locking", "optimistic"].into_iter().try_for_each(|scheme| {
        let serve_args = vec!["--scheme".into(), scheme.into()];
        let short = Options { quick: true, serve_args, ..Options::default() };
        step(&format!("history under {scheme}"), || crate::history::run(&short))
    })
}

/// Runs short tests of the server with all of its hot-row mechanisms.
fn hot_rows() -> Res<()> {
    let all = || Options {
        quick: true,
        isolation: Some("read committed".into()),
        serve_args: vec!["--hot-rows".into(), ALL_HOT_ROWS.into()],
        ..Options::default()
    };
    let crash = Options { rounds: Some(2), ..all() };
    step("crash with all hot-row mechanisms", || crate::crash::run(&crash))?;
    let e2e = Options { only: Some(CROWDED.into()), ..all() };
    step("e2e with all hot-row mechanisms", || crate::e2e::run(&e2e))
}

fn step(name: &str, body: impl FnOnce() -> Res<()>) -> Res<()> {
    println!("ci: {name}");
    let started = Instant::now();
    body().map_err(|why| format!("{why}\nci: {name} failed"))?;
    println!("ci: {name} passed in {:.0?}", started.elapsed());
    Ok(())
}

fn cargo(name: &str, args: &str, env: &[(&str, &str)]) -> Res<()> {
    step(name, || {
        let mut command = tools::cargo();
        command.args(args.split(' ')).envs([PROPERTY_SEED]).envs(env.iter().copied());
        let status = command.status().map_err(|e| format!("cargo {args}: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("cargo {args}: {status}")) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_mechanism_has_a_history_at_each_level() {
        let histories = own_histories(Path::new("clearway"));
        let names: BTreeSet<&str> = histories.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names.len(), histories.len()), (15, 15));
        for level in LEVELS {
            for args in [
                "",
                "--hot-rows off",
                "--hot-rows retire",
                "--hot-rows whole",
                "--hot-rows increments,whole,retire",
            ] {
                assert!(histories.iter().any(|(_, options)| {
                    options.isolation.as_deref() == Some(level)
                        && options.serve_args.join(" ") == args
                }));
            }
        }
    }
}
