//! `cargo xtask chips`: tests the latches on aarch64 and checks the instructions of their
//! acquisitions.
//!
//! The tests of the latch crate, and of the latches that the lab compares with it, are built for
//! aarch64 and run under qemu. The disassembly of each acquisition, on both architectures, is
//! compared with what `latch::acquire` promises. Times under emulation mean nothing and are
//! ignored.

use clearway_harness::{Res, tools};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const ARM: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const RUNNER: &str = "qemu-aarch64";

/// Instructions that a function must contain, and those that it must not contain, by prefix of the
/// mnemonic.
struct Promise {
    function: &'static str,
    has: &'static [&'static str],
    lacks: &'static [&'static str],
}

const ON_ARM: &[Promise] = &[
    Promise {
        function: "acquire_tas",
        has: &["ldxr", "stxr", "dmb"],
        lacks: &["swp", "cas", "ldaxr"],
    },
    Promise {
        function: "acquire_ttas",
        has: &["ldr", "ldxr", "stxr", "dmb"],
        lacks: &["swp", "cas"],
    },
    Promise {
        function: "acquire_cas",
        has: &["ldaxr", "stlxr"],
        lacks: &["dmb", "swp", "cas", "bl"],
    },
    Promise {
        function: "acquire_test_cas",
        has: &["ldr", "ldaxr", "stlxr"],
        lacks: &["dmb", "swp", "cas", "bl"],
    },
    Promise {
        function: "acquire_lse_swp",
        has: &["swpa"],
        lacks: &["dmb", "ldxr", "ldaxr", "stxr", "stlxr", "bl"],
    },
    Promise {
        function: "acquire_lse_cas",
        has: &["casa"],
        lacks: &["dmb", "ldxr", "ldaxr", "stxr", "stlxr", "bl"],
    },
];

const ON_X86: &[Promise] = &[
    Promise { function: "acquire_tas", has: &["xchg"], lacks: &["lock", "mfence", "call"] },
    Promise { function: "acquire_ttas", has: &["test", "xchg"], lacks: &["mfence", "call"] },
    Promise { function: "acquire_cas", has: &["lock cmpxchg"], lacks: &["xchg", "mfence", "call"] },
    Promise {
        function: "acquire_test_cas",
        has: &["test", "lock cmpxchg"],
        lacks: &["xchg", "mfence", "call"],
    },
];

/// Acquisitions in which no store may precede the comparison that finds the word free.
const COMPARES_FIRST: &[&str] = &["acquire_ttas", "acquire_cas", "acquire_test_cas"];

pub fn run() -> Res<()> {
    if cfg!(target_arch = "x86_64") {
        check(ON_X86, &disassembly("objdump", &example(None)?)?)?;
        println!("chips: x86-64: {} acquisitions have the promised instructions", ON_X86.len());
    } else {
        println!("chips: x86-64 SKIPPED: this machine is another architecture");
    }
    if let Some(missing) = missing() {
        println!("chips: aarch64 SKIPPED: {missing} (see .ci/run)");
        return Ok(());
    }
    let binary = example(Some(ARM))?;
    let instructions = disassembly("aarch64-linux-gnu-objdump", &binary)?;
    check(ON_ARM, &instructions)?;
    for function in COMPARES_FIRST {
        compares_first(function, &instructions[*function])?;
    }
    println!("chips: aarch64: {} acquisitions have the promised instructions", ON_ARM.len());
    succeed(arm(tools::cargo().args([
        "test",
        "-p",
        "clearway-latch",
        "-p",
        "clearway-specimens",
        "--target",
        ARM,
    ])))?;
    succeed(arm(tools::cargo().args([
        "run",
        "-p",
        "clearway-latch",
        "--example",
        "acquisitions",
        "--target",
        ARM,
    ])))
}

/// Returns a message if something that the aarch64 tests need is not installed.
fn missing() -> Option<String> {
    for tool in [LINKER, RUNNER, "aarch64-linux-gnu-objdump"] {
        if tools::find(tool).is_none() {
            return Some(format!("{tool} is not installed"));
        }
    }
    let libdir =
        Command::new("rustc").args(["--print", "target-libdir", "--target", ARM]).output().ok()?;
    let libdir = PathBuf::from(String::from_utf8_lossy(&libdir.stdout).trim());
    (!libdir.is_dir()).then(|| format!("Rust's standard library for {ARM} is not installed"))
}

fn arm(command: &mut Command) -> &mut Command {
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER).env(
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
        format!("{RUNNER} -L /usr/aarch64-linux-gnu"),
    )
}

fn succeed(command: &mut Command) -> Res<()> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// Builds the example with one function for each acquisition, and returns its path.
fn example(target: Option<&str>) -> Res<PathBuf> {
    let directory = tools::repository_root().join("target/chips");
    let mut command = tools::cargo();
    command
        .args([
            "build",
            "--release",
            "-p",
            "clearway-latch",
            "--example",
            "acquisitions",
            "--target-dir",
        ])
        .arg(&directory);
    if let Some(target) = target {
        command.args(["--target", target]);
    }
    succeed(arm(&mut command))?;
    Ok(directory.join(target.unwrap_or("")).join("release/examples/acquisitions"))
}

/// Returns the instructions of each function whose name begins with `acquire_`: mnemonics and
/// operands.
fn disassembly(objdump: &str, binary: &Path) -> Res<BTreeMap<String, Vec<String>>> {
    let output = Command::new(objdump).args(["-d", "--no-show-raw-insn"]).arg(binary).output();
    let output = output.map_err(|e| format!("{objdump}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{objdump}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(functions(&String::from_utf8_lossy(&output.stdout)))
}

fn functions(listing: &str) -> BTreeMap<String, Vec<String>> {
    let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in listing.lines() {
        if let Some(name) =
            line.strip_suffix(">:").and_then(|l| l.split_once('<')).map(|(_, name)| name)
        {
            current = name.starts_with("acquire_").then(|| name.to_owned());
        } else if let (Some(name), Some((_, instruction))) = (&current, line.split_once(':')) {
            let words: Vec<&str> = instruction.split_whitespace().collect();
            functions.entry(name.clone()).or_default().push(words.join(" "));
        }
    }
    functions
}

fn check(promises: &[Promise], functions: &BTreeMap<String, Vec<String>>) -> Res<()> {
    for Promise { function, has, lacks } in promises {
        let body = functions
            .get(*function)
            .ok_or_else(|| format!("{function} is not in the disassembly"))?;
        let finds = |what: &str| body.iter().any(|i| i.starts_with(what));
        if let Some(absent) = has.iter().find(|what| !finds(what)) {
            return Err(format!("{function} has no {absent}:\n  {}", body.join("\n  ")));
        }
        if let Some(present) = lacks.iter().find(|what| finds(what)) {
            return Err(format!("{function} has {present}:\n  {}", body.join("\n  ")));
        }
    }
    Ok(())
}

/// Fails unless a comparison and its branch precede the first store.
fn compares_first(function: &str, body: &[String]) -> Res<()> {
    let first = |what: &[&str]| body.iter().position(|i| what.iter().any(|w| i.starts_with(w)));
    let (compare, store) = (first(&["cbnz", "cbz", "b.ne", "b.eq", "tbnz", "tbz"]), first(&["st"]));
    match (compare, store) {
        (Some(compare), Some(store)) if compare < store => Ok(()),
        _ => Err(format!("{function} stores before it has compared:\n  {}", body.join("\n  "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
0000000000010a40 <acquire_cas>:
   10a40:\tldaxr\tw8, [x0]
   10a44:\tcmp\tw8, #0x0
   10a48:\tb.ne\t10a54 <acquire_cas+0x14>  // b.any
   10a4c:\tstlxr\tw9, w10, [x0]

0000000000010a60 <other>:
   10a60:\tdmb\tish
";

    #[test]
    fn a_listing_is_parsed_and_checked() {
        let functions = functions(LISTING);
        assert_eq!(functions.keys().collect::<Vec<_>>(), ["acquire_cas"]);
        let cas = &functions["acquire_cas"];
        assert_eq!((cas.len(), cas[0].as_str()), (4, "ldaxr w8, [x0]"));
        let promise = |has, lacks| [Promise { function: "acquire_cas", has, lacks }];
        check(&promise(&["ldaxr", "stlxr"], &["dmb"]), &functions).unwrap();
        assert!(check(&promise(&["casa"], &[]), &functions).unwrap_err().contains("no casa"));
        assert!(check(&promise(&[], &["stlxr"]), &functions).unwrap_err().contains("has stlxr"));
        compares_first("acquire_cas", cas).unwrap();
        let swapped: Vec<String> = cas.iter().rev().cloned().collect();
        assert!(compares_first("acquire_cas", &swapped).unwrap_err().contains("stores before"));
    }
}
