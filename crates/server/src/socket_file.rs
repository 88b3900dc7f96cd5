//! The file of a Unix socket: whose it is, and who removes it.
//!
//! Invariants
//! 1. The file is replaced only if it is a socket on which nobody listens, as a killed server
//!    leaves it. A port says nothing about that: two servers can have the same one at different
//!    addresses, and PostgreSQL can listen on sockets only.
//! 2. A file is removed only by the server that bound it.
//!
//! Locking: none. Two servers that find the same stale socket at the same moment can both replace
//! it; then only the later one is reached.
//!
//! A crash leaves the file. The next start replaces it.

use mio::net::{UnixListener, UnixStream};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file of a bound socket. Drop it before the listener: as long as that is open, no other file
/// gets its inode number. Dropping removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl SocketFile {
    /// Listens on a socket at `path`; replaces a stale one.
    ///
    /// # Errors
    /// `AddrInUse` if somebody listens on it, or if the file is no socket.
    pub(crate) fn listen(path: PathBuf) -> io::Result<(UnixListener, Self)> {
        remove_stale(&path)?;
        let listener = UnixListener::bind(&path)?;
        let id = id(&fs::symlink_metadata(&path)?);
        Ok((listener, Self { path, id }))
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes a socket on which nobody listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(found) if !found.file_type().is_socket() => {
            return in_use("there is a file that is not a socket");
        }
        Ok(_) => {}
    }
    // Does not wait, even if the other server's queue is full.
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
        _ => return in_use("it is in use by another server"),
    }
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let path = self.path.display();
        let removed = match fs::symlink_metadata(&self.path) {
            Ok(found) if id(&found) == self.id => fs::remove_file(&self.path),
            Ok(_) => return tracing::warn!("{path} was replaced by another server's socket"),
            Err(e) => Err(e),
        };
        if let Err(e) = removed
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {path}: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariant_1_only_a_stale_socket_is_replaced() {
        let path = std::env::temp_dir().join(format!("clearway-socket-{}", std::process::id()));
        let refused = || SocketFile::listen(path.clone()).unwrap_err();
        fs::write(&path, "text").unwrap();
        assert_eq!(refused().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let (listener, file) = SocketFile::listen(path.clone()).unwrap();
        assert_eq!(refused().to_string(), "it is in use by another server");
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
        drop(listener);
    }

    #[test]
    fn invariant_2_replaced_file_is_not_removed() {
        let path = std::env::temp_dir().join(format!("clearway-replaced-{}", std::process::id()));
        let (listener, file) = SocketFile::listen(path.clone()).unwrap();
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok());
        drop((listener, other));
        fs::remove_file(&path).unwrap();
    }
}
