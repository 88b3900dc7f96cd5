//! Who else may write to what a server believes.

use std::path::Path;

use clearway_env::Disk;

use crate::error::OpenError;

/// Refuses a data directory, or one that is to become one, if other users may write to it or to
/// what is in it. What they may read is the owner's choice. Links that lead elsewhere are followed.
pub(crate) fn refuse_shared(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let io = || OpenError::io(format!("cannot look into {}", dir.display()));
    let mut ours = vec![dir.to_owned()];
    for name in ["control", "lock", "wal", "data"] {
        let path = dir.join(name);
        if !disk.exists(&path).map_err(io())? {
            continue;
        }
        if matches!(name, "wal" | "data") {
            let names = disk.list(&path).map_err(io())?;
            ours.extend(names.iter().map(|name| path.join(name)));
        }
        ours.push(path);
    }
    for path in ours {
        if disk.others_may_write(&path).map_err(io())? {
            return Err(OpenError::Shared(path.display().to_string()));
        }
    }
    Ok(())
}
