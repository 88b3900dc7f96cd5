//! Where the traces lie.

use crate::Trace;
use crate::read::{TraceError, read};
use std::env;
use std::path::PathBuf;

/// The environment variable that names the folder of the traces.
pub const DIRECTORY_VARIABLE: &str = "CLEARWAY_TRACES";

const ENDINGS: [&str; 3] = [".trace.gz", ".lis.zst", ".trace.xz"];

/// The folder of the traces: [`DIRECTORY_VARIABLE`], else `../shared/traces` beside the repository.
pub fn directory() -> PathBuf {
    env::var_os(DIRECTORY_VARIABLE).map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces").into(),
        PathBuf::from,
    )
}

/// The file of a trace, as `lirs_multi1` or `OLTP`; `None` if it is not there.
pub fn find(name: &str) -> Option<PathBuf> {
    let directory = directory();
    ENDINGS
        .iter()
        .map(|ending| directory.join(format!("{name}{ending}")))
        .find(|path| path.is_file())
}

/// Reads a trace; `None` if it is not there.
pub fn load(name: &str) -> Option<Result<Trace, TraceError>> {
    find(name).map(|path| read(name, &path))
}
