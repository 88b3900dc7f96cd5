//! Protects a data directory: from a second server, from other users' writes, and from a crash that
//! loses its name.

use std::io;
use std::path::Path;

use clearway_env::{Disk, DiskLock};

use crate::error::OpenError;

/// Locks a directory, which must exist.
pub(crate) fn lock(disk: &dyn Disk, dir: &Path) -> Result<DiskLock, OpenError> {
    disk.lock(&dir.join("lock")).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            OpenError::InUse(format!("the data directory {}", dir.display()))
        }
        _ => OpenError::io(format!("cannot lock {}", dir.display()))(error),
    })
}

/// Makes the names of a directory and its ancestors durable, since they may just have been created.
/// Skips directories that we may not read: we did not create them.
pub(crate) fn sync_parents(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    dir.ancestors().skip(1).try_for_each(|above| match disk.sync_dir(above) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    })
}

/// Refuses a data directory if other users may write to it or to a file in it. Also checks a
/// directory that is about to become a data directory. Read permission is the owner's choice.
/// Symbolic links are followed.
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
