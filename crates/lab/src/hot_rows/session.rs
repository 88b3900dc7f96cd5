//! A connection that sends prepared statements without blocking, so that one thread can drive many
//! connections.
//!
//! pgbench polls all of its sockets whenever one is ready. With a thousand clients that costs more
//! than the transactions. These connections use epoll.

use clearway_harness::batch::MessageBatch;
use clearway_harness::client::startup;
use clearway_harness::{Endpoint, Res};
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// Maximum time for a login.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum message length; a longer message means that the server is broken.
const MESSAGE_LIMIT: usize = 1 << 20;
/// Minimum size of a read.
const READ: usize = 4096;

/// The answer to one statement or pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// First value of the last row, if it is a number.
    pub value: Option<i64>,
    /// SQLSTATE and message, if the statement failed.
    pub error: Option<(String, String)>,
    /// Whether the session is in a transaction block, including a failed one.
    pub in_block: bool,
}

/// A logged-in connection with its statements prepared.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    inbox: Inbox,
    batch: MessageBatch,
    /// Bytes that the kernel has not accepted yet.
    outbox: Vec<u8>,
}

/// Bytes of an incomplete answer, and what is parsed of it.
#[derive(Debug, Default)]
struct Inbox {
    bytes: Vec<u8>,
    answer: Answer,
}

impl Session {
    /// Logs in and prepares the statements, blocking.
    pub fn open(endpoint: &Endpoint, statements: &[&str]) -> Res<Self> {
        let open = || -> io::Result<(std::net::TcpStream, Inbox)> {
            let mut stream = std::net::TcpStream::connect((endpoint.host.as_str(), endpoint.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            let mut inbox = Inbox::default();
            stream.write_all(&startup(endpoint))?;
            inbox.wait(&mut stream)?;
            let mut messages = MessageBatch::default();
            for (number, sql) in statements.iter().enumerate() {
                messages.prepare(number, sql);
            }
            messages.sync();
            stream.write_all(messages.bytes())?;
            inbox.wait(&mut stream)?;
            stream.set_nonblocking(true)?;
            Ok((stream, inbox))
        };
        let (stream, inbox) =
            open().map_err(|e| format!("{}:{}: {e}", endpoint.host, endpoint.port))?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            inbox,
            batch: MessageBatch::default(),
            outbox: Vec::new(),
        })
    }

    /// Registers the connection for readability and writability.
    pub fn register(&mut self, registry: &Registry, token: Token) -> Res<()> {
        self.stream
            .register(registry, token, Interest::READABLE | Interest::WRITABLE)
            .map_err(|e| e.to_string())
    }

    /// Sends a statement with these values. The previous one must have been answered.
    pub fn send(&mut self, statement: usize, values: &[i64]) -> Res<()> {
        self.send_all([(statement, values)])
    }

    /// Sends statements with their values in one pipeline. The pipeline has one answer: the first
    /// error, or the last value.
    pub fn send_all<'v>(
        &mut self,
        statements: impl IntoIterator<Item = (usize, &'v [i64])>,
    ) -> Res<()> {
        self.batch.clear();
        statements
            .into_iter()
            .for_each(|(statement, values)| self.batch.execute(statement, values));
        self.batch.sync();
        self.outbox.extend_from_slice(self.batch.bytes());
        self.flush()
    }

    /// Sends pending bytes as far as the kernel accepts them.
    pub fn flush(&mut self) -> Res<()> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("connection lost: {e}")),
            }
        }
        Ok(())
    }

    /// Returns the answer if it is complete.
    pub fn receive(&mut self) -> Res<Option<Answer>> {
        self.inbox.receive(&mut self.stream).map_err(|e| format!("connection lost: {e}"))
    }
}

impl Inbox {
    /// Waits for the complete answer; a server error is an error.
    fn wait(&mut self, from: &mut std::net::TcpStream) -> io::Result<()> {
        let answer = self
            .receive(from)?
            .ok_or_else(|| io::Error::other(format!("no answer in {LIMIT:?}")))?;
        match answer.error {
            Some((code, message)) => Err(io::Error::other(format!("{code}: {message}"))),
            None => Ok(()),
        }
    }

    /// Reads until an answer is complete (its ReadyForQuery has arrived) or nothing is readable.
    fn receive(&mut self, from: &mut impl Read) -> io::Result<Option<Answer>> {
        loop {
            if let Some(answer) = self.take()? {
                return Ok(Some(answer));
            }
            let end = self.bytes.len();
            self.bytes.resize(end + READ, 0);
            let read = from.read(&mut self.bytes[end..]);
            self.bytes.truncate(end + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Parses the complete messages.
    fn take(&mut self) -> io::Result<Option<Answer>> {
        let mut at = 0;
        let mut whole = None;
        while let Some(([kind, length @ ..], rest)) = self.bytes[at..].split_first_chunk::<5>() {
            let length = u32::from_be_bytes(*length) as usize;
            if !(4..=MESSAGE_LIMIT).contains(&length) {
                return Err(io::Error::other(format!(
                    "message {:?} of length {length}",
                    char::from(*kind)
                )));
            }
            let Some(body) = rest.get(..length - 4) else { break };
            match kind {
                b'D' => self.answer.value = first_value(body),
                b'E' => {
                    let field = |kind| clearway_harness::client::field(body, kind);
                    self.answer.error = Some((field(b'C'), field(b'M')));
                }
                b'Z' => {
                    self.answer.in_block = body != b"I";
                    whole = Some(std::mem::take(&mut self.answer));
                }
                // Completions, descriptions, notices, parameters: ignored.
                _ => {}
            }
            at += 1 + length;
        }
        self.bytes.drain(..at);
        Ok(whole)
    }
}

fn first_value(row: &[u8]) -> Option<i64> {
    clearway_harness::client::data_row(row)?.first()?.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns its data in pieces, with `WouldBlock` between them.
    struct Pieces<'a>(Vec<&'a [u8]>);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.first_mut() {
                None => Err(ErrorKind::WouldBlock.into()),
                Some([]) => {
                    self.0.remove(0);
                    Err(ErrorKind::WouldBlock.into())
                }
                Some(piece) => piece.read(buffer),
            }
        }
    }

    const ROW: &[u8] = b"D\0\0\0\x0c\0\x01\0\0\0\x0242";
    const READY: &[u8] = b"Z\0\0\0\x05T";

    #[test]
    fn answers_end_at_ready_for_query_at_any_split() {
        let bytes = [ROW, READY].concat();
        for cut in 1..bytes.len() {
            let mut inbox = Inbox::default();
            let mut from = Pieces(vec![&bytes[..cut], &bytes[cut..]]);
            assert_eq!(inbox.receive(&mut from).unwrap(), None, "cut at {cut}");
            let want = Answer { value: Some(42), error: None, in_block: true };
            assert_eq!(inbox.receive(&mut from).unwrap(), Some(want), "cut at {cut}");
        }
    }

    #[test]
    fn errors_belong_to_one_answer() {
        let bytes =
            [b"E\0\0\0\x10C40001\0Mno\0\0".as_slice(), b"Z\0\0\0\x05E", b"Z\0\0\0\x05I"].concat();
        let mut inbox = Inbox::default();
        let mut from = Pieces(vec![&bytes[..bytes.len() - 6], &bytes[bytes.len() - 6..]]);
        let failed = inbox.receive(&mut from).unwrap().unwrap();
        assert_eq!((failed.error, failed.in_block), (Some(("40001".into(), "no".into())), true));
        assert_eq!(inbox.receive(&mut from).unwrap(), None);
        assert_eq!(inbox.receive(&mut from).unwrap(), Some(Answer::default()));
    }

    #[test]
    fn malformed_messages_are_errors() {
        assert!(Inbox::default().receive(&mut Pieces(vec![b"Z\0\0\0\x03"])).is_err());
        assert!(Inbox::default().receive(&mut Pieces(vec![b"Z\xff\0\0\0"])).is_err());
        assert!(Inbox::default().receive(&mut io::empty()).is_err(), "the connection is closed");
    }
}
