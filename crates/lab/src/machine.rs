//! What a number was measured on, and when: without it a number is an anecdote.

use clearway_harness::tools::repository_root;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
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
    /// What else decides how fast it is; empty in records that older labs wrote.
    #[serde(default)]
    pub conditions: BTreeMap<String, String>,
}

/// The crates that are measured, or that measuring rests on.
const MEASURED_CRATES: [&str; 6] =
    ["foyer-memory", "hashbrown", "moka", "parking_lot", "quick_cache", "rustix"];
/// The versions that the lab is built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

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
            conditions: conditions(&read),
        }
    }

    /// What else decides how fast it is, on one line.
    pub fn conditions(&self) -> String {
        let all: Vec<String> =
            self.conditions.iter().map(|(name, value)| format!("{name} {value}")).collect();
        all.join("; ")
    }
}

fn conditions(read: &dyn Fn(&str) -> String) -> BTreeMap<String, String> {
    let or_unknown = |text: String| {
        if text.trim().is_empty() { "unknown".into() } else { text.trim().to_owned() }
    };
    let smt = match read("/sys/devices/system/cpu/smt/active").trim() {
        "0" => "off".to_owned(),
        "1" => "on".to_owned(),
        other => or_unknown(other.to_owned()),
    };
    let disk = mounted(&read("/proc/self/mountinfo"), &std::env::temp_dir());
    let all = [
        ("compiler", env!("LAB_COMPILER").to_owned()),
        ("flags", env!("LAB_FLAGS").to_owned()),
        ("governor", or_unknown(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))),
        ("SMT", smt),
        ("disk", disk.unwrap_or_else(|| "unknown".into())),
        ("crates", versions(LOCK, &MEASURED_CRATES)),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The file system and the device of a folder: the deepest mount that it is under, of several at
/// one place the last.
fn mounted(mounts: &str, folder: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (place, source) = line.split_once(" - ")?;
        let place = Path::new(place.split(' ').nth(4)?).to_owned();
        let mut source = source.split(' ');
        let (file_system, device) = (source.next()?, source.next()?);
        folder
            .starts_with(&place)
            .then(|| (place.components().count(), format!("{device}, {file_system}")))
    };
    mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth).map(|(_, name)| name)
}

/// The versions of these packages in a lock file; of a package in several versions all.
fn versions(lock: &str, names: &[&str]) -> String {
    let package = |text: &str| {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        Some((value("name = ")?, value("version = ")?))
    };
    let packages = lock.split("[[package]]").filter_map(package);
    let wanted = packages.filter(|(name, _)| names.contains(&name.as_str()));
    wanted.map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, {} MiB, Linux {}",
            self.cpu, self.cores, self.memory_mib, self.kernel
        )
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
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".into(),
    }
}

/// The time, as records have it: `YYYY-MM-DD HH:MM UTC`.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_the_deepest_mount_above_it() {
        let mounts = "21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
                      30 21 0:26 / /data rw - tmpfs none rw\n\
                      31 21 254:2 / /data rw master:2 - xfs /dev/vdb rw\n\
                      32 21 0:27 / /database rw - tmpfs none rw\n";
        let of = |folder: &str| mounted(mounts, Path::new(folder)).unwrap();
        assert_eq!(
            (of("/tmp/x"), of("/data/x")),
            ("/dev/vda1, ext4".into(), "/dev/vdb, xfs".into())
        );
        assert_eq!(mounted("", Path::new("/tmp")), None);
    }

    #[test]
    fn versions_are_read_from_a_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\n\n\
                    [[package]]\nname = \"ab\"\nversion = \"4.5.6\"\ndependencies = [\n \"a\",\n]\n";
        assert_eq!(versions(lock, &["a"]), "a 1.2.3");
        let measured = versions(LOCK, &MEASURED_CRATES);
        assert!(
            MEASURED_CRATES.iter().all(|name| measured.contains(&format!("{name} "))),
            "{measured}"
        );
    }

    #[test]
    fn this_machine_says_what_the_lab_is_built_with() {
        let here = Machine::here();
        assert!(here.conditions["compiler"].starts_with("rustc "), "{:?}", here.conditions);
        assert!(here.conditions["flags"].contains("opt-level"), "{:?}", here.conditions);
        assert!(
            ["on", "off", "unknown", "notimplemented", "notsupported"]
                .contains(&&*here.conditions["SMT"])
        );
        assert!(here.conditions().contains("governor "), "{}", here.conditions());
    }
}
