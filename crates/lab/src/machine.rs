//! What a number was measured on, and when: without it a number is an anecdote.

use clearway_harness::tools::repository_root;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::process::Command;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
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
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            memory_mib: memory.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, {} MiB, Linux {}", self.cpu, self.cores, self.memory_mib, self.kernel)
    }
}

/// Commit of the working tree, with `-dirty` where it was changed; `unknown` outside a checkout.
pub fn commit() -> String {
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

/// The time, as records have it: `YYYY-MM-DD HH:MM UTC`.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}
