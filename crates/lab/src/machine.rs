//! What a number was measured on: without it a number is an anecdote.

use clearway_harness::tools::repository_root;
use serde::Serialize;
use std::process::Command;

/// The machine and the commit of a report.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Commit of the working tree, with `-dirty` where it was changed.
    pub commit: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|l| l.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory = memory.and_then(|m| m.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            commit: commit(),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            memory_mib: memory.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

fn commit() -> String {
    let mut git = Command::new("git");
    git.current_dir(repository_root()).args([
        "-c",
        "safe.directory=*",
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
    ]);
    match git.output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".into(),
    }
}
