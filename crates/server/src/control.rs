//! The control socket: a Unix socket inside the data directory, for those who may enter that.
//!
//! It speaks the same protocol as the others; its sessions may do what concerns the directory as a
//! whole, such as BACKUP. Who may connect is decided by the file system: the socket is its owner's
//! alone. `psql -h /absolute/DIR -p 1` finds it.
//!
//! A crash leaves the socket without anyone behind it. The next start, which has the directory's
//! lock, removes it.

use crate::client::{Client, News};
use clearway_types::SqlError;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// libpq's name for a socket of port 1.
const NAME: &str = ".s.PGSQL.1";
/// The longest path that fits in a socket's address.
const MAX_PATH: usize = 107;

/// Calls `with` with a path of the socket that is short enough.
fn reach<T>(dir: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = dir.join(NAME);
    if path.as_os_str().len() <= MAX_PATH {
        return with(&path);
    }
    let dir = File::open(dir)?;
    with(&PathBuf::from(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd())))
}

/// Listens in a data directory that is ours.
pub(crate) fn listen(dir: &Path) -> io::Result<mio::net::UnixListener> {
    remove(dir)?;
    let listener = reach(dir, |path| mio::net::UnixListener::bind(path))?;
    fs::set_permissions(dir.join(NAME), Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the socket.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(NAME)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Has the server of a directory carry out a statement, and tells `news` what it says meanwhile.
///
/// # Errors
/// The outer one: there is no such server, or it is gone. The inner one: it said no.
pub(crate) fn ask(
    dir: &Path,
    sql: &str,
    news: &mut dyn FnMut(News),
) -> io::Result<Result<(), SqlError>> {
    let stream = reach(dir, |path| UnixStream::connect(path))?;
    Client::log_in(stream, "clearway backup")?.ask(sql, news)
}
