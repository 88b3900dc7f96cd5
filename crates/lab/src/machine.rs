//! The machine and time of a measurement.

use crate::describe::describe;
use clearway_harness::tools::repository_root;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Cores available to this process.
    pub cores: usize,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Other conditions that affect performance; empty in records of older labs.
    #[serde(default)]
    pub conditions: BTreeMap<String, String>,
}

/// Crates that are measured or used for measuring.
const MEASURED_CRATES: [&str; 6] =
    ["foyer-memory", "hashbrown", "moka", "parking_lot", "quick_cache", "rustix"];
/// Crate versions that the lab was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");
/// The profiles that the lab was built with, except for settings from the environment.
const MANIFEST: &str = include_str!("../../../Cargo.toml");

/// Commit that the lab was built from, with `-dirty` if tracked files had changes; `unknown`
/// outside a checkout.
pub const BUILT_FROM: &str = env!("LAB_COMMIT");

impl Machine {
    /// Returns this machine's current state.
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

    /// Returns the conditions on one line.
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
        ("flags", flags()),
        ("governor", or_unknown(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))),
        ("SMT", smt),
        ("disk", disk.unwrap_or_else(|| "unknown".into())),
        ("crates", versions(LOCK, &MEASURED_CRATES)),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the target, the profile's settings and the compiler's flags.
fn flags() -> String {
    let of_profile = |key: &str, overridden: &str| {
        let value = (!overridden.is_empty()).then(|| overridden.to_owned());
        let value = value.or_else(|| setting(MANIFEST, env!("LAB_PROFILE"), key));
        format!("{key} {}", value.as_deref().unwrap_or("default"))
    };
    let all = [
        env!("LAB_TARGET").to_owned(),
        format!("opt-level {}", env!("LAB_OPT_LEVEL")),
        of_profile("lto", env!("LAB_LTO")),
        of_profile("codegen-units", env!("LAB_CODEGEN_UNITS")),
        env!("LAB_RUSTFLAGS").to_owned(),
    ];
    all.join(", ").trim_end_matches([' ', ',']).to_owned()
}

/// Returns a setting of a profile in a manifest.
fn setting(manifest: &str, profile: &str, key: &str) -> Option<String> {
    let heading = format!("[profile.{profile}]");
    let section = manifest.lines().skip_while(|line| line.trim() != heading).skip(1);
    let mut section = section.take_while(|line| !line.starts_with('['));
    section.find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Returns device and file system of a directory: the deepest mount above it, and the last of
/// several at one mount point.
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

/// Returns the versions of these packages in a lock file; all of them if there are several.
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

/// Returns the current commit of the checkout, from which servers are built, in the format of
/// [`BUILT_FROM`].
pub fn checkout() -> String {
    describe(&repository_root())
}

/// Returns the current time in the format of the records: `YYYY-MM-DD HH:MM UTC`.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_map_to_their_deepest_mount() {
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
    fn crate_versions_come_from_the_lock_file() {
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
    fn profile_settings_come_from_the_manifest() {
        let manifest = "[profile.release]\nlto = \"thin\"\ncodegen-units = 4\n\n\
                        [profile.fuzz]\nlto = \"off\"\n";
        let of = |profile, key| setting(manifest, profile, key);
        assert_eq!(of("release", "lto").as_deref(), Some("thin"));
        assert_eq!(of("release", "codegen-units").as_deref(), Some("4"));
        assert_eq!(of("fuzz", "lto").as_deref(), Some("off"));
        assert_eq!((of("fuzz", "codegen-units"), of("dev", "lto")), (None, None));
        assert!(setting(MANIFEST, "release", "lto").is_some());
    }

    #[test]
    fn the_build_knows_its_commit() {
        // Outside a checkout both are unknown.
        assert_eq!(BUILT_FROM == "unknown", checkout() == "unknown", "{BUILT_FROM}");
        assert!(!BUILT_FROM.is_empty());
    }

    #[test]
    fn machine_conditions_include_compiler_and_flags() {
        let here = Machine::here();
        assert!(here.conditions["compiler"].starts_with("rustc "), "{:?}", here.conditions);
        for part in ["opt-level", "lto", "codegen-units"] {
            assert!(here.conditions["flags"].contains(part), "{:?}", here.conditions);
        }
        assert!(
            ["on", "off", "unknown", "notimplemented", "notsupported"]
                .contains(&&*here.conditions["SMT"])
        );
        assert!(here.conditions().contains("governor "), "{}", here.conditions());
    }
}
