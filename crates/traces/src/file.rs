//! Location of the traces.

use crate::Trace;
use crate::read::{TraceError, read};
use std::env;
use std::path::PathBuf;

/// Environment variable that names the directory of the traces.
pub const DIRECTORY_VARIABLE: &str = "CLEARWAY_TRACES";

const ENDINGS: [&str; 3] = [".trace.gz", ".lis.zst", ".trace.xz"];

/// Returns the directory of the traces: [`DIRECTORY_VARIABLE`], or else `../shared/traces` beside
/// the repository.
pub fn directory() -> PathBuf {
    env::var_os(DIRECTORY_VARIABLE).map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces").into(),
        PathBuf::from,
    )
}

/// Returns the file of a trace such as `lirs_multi1` or `OLTP`; `None` if it is missing.
pub fn find(name: &str) -> Option<PathBuf> {
    let directory = directory();
    ENDINGS
        .iter()
        .map(|ending| directory.join(format!("{name}{ending}")))
        .find(|path| path.is_file())
}

/// Reads a trace; returns `None` if it is missing.
pub fn load(name: &str) -> Option<Result<Trace, TraceError>> {
    find(name).map(|path| read(name, &path))
}
