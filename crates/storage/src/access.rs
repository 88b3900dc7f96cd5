//! Protects a data directory: from a second server, from other users' writes, and from a crash that
//! loses its name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_env::{Disk, DiskLock};

use crate::error::OpenError;
use crate::owned::OwnedDisk;

/// Locks a directory, which must exist.
pub(crate) fn lock(disk: &dyn Disk, dir: &Path) -> Result<DiskLock, OpenError> {
    disk.lock(&lock_file(dir)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            OpenError::InUse(format!("the data directory {}", dir.display()))
        }
        _ => OpenError::io(format!("cannot lock {}", dir.display()))(error),
    })
}

/// Returns the disk for a directory that the caller has locked: see [`OwnedDisk`].
pub(crate) fn owned(disk: Arc<dyn Disk>, dir: &Path) -> Result<OwnedDisk, OpenError> {
    let io = OpenError::io(format!("cannot look at the lock of {}", dir.display()));
    OwnedDisk::new(disk, dir, lock_file(dir)).map_err(io)
}

/// Returns the name of a directory's lock file.
pub(crate) fn lock_file(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// Makes the names of a directory and its ancestors durable, since they may just have been created.
/// The caller also syncs the directory itself.
///
/// Skips ancestors in which we cannot have created a name: those that we may not read, and those of
/// a file system that is read-only or does not sync directories, such as squashfs. An ancestor with
/// a new name is on the same file system as `dir`, so there the sync of `dir` itself also fails.
pub(crate) fn sync_parents(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    sync_each_parent(dir, |above| disk.sync_dir(above))
}

fn sync_each_parent(dir: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    dir.ancestors().skip(1).try_for_each(|above| match sync(above) {
        Err(error)
            if matches!(error.kind(), PermissionDenied | InvalidInput | ReadOnlyFilesystem) =>
        {
            Ok(())
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestor_that_cannot_be_synced_is_skipped() {
        let synced = |above: &str, kind: io::ErrorKind| {
            sync_each_parent(Path::new("/mnt/x/data"), |dir| {
                if dir == Path::new(above) { Err(kind.into()) } else { Ok(()) }
            })
        };
        for kind in [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::InvalidInput,
            io::ErrorKind::ReadOnlyFilesystem,
        ] {
            for above in ["/", "/mnt", "/mnt/x"] {
                assert!(synced(above, kind).is_ok(), "{above}: {kind}");
            }
        }
        for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
            assert_eq!(synced("/", kind).map_err(|e| e.kind()), Err(kind));
        }
    }
}
