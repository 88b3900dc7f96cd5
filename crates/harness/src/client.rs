//! A small blocking client for PostgreSQL's simple protocol.
//!
//! The crash test must know exactly which statements the server acknowledged before it died; psql
//! and pgbench do not report that. Text format only, no password, no TLS.

use crate::{Endpoint, Res};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Maximum message length; a longer message means that the server is broken.
const MESSAGE_LIMIT: usize = 64 << 20;

/// A connected session.
#[derive(Debug)]
pub struct PgClient {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    status: u8,
}

/// Why a query failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// The server reported an error; the session is still usable.
    Sql {
        /// SQLSTATE, five characters.
        code: String,
        /// The primary message.
        message: String,
        /// The detail; empty if there is none.
        detail: String,
        /// The context; empty if there is none.
        context: String,
    },
    /// The connection is lost or out of protocol. A statement that was not acknowledged may or may
    /// not have taken effect.
    Lost(String),
}

impl std::fmt::Display for QueryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql { code, message, .. } => write!(f, "{code}: {message}"),
            Self::Lost(why) => write!(f, "connection lost: {why}"),
        }
    }
}

impl From<QueryError> for String {
    fn from(e: QueryError) -> Self {
        e.to_string()
    }
}

/// Rows as text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// Result of a query string: the rows of all its statements, and the last command tag.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// All rows, in order.
    pub rows: Rows,
    /// The last statement's tag, such as `UPDATE 1`.
    pub tag: String,
    /// Notices and warnings, such as `WARNING 25P01: there is no transaction in progress`.
    pub notices: Vec<String>,
}

impl PgClient {
    /// Connects and logs in. `limit` bounds the wait for each answer, now and later.
    pub fn connect(endpoint: &Endpoint, limit: Duration) -> Res<Self> {
        let target = (endpoint.host.as_str(), endpoint.port);
        let stream = TcpStream::connect(target)
            .map_err(|e| format!("{}:{}: {e}", endpoint.host, endpoint.port))?;
        let set_up = || -> std::io::Result<TcpStream> {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(limit))?;
            stream.try_clone()
        };
        let reader = BufReader::new(set_up().map_err(|e| e.to_string())?);
        let mut client = Self { reader, writer: stream, status: b'I' };
        client.writer.write_all(&startup(endpoint)).map_err(|e| e.to_string())?;
        client.read_to_ready().map_err(String::from)?;
        Ok(client)
    }

    /// Ends the session and waits until the server has closed the connection: the server no longer
    /// counts the session then. Dropping the client instead lets the server notice the end later.
    pub fn end(mut self) -> Res<()> {
        self.write(b"X\0\0\0\x04").map_err(String::from)?;
        match self.reader.read_to_end(&mut Vec::new()) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("the server did not close the connection: {e}")),
        }
    }

    /// Returns the transaction status that the server last reported: idle (`I`), in a transaction
    /// (`T`) or in a failed one (`E`).
    pub fn status(&self) -> char {
        char::from(self.status)
    }

    /// Sends a query string and waits for the complete answer.
    pub fn query(&mut self, sql: &str) -> Result<Answer, QueryError> {
        self.send(sql)?;
        self.read_to_ready()
    }

    /// Sends a query string; for COPY FROM STDIN also `data` and its end. Returns the answer's
    /// messages with their tags, in order, without ReadyForQuery.
    pub fn messages(
        &mut self,
        sql: &str,
        data: Option<&[u8]>,
    ) -> Result<Vec<(u8, Vec<u8>)>, QueryError> {
        self.send(sql)?;
        if let Some(data) = data {
            self.send_copy_data(data)?;
        }
        let mut out = Vec::new();
        loop {
            let (tag, body) = self.read_message()?;
            if tag == b'Z' {
                self.status = *body.first().ok_or_else(|| lost("empty ReadyForQuery"))?;
                return Ok(out);
            }
            out.push((tag, body));
        }
    }

    fn send_copy_data(&mut self, data: &[u8]) -> Result<(), QueryError> {
        let mut message = vec![b'd'];
        message.extend_from_slice(&(data.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(data);
        message.extend_from_slice(b"c\0\0\0\x04");
        self.writer.write_all(&message).map_err(lost)
    }

    /// Sends a query string without waiting. [`PgClient::receive`] must follow.
    pub fn send(&mut self, sql: &str) -> Result<(), QueryError> {
        let mut message = vec![b'Q'];
        message.extend_from_slice(&(sql.len() as u32 + 5).to_be_bytes());
        message.extend_from_slice(sql.as_bytes());
        message.push(0);
        self.writer.write_all(&message).map_err(lost)
    }

    /// Like [`PgClient::send`], but sends one statement without parameters by the extended
    /// protocol, up to Sync.
    pub fn send_extended(&mut self, sql: &str) -> Result<(), QueryError> {
        let mut messages = vec![b'P'];
        messages.extend_from_slice(&(sql.len() as u32 + 8).to_be_bytes());
        messages.push(0);
        messages.extend_from_slice(sql.as_bytes());
        messages.extend_from_slice(&[0; 3]);
        messages.extend_from_slice(b"B\0\0\0\x0c\0\0\0\0\0\0\0\0");
        messages.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
        messages.extend_from_slice(b"S\0\0\0\x04");
        self.writer.write_all(&messages).map_err(lost)
    }

    /// Receives the answer to [`PgClient::send`].
    pub fn receive(&mut self) -> Result<Answer, QueryError> {
        self.read_to_ready()
    }

    /// Returns the single value of the single row as a number.
    pub fn number(&mut self, sql: &str) -> Res<i64> {
        let answer = self.query(sql).map_err(|e| format!("{sql}: {e}"))?;
        match answer.rows.as_slice() {
            [row] if row.len() == 1 => {
                let text = row[0].as_deref().unwrap_or("0");
                text.parse().map_err(|_| format!("{sql}: `{text}` is not a number"))
            }
            rows => Err(format!("{sql}: expected one value, got {} rows", rows.len())),
        }
    }

    fn read_to_ready(&mut self) -> Result<Answer, QueryError> {
        let mut answer = Answer::default();
        let mut failure = None;
        loop {
            let (kind, body) = self.read_message()?;
            match kind {
                b'Z' => {
                    self.set_status(&body)?;
                    return failure.map_or(Ok(answer), Err);
                }
                b'E' => failure = failure.or(Some(sql_error(&body))),
                b'R' if body.get(..4) != Some(&[0; 4]) => {
                    return Err(lost("the server requests a password"));
                }
                _ => self.take(kind, &body, &mut answer)?,
            }
        }
    }

    /// Handles a message that is part of an answer.
    pub(crate) fn take(
        &mut self,
        kind: u8,
        body: &[u8],
        answer: &mut Answer,
    ) -> Result<(), QueryError> {
        match kind {
            b'D' => answer.rows.push(data_row(body).ok_or_else(|| lost("malformed DataRow"))?),
            b'C' => answer.tag = c_string(body),
            b'N' => answer.notices.push(notice(body)),
            // Parameter status, key data, row description, empty query: ignored.
            _ => {}
        }
        Ok(())
    }

    /// Handles a ReadyForQuery.
    pub(crate) fn set_status(&mut self, body: &[u8]) -> Result<(), QueryError> {
        self.status = *body.first().ok_or_else(|| lost("empty ReadyForQuery"))?;
        Ok(())
    }

    /// Sends raw bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), QueryError> {
        self.writer.write_all(bytes).map_err(lost)
    }

    pub(crate) fn read_message(&mut self) -> Result<(u8, Vec<u8>), QueryError> {
        let mut head = [0; 5];
        self.reader.read_exact(&mut head).map_err(lost)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_LIMIT).contains(&length) {
            return Err(lost(format!("message {:?} of length {length}", char::from(head[0]))));
        }
        let mut body = vec![0; length - 4];
        self.reader.read_exact(&mut body).map_err(lost)?;
        Ok((head[0], body))
    }
}

/// Returns the startup message.
pub fn startup(endpoint: &Endpoint) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for text in ["user", &endpoint.user, "database", &endpoint.database, ""] {
        body.extend_from_slice(text.as_bytes());
        body.push(0);
    }
    let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

pub(crate) fn lost(why: impl ToString) -> QueryError {
    QueryError::Lost(why.to_string())
}

fn c_string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// Returns a field of an ErrorResponse or NoticeResponse; empty if it is missing.
pub fn field(body: &[u8], kind: u8) -> String {
    let found = body.split(|b| *b == 0).find(|f| f.first() == Some(&kind));
    found.map(|f| String::from_utf8_lossy(&f[1..]).into_owned()).unwrap_or_default()
}

fn notice(body: &[u8]) -> String {
    format!("{} {}: {}", field(body, b'S'), field(body, b'C'), field(body, b'M'))
}

pub(crate) fn sql_error(body: &[u8]) -> QueryError {
    let field = |kind| field(body, kind);
    QueryError::Sql {
        code: field(b'C'),
        message: field(b'M'),
        detail: field(b'D'),
        context: field(b'W'),
    }
}

/// Parses a DataRow; returns `None` if it is malformed.
pub fn data_row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::with_capacity(usize::from(u16::from_be_bytes(*count)));
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(*length);
        if length < 0 {
            row.push(None);
            rest = after;
        } else {
            let (value, after) = after.split_at_checked(length as usize)?;
            row.push(Some(String::from_utf8_lossy(value).into_owned()));
            rest = after;
        }
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_rows_are_parsed() {
        let body = [0, 2, 0, 0, 0, 2, b'4', b'2', 255, 255, 255, 255];
        assert_eq!(data_row(&body), Some(vec![Some("42".into()), None]));
        assert_eq!(data_row(&body[..7]), None);
    }

    #[test]
    fn errors_have_code_message_and_detail() {
        let body = b"SERROR\0C23505\0Mduplicate\0DKey (a)=(1)\0\0";
        let want = QueryError::Sql {
            code: "23505".into(),
            message: "duplicate".into(),
            detail: "Key (a)=(1)".into(),
            context: String::new(),
        };
        assert_eq!(sql_error(body), want);
    }
}
