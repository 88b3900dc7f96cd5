//! A minimal client of the simple query protocol, for the commands `backup` and `top`.

use clearway_types::{SqlError, SqlState};
use clearway_wire::frontend::server_frame;
use std::io::{self, Read, Write};

/// Longest accepted message from a server, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Longest accepted answer to one statement, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// What a server sends while it runs a statement.
pub(crate) enum Reply {
    /// A notice.
    Notice(String),
    /// A row of text values; NULL is empty.
    Row(Vec<String>),
}

/// A session with a server.
pub(crate) struct Client<S> {
    stream: S,
    bytes: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    /// Logs in over a new connection, with this application name.
    ///
    /// # Errors
    /// The connection is lost, or the server refuses the login.
    pub(crate) fn log_in(mut stream: S, application: &str) -> io::Result<Self> {
        let mut startup = vec![0, 0, 0, 0, 0, 3, 0, 0];
        for text in
            ["user", "clearway", "database", "clearway", "application_name", application, ""]
        {
            startup.extend_from_slice(text.as_bytes());
            startup.push(0);
        }
        let len = startup.len() as u32;
        startup[..4].copy_from_slice(&len.to_be_bytes());
        stream.write_all(&startup)?;
        let mut client = Self { stream, bytes: Vec::new() };
        client.until_ready(&mut |_| {})?.map_err(io::Error::other)?;
        Ok(client)
    }

    /// Runs a statement and passes notices and rows to `on_reply`.
    ///
    /// # Errors
    /// The outer error: the connection is lost, or the server violates the protocol. The inner
    /// error: the server reported it.
    pub(crate) fn run(
        &mut self,
        sql: &str,
        on_reply: &mut dyn FnMut(Reply),
    ) -> io::Result<Result<(), SqlError>> {
        let mut query = vec![b'Q'];
        query.extend_from_slice(&(sql.len() as u32 + 5).to_be_bytes());
        query.extend_from_slice(sql.as_bytes());
        query.push(0);
        self.stream.write_all(&query)?;
        self.until_ready(on_reply)
    }

    /// Reads messages up to ReadyForQuery, or up to an error that ends the session.
    fn until_ready(&mut self, on_reply: &mut dyn FnMut(Reply)) -> io::Result<Result<(), SqlError>> {
        let mut result = Ok(());
        let mut chunk = [0; 8192];
        let mut received = 0;
        while received <= MAX_ANSWER {
            while let Some(message) =
                server_frame(&self.bytes, MAX_MESSAGE).map_err(io::Error::other)?
            {
                let body = self.bytes[5..message.len].to_vec();
                self.bytes.drain(..message.len);
                match message.tag {
                    b'Z' => return Ok(result),
                    b'N' => on_reply(Reply::Notice(error(&body).message().to_owned())),
                    b'D' => on_reply(Reply::Row(
                        row(&body).ok_or_else(|| io::Error::other("malformed row"))?,
                    )),
                    b'E' => result = Err(error(&body)),
                    // Any authentication request except AuthenticationOk.
                    b'R' if body != [0; 4] => {
                        return Err(io::Error::other("the server requires a password"));
                    }
                    _ => {}
                }
            }
            match self.stream.read(&mut chunk)? {
                // Nothing follows an error that ended the session.
                0 if result.is_err() => return Ok(result),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    self.bytes.extend_from_slice(&chunk[..n]);
                    received += n;
                }
            }
        }
        Err(io::Error::other("the answer is too long"))
    }
}

/// Decodes an ErrorResponse or NoticeResponse.
fn error(body: &[u8]) -> SqlError {
    let field = |kind: u8| {
        let found = body.split(|b| *b == 0).find(|f| f.first() == Some(&kind));
        found.map(|f| String::from_utf8_lossy(&f[1..]).into_owned())
    };
    let state = field(b'C')
        .and_then(|code| code.into_bytes().try_into().ok())
        .map_or(SqlState::INTERNAL, SqlState);
    let error = SqlError::new(state, field(b'M').unwrap_or_default());
    match field(b'H') {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Decodes a DataRow.
fn row(body: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (value, after) =
            after.split_at_checked(u32::try_from(i32::from_be_bytes(*len)).unwrap_or(0) as usize)?;
        row.push(String::from_utf8_lossy(value).into_owned());
        rest = after;
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends these bytes once or repeatedly, whatever it receives.
    struct Scripted {
        bytes: Vec<u8>,
        at: usize,
        forever: bool,
    }

    impl Read for Scripted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.at == self.bytes.len() && self.forever {
                self.at = 0;
            }
            let n = (&self.bytes[self.at..]).read(into)?;
            self.at += n;
            Ok(n)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LOG_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    const ROW: &[u8] = b"D\0\0\0\x0c\0\x01\0\0\0\x0242";

    fn rows_of(bytes: Vec<u8>, forever: bool) -> io::Result<Vec<Vec<String>>> {
        let mut rows = Vec::new();
        let mut client = Client::log_in(Scripted { bytes, at: 0, forever }, "test")?;
        client
            .run("select", &mut |on_reply| {
                if let Reply::Row(row) = on_reply {
                    rows.push(row);
                }
            })?
            .map_err(io::Error::other)?;
        Ok(rows)
    }

    #[test]
    fn invalid_answers_never_hang_or_panic() {
        let whole = [LOG_IN, ROW, b"Z\0\0\0\x05I"].concat();
        assert_eq!(rows_of(whole.clone(), false).unwrap(), [["42"]]);
        for end in 0..whole.len() {
            assert!(rows_of(whole[..end].to_vec(), false).is_err(), "{end}");
        }
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            // Whatever it decodes to: it ends, and nothing panics.
            let _ = rows_of(damaged, false);
        }
        let endless = Scripted { bytes: ROW.to_vec(), at: 0, forever: true };
        let refused = Client::log_in(endless, "test").err().unwrap();
        assert_eq!(refused.to_string(), "the answer is too long");
        assert!(rows_of(b"Z\0\0\0\x05I".to_vec(), true).unwrap().is_empty());
    }

    #[test]
    fn errors_and_rows_are_decoded() {
        let decoded = error(b"SERROR\0C53100\0Mno room\0Hremove it\0\0");
        assert_eq!(
            (decoded.state(), decoded.message(), decoded.get_hint()),
            (SqlState::DISK_FULL, "no room", Some("remove it"))
        );
        let body = [0, 2, 0, 0, 0, 2, b'4', b'2', 255, 255, 255, 255];
        assert_eq!(row(&body), Some(vec!["42".to_owned(), String::new()]));
        assert_eq!(row(&body[..7]), None);
    }
}
