//! Readable names for places in the source: `partition::exec::modify` instead of a path.
//!
//! A module's name survives edits of its file, so it can be a label of a metric. With a line it
//! names a lock site of the running release.

use clearway_latch::lockstat::Caller;

/// Returns the module of a source file: the crate without its `clearway-` prefix, then the path
/// below `src`.
pub(crate) fn module(file: &str) -> String {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let parts: Vec<&str> = file.split('/').filter(|part| !part.is_empty()).collect();
    // The last `src` belongs to the crate itself, whatever directory the sources are in.
    let (name, path) = match parts.iter().rposition(|part| *part == "src") {
        Some(at) if at > 0 => (parts[at - 1], &parts[at + 1..]),
        _ => {
            let from = parts.iter().rposition(|part| *part == "crates").map_or(0, |at| at + 1);
            (parts.get(from).copied().unwrap_or(file), parts.get(from + 1..).unwrap_or_default())
        }
    };
    let name = without_version(name);
    let path = path.iter().filter(|part| !matches!(**part, "mod" | "lib" | "main"));
    std::iter::once(name.strip_prefix("clearway-").unwrap_or(name))
        .chain(path.copied())
        .collect::<Vec<_>>()
        .join("::")
}

/// Returns the name of a lock site: its module and line.
pub(crate) fn site(caller: Caller) -> String {
    format!("{}:{}", module(caller.file), caller.line)
}

/// Removes the version: a crate's directory in a registry is called `NAME-VERSION`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_module() {
        for (file, name) in [
            ("crates/partition/src/exec/modify.rs", "partition::exec::modify"),
            ("crates/latch/src/lib.rs", "latch"),
            ("crates/server/src/session/mod.rs", "server::session"),
            ("crates/server/tests/protocol/top.rs", "server::tests::protocol::top"),
            ("/src/registry/clearway-latch-0.1.0/src/word.rs", "latch::word"),
            ("f.rs", "f"),
            ("", ""),
        ] {
            assert_eq!(module(file), name, "{file}");
        }
        let caller = Caller { file: "crates/buffer/src/pool/free.rs", line: 12 };
        assert_eq!(site(caller), "buffer::pool::free:12");
    }
}
