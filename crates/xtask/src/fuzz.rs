//! `cargo xtask fuzz`: runs libFuzzer with coverage on each target of the crate `fuzz`, starting
//! from its kept inputs.
//!
//! It works with the stable compiler, because coverage is an LLVM pass. cargo-fuzz needs a nightly
//! compiler for the address sanitizer, which code without `unsafe` hardly needs. Compiling
//! libFuzzer requires a C++ compiler, which nothing else here needs.
//!
//! New inputs go to `target/fuzz/corpus`, where a later run continues, and with `--merge` into the
//! repository. An input that finds a bug is minimised and stays in `crates/fuzz/crashes`.

use crate::options::Options;
use crate::rust;
use clearway_harness::tools::{find, repository_root};
use clearway_harness::{Res, tools};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Minutes for each target by default.
const MINUTES: u32 = 1;
/// Limits for one input: seconds, and memory of the process in MiB.
const TIMEOUT_S: u32 = 10;
const MEMORY_MIB: u32 = 1024;
/// Attempts to minimise a finding.
const SHRINKS: u32 = 5_000;
const SHRINK_S: u32 = 30;
/// Longest input, in bytes.
const MAX_LEN: u32 = 4096;

/// What cargo-fuzz passes, without the sanitizer.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// The directories and files.
struct Places {
    root: PathBuf,
    binary: PathBuf,
    /// Inputs found by earlier runs, outside of the repository.
    grown: PathBuf,
}

/// Returns true if libFuzzer can be compiled.
pub fn has_compiler() -> bool {
    std::env::var_os("CXX").is_some() || find("c++").is_some()
}

/// Runs the targets; the error names those with findings.
pub fn run(options: &Options) -> Res<()> {
    let places = build()?;
    let kept = places.root.join("crates/fuzz/corpus");
    let mut targets: Vec<String> = names(&kept)?;
    if let Some(only) = &options.target {
        targets.retain(|name| name == only);
        if targets.is_empty() {
            return Err(format!(
                "there is no target {only}; there are: {}",
                names(&kept)?.join(" ")
            ));
        }
    }
    println!(
        "{:<14} {:>12} {:>9} {:>9} {:>9}  findings",
        "target", "executions", "a second", "cov from", "cov to"
    );
    let mut found = Vec::new();
    for target in &targets {
        if let Some(finding) = one(&places, target, options)? {
            found.push(finding);
        }
        if options.merge {
            merge(&places, target)?;
        }
    }
    if found.is_empty() { Ok(()) } else { Err(format!("fuzz: {}", found.join("\nfuzz: "))) }
}

fn names(dir: &Path) -> Res<Vec<String>> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn make_dir(dir: &Path) -> Res<()> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

/// Builds the driver with coverage, in a target directory of its own.
fn build() -> Res<Places> {
    if !has_compiler() {
        return Err("`c++` is not installed, and libFuzzer must be compiled; on Debian: apt-get install g++".into());
    }
    let root = repository_root();
    let target = rust::target_directory().join("fuzz");
    let host = rust::host()?;
    let mut cargo = tools::cargo();
    // With --target the flags do not reach build scripts, which cannot link libFuzzer.
    cargo.args([
        "build",
        "--profile",
        "fuzz",
        "-p",
        "clearway-fuzz",
        "--features",
        "libfuzzer",
        "--bin",
        "libfuzzer",
    ]);
    cargo.args(["--target", &host, "--target-dir"]).arg(&target).env("RUSTFLAGS", COVERAGE);
    let status = cargo.status().map_err(|e| format!("cargo build: {e}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    Ok(Places {
        root,
        binary: target.join(host).join("fuzz/libfuzzer"),
        grown: target.join("corpus"),
    })
}

impl Places {
    fn kept(&self, target: &str) -> PathBuf {
        self.root.join("crates/fuzz/corpus").join(target)
    }
    fn driver(&self, target: &str, args: &[String], dirs: &[&Path]) -> Res<Output> {
        let mut command = Command::new(&self.binary);
        command.env("FUZZ_TARGET", target).args(args).args(dirs).current_dir(&self.root);
        command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", self.binary.display()))
    }
}

/// Fuzzes one target; returns the finding, if any.
fn one(places: &Places, target: &str, options: &Options) -> Res<Option<String>> {
    let (grown, crashes) = (places.grown.join(target), places.root.join("crates/fuzz/crashes"));
    make_dir(&grown)?;
    make_dir(&crashes)?;
    let seconds = options.minutes.unwrap_or(MINUTES) * 60;
    let mut args = vec![
        format!("-artifact_prefix={}/{target}-", crashes.display()),
        format!("-timeout={TIMEOUT_S}"),
        format!("-rss_limit_mb={MEMORY_MIB}"),
        format!("-max_len={MAX_LEN}"),
        format!("-dict={}", places.root.join("crates/fuzz/words.dict").display()),
        "-print_final_stats=1".to_owned(),
    ];
    match (options.runs, options.minutes) {
        (Some(runs), None) => args.push(format!("-runs={runs}")),
        (Some(runs), Some(_)) => {
            args.extend([format!("-runs={runs}"), format!("-max_total_time={seconds}")])
        }
        (None, _) => args.push(format!("-max_total_time={seconds}")),
    }
    if let Some(seed) = options.seed {
        args.push(format!("-seed={}", seed as u32));
    }
    let output = places.driver(target, &args, &[&grown, &places.kept(target)])?;
    let log = String::from_utf8_lossy(&output.stderr);
    let report = Report::of(&log);
    let artifact = log
        .lines()
        .find_map(|l| l.split("Test unit written to ").nth(1))
        .map(|path| PathBuf::from(path.trim()));
    let shown = if artifact.is_some() || !output.status.success() { "1" } else { "none" };
    let Report { executions, per_second, from, to } = report;
    println!("{target:<14} {executions:>12} {per_second:>9} {from:>9} {to:>9}  {shown}");
    match artifact {
        Some(path) => Ok(Some(finding(places, target, &path, &log)?)),
        None if output.status.success() => Ok(None),
        None => Err(format!("{target}: {}\n{}", output.status, last_lines(&log))),
    }
}

/// Minimises an input with a finding, and says how to run it again.
fn finding(places: &Places, target: &str, path: &Path, log: &str) -> Res<String> {
    let small = path.with_extension("small");
    let args = [
        "-minimize_crash=1".to_owned(),
        format!("-runs={SHRINKS}"),
        format!("-max_total_time={SHRINK_S}"),
        format!("-timeout={TIMEOUT_S}"),
        format!("-rss_limit_mb={MEMORY_MIB}"),
        format!("-exact_artifact_path={}", small.display()),
    ];
    places.driver(target, &args, &[path])?;
    if small.exists() {
        std::fs::rename(&small, path).map_err(|e| format!("{}: {e}", small.display()))?;
    }
    let file = path.strip_prefix(&places.root).unwrap_or(path).display();
    let why =
        log.lines().skip_while(|l| !l.contains("panicked at") && !l.contains("ERROR: libFuzzer"));
    let why: Vec<&str> = why.take(3).collect();
    let replay = format!("cargo run -p clearway-fuzz --bin replay -- {target} {file}");
    Ok(format!(
        "{target}: {}\n  again: {replay}\n  fixed: move it to crates/fuzz/corpus/{target}/regression-...",
        why.join("\n  ")
    ))
}

/// Copies inputs that reach new code into the repository; of the fuzzer's inputs, only the
/// necessary ones stay.
fn merge(places: &Places, target: &str) -> Res<()> {
    let (kept, fresh) = (places.kept(target), places.grown.join(format!("{target}.merged")));
    let by_fuzzer = |name: &String| name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let _ = std::fs::remove_dir_all(&fresh);
    make_dir(&fresh)?;
    let named = places.grown.join(format!("{target}.named"));
    let _ = std::fs::remove_dir_all(&named);
    make_dir(&named)?;
    for name in names(&kept)? {
        let to = if by_fuzzer(&name) { places.grown.join(target) } else { named.clone() };
        std::fs::copy(kept.join(&name), to.join(&name)).map_err(|e| format!("{name}: {e}"))?;
    }
    // Seeds and regressions count as covered: only inputs that add coverage are added.
    let args = [
        "-set_cover_merge=1".to_owned(),
        format!("-timeout={TIMEOUT_S}"),
        format!("-max_len={MAX_LEN}"),
    ];
    let output = places.driver(target, &args, &[&named, &places.grown.join(target)])?;
    if !output.status.success() {
        return Err(format!(
            "{target}: merge: {}\n{}",
            output.status,
            last_lines(&String::from_utf8_lossy(&output.stderr))
        ));
    }
    let failed = |e: std::io::Error| format!("{}: {e}", kept.display());
    for name in names(&kept)?.iter().filter(|name| by_fuzzer(name)) {
        std::fs::remove_file(kept.join(name)).map_err(failed)?;
    }
    for name in names(&named)?.iter().filter(|name| by_fuzzer(name)) {
        std::fs::copy(named.join(name), kept.join(name)).map_err(failed)?;
    }
    Ok(())
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// libFuzzer's report of a run.
#[derive(Debug, Default, PartialEq)]
struct Report {
    executions: String,
    per_second: String,
    from: String,
    to: String,
}

impl Report {
    fn of(log: &str) -> Self {
        let stat = |name: &str| {
            let line = log.lines().find(|l| l.starts_with("stat::") && l.contains(name));
            line.and_then(|l| l.split(':').next_back()).unwrap_or("?").trim().to_owned()
        };
        let mut covers = log.lines().filter_map(|l| l.split("cov: ").nth(1)?.split(' ').next());
        let from = covers.next().unwrap_or("?").to_owned();
        let to = covers.next_back().unwrap_or(&from).to_owned();
        Self {
            executions: stat("number_of_executed_units"),
            per_second: stat("average_exec_per_sec"),
            from,
            to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_reported() {
        let log = "#2\tINITED cov: 7 ft: 7 corp: 1/1b exec/s: 0 rss: 27Mb\n#9\tNEW    cov: 8 ft: 8 corp: 2/8b\n\
            #30\tDONE   cov: 9 ft: 8\nstat::number_of_executed_units: 30\nstat::average_exec_per_sec:     15\n";
        let want = Report {
            executions: "30".into(),
            per_second: "15".into(),
            from: "7".into(),
            to: "9".into(),
        };
        assert_eq!(Report::of(log), want);
    }
}
