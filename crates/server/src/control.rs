//! The control socket: a Unix socket inside the data directory, for users with access to it.
//!
//! It speaks the same protocol as the other sockets. Its sessions may also run statements that
//! concern the whole directory, such as BACKUP. The file system controls access: only the owner may
//! open the socket. `psql -h /absolute/DIR -p 1` connects to it.
//!
//! A crash leaves a stale socket. The next start, which holds the directory's lock, removes it.

use crate::client::{Client, Reply};
use clearway_types::SqlError;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// libpq's name for a socket of port 1.
pub(crate) const NAME: &str = ".s.PGSQL.1";
/// The longest path that fits in a socket address, in bytes.
const MAX_PATH: usize = 107;

/// Calls `with` with a path to the socket of this name that fits in a socket address.
pub(crate) fn reach<T>(
    dir: &Path,
    name: &str,
    with: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = dir.join(name);
    if path.as_os_str().len() <= MAX_PATH {
        return with(&path);
    }
    let dir = File::open(dir)?;
    with(&PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))
}

/// Listens in a data directory whose lock this process holds.
pub(crate) fn listen(dir: &Path) -> io::Result<mio::net::UnixListener> {
    remove(dir)?;
    let listener = reach(dir, NAME, |path| mio::net::UnixListener::bind(path))?;
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

/// Runs a statement on the server that has the directory open; passes notices and rows to
/// `on_reply`.
///
/// # Errors
/// The outer error: there is no such server, or the connection is lost. The inner error: the
/// server reported it.
pub(crate) fn run(
    dir: &Path,
    sql: &str,
    on_reply: &mut dyn FnMut(Reply),
) -> io::Result<Result<(), SqlError>> {
    let stream = reach(dir, NAME, |path| UnixStream::connect(path))?;
    Client::log_in(stream, "clearway backup")?.run(sql, on_reply)
}
