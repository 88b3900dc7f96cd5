//! The control socket: a Unix socket inside the data directory, for those who may enter that.
//!
//! It speaks the same protocol as the others; its sessions may do what concerns the directory as a whole, such as BACKUP. Who may
//! connect is decided by the file system: the socket is its owner's alone. `psql -h DIR -p 1` finds it.
//!
//! A crash leaves the socket without anyone behind it. The next start, which has the directory's lock, removes it.

use clearway_types::{SqlError, SqlState};
use clearway_wire::frame;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// libpq's name for a socket of port 1.
const NAME: &str = ".s.PGSQL.1";
/// The longest path that fits in a socket's address.
const MAX_PATH: usize = 107;
/// Longest message from a server that is believed.
const MAX_MESSAGE: usize = 1 << 20;

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

/// What a server says while it works on a statement.
pub(crate) enum News {
    /// A notice.
    Notice(String),
    /// A row, as texts.
    Row(Vec<String>),
}

/// Has the server of a directory carry out a statement, and tells `news` what it says meanwhile.
///
/// # Errors
/// The outer one: there is no such server, or it is gone. The inner one: it said no.
pub(crate) fn ask(dir: &Path, sql: &str, news: &mut dyn FnMut(News)) -> io::Result<Result<(), SqlError>> {
    let mut stream = reach(dir, |path| UnixStream::connect(path))?;
    let mut startup = vec![0, 0, 0, 0, 0, 3, 0, 0];
    startup.extend_from_slice(b"user\0clearway\0database\0clearway\0application_name\0clearway backup\0\0");
    let len = startup.len() as u32;
    startup[..4].copy_from_slice(&len.to_be_bytes());
    stream.write_all(&startup)?;
    let mut bytes = Vec::new();
    until_ready(&mut stream, &mut bytes, &mut |_| {})?.map_err(io::Error::other)?;
    let mut query = vec![b'Q'];
    query.extend_from_slice(&(sql.len() as u32 + 5).to_be_bytes());
    query.extend_from_slice(sql.as_bytes());
    query.push(0);
    stream.write_all(&query)?;
    until_ready(&mut stream, &mut bytes, news)
}

/// Reads messages up to ReadyForQuery, or to an error that ends the session.
fn until_ready(
    stream: &mut UnixStream,
    bytes: &mut Vec<u8>,
    news: &mut dyn FnMut(News),
) -> io::Result<Result<(), SqlError>> {
    let mut result = Ok(());
    let mut chunk = [0; 8192];
    loop {
        while let Some(message) = frame(bytes, MAX_MESSAGE).map_err(io::Error::other)? {
            let body = bytes[5..message.len].to_vec();
            bytes.drain(..message.len);
            match message.tag {
                b'Z' => return Ok(result),
                b'N' => news(News::Notice(error(&body).message().to_owned())),
                b'D' => news(News::Row(row(&body).ok_or_else(|| io::Error::other("a row makes no sense"))?)),
                b'E' => result = Err(error(&body)),
                _ => {}
            }
        }
        match stream.read(&mut chunk)? {
            // After an error that ended the session, nothing else is to come.
            0 if result.is_err() => return Ok(result),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&chunk[..n]),
        }
    }
}

/// The error or notice in a message's body.
fn error(body: &[u8]) -> SqlError {
    let field = |kind: u8| {
        let found = body.split(|b| *b == 0).find(|f| f.first() == Some(&kind));
        found.map(|f| String::from_utf8_lossy(&f[1..]).into_owned())
    };
    let state = field(b'C').and_then(|code| code.into_bytes().try_into().ok()).map_or(SqlState::INTERNAL, SqlState);
    let error = SqlError::new(state, field(b'M').unwrap_or_default());
    match field(b'H') {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The values of a row, NULL as nothing.
fn row(body: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (value, after) = after.split_at_checked(u32::try_from(i32::from_be_bytes(*len)).unwrap_or(0) as usize)?;
        row.push(String::from_utf8_lossy(value).into_owned());
        rest = after;
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_understood_and_what_makes_no_sense_is_noticed() {
        let said = error(b"SERROR\0C53100\0Mno room\0Hremove it\0\0");
        assert_eq!(
            (said.state(), said.message(), said.get_hint()),
            (SqlState::DISK_FULL, "no room", Some("remove it"))
        );
        let body = [0, 2, 0, 0, 0, 2, b'4', b'2', 255, 255, 255, 255];
        assert_eq!(row(&body), Some(vec!["42".to_owned(), String::new()]));
        assert_eq!(row(&body[..7]), None);
    }
}
