//! A connection that sends prepared statements without blocking, so that one thread can drive many
//! connections.
//!
//! pgbench polls all of its sockets whenever one is ready. With a thousand clients that costs more
//! than the transactions. These connections use epoll.
//!
//! They are Unix sockets, like those of psql and pgbench without `-h`. By TCP on one machine the
//! sender also does the receiver's work in the kernel, so a server would pay for its clients.

use clearway_harness::batch::MessageBatch;
use clearway_harness::client::startup;
use clearway_harness::{Endpoint, Res};
use mio::event::Source;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::time::Duration;

/// Maximum time for a login.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum message length; a longer message means that the server is broken.
const MESSAGE_LIMIT: usize = 1 << 20;
/// Size of a read, more than an answer has. The buffer is on the stack: if every connection had its
/// own, a thousand would not fit in the processor's caches, and the client would seem to be a slow
/// server.
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
    stream: UnixStream,
    inbox: Inbox,
    batch: MessageBatch,
}

/// Bytes of an incomplete answer, and what is parsed of it.
#[derive(Debug, Default)]
struct Inbox {
    bytes: Vec<u8>,
    answer: Answer,
}

/// What a connection has received.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    /// A complete answer.
    Answer(Answer),
    /// A part of an answer. Nothing more is readable.
    Part,
    /// Nothing.
    Nothing,
}

impl Session {
    /// Logs in at the socket as the endpoint says, and prepares the statements, blocking.
    pub fn open(socket: &Path, endpoint: &Endpoint, statements: &[&str]) -> Res<Self> {
        let open = || -> io::Result<(BlockingStream, Inbox)> {
            let mut stream = BlockingStream::connect(socket)?;
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
        let (stream, inbox) = open().map_err(|e| format!("{}: {e}", socket.display()))?;
        Ok(Self { stream: UnixStream::from_std(stream), inbox, batch: MessageBatch::default() })
    }

    /// Registers the connection for readability.
    pub fn register(&mut self, registry: &Registry, token: Token) -> Res<()> {
        self.stream.register(registry, token, Interest::READABLE).map_err(|e| e.to_string())
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
        // One request is on its way at most, and the kernel takes many times its size.
        self.stream.write_all(self.batch.bytes()).map_err(|e| format!("connection lost: {e}"))
    }

    /// Returns the answer if it is complete. Call it once for each event.
    pub fn receive(&mut self) -> Res<Option<Answer>> {
        match self.inbox.receive(&mut self.stream) {
            Ok(Received::Answer(answer)) => Ok(Some(answer)),
            Ok(Received::Part | Received::Nothing) => Ok(None),
            Err(e) => Err(format!("connection lost: {e}")),
        }
    }
}

impl Inbox {
    /// Waits for the complete answer; a server error is an error.
    fn wait(&mut self, from: &mut BlockingStream) -> io::Result<()> {
        let answer = loop {
            match self.receive(from)? {
                Received::Answer(answer) => break answer,
                Received::Part => {}
                Received::Nothing => {
                    return Err(io::Error::other(format!("no answer in {LIMIT:?}")));
                }
            }
        };
        match answer.error {
            Some((code, message)) => Err(io::Error::other(format!("{code}: {message}"))),
            None => Ok(()),
        }
    }

    /// Reads until an answer is complete (its ReadyForQuery has arrived) or nothing more is
    /// readable. A read that does not fill its buffer has taken everything, and more bytes cause
    /// another event. So an answer that fits costs one read.
    fn receive(&mut self, from: &mut impl Read) -> io::Result<Received> {
        let mut buffer = [0; READ];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.bytes.extend_from_slice(&buffer[..read]);
            if let Some(answer) = self.take()? {
                return Ok(Received::Answer(answer));
            }
            if read < READ {
                return Ok(Received::Part);
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

    /// Returns its data in pieces, and counts the reads.
    struct Pieces<'a> {
        left: Vec<&'a [u8]>,
        reads: usize,
    }

    impl<'a> Pieces<'a> {
        fn new(pieces: &[&'a [u8]]) -> Self {
            Self { left: pieces.to_vec(), reads: 0 }
        }
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            let Some(piece) = self.left.first_mut() else {
                return Err(ErrorKind::WouldBlock.into());
            };
            let read = piece.read(buffer)?;
            if piece.is_empty() {
                self.left.remove(0);
            }
            Ok(read)
        }
    }

    fn answer(received: Received) -> Answer {
        match received {
            Received::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    const ROW: &[u8] = b"D\0\0\0\x0c\0\x01\0\0\0\x0242";
    const READY: &[u8] = b"Z\0\0\0\x05T";

    #[test]
    fn answers_end_at_ready_for_query_at_any_split() {
        let bytes = [ROW, READY].concat();
        for cut in 1..bytes.len() {
            let mut inbox = Inbox::default();
            let mut from = Pieces::new(&[&bytes[..cut], &bytes[cut..]]);
            assert_eq!(inbox.receive(&mut from).unwrap(), Received::Part, "cut at {cut}");
            let want = Answer { value: Some(42), error: None, in_block: true };
            assert_eq!(answer(inbox.receive(&mut from).unwrap()), want, "cut at {cut}");
            assert_eq!(from.reads, 2, "an answer in two pieces, cut at {cut}");
            assert_eq!(inbox.receive(&mut from).unwrap(), Received::Nothing, "cut at {cut}");
        }
    }

    #[test]
    fn answers_may_fill_the_buffer() {
        let field = 2 * READ - READY.len() - 11;
        let mut bytes = vec![b'D'];
        bytes.extend((field as u32 + 10).to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend((field as u32).to_be_bytes());
        bytes.resize(2 * READ - READY.len(), b'7');
        bytes.extend(READY);
        let mut from = Pieces::new(&[&bytes]);
        let got = answer(Inbox::default().receive(&mut from).unwrap());
        assert_eq!((got.in_block, from.reads), (true, 2));
    }

    #[test]
    fn errors_belong_to_one_answer() {
        let bytes =
            [b"E\0\0\0\x10C40001\0Mno\0\0".as_slice(), b"Z\0\0\0\x05E", b"Z\0\0\0\x05I"].concat();
        let mut inbox = Inbox::default();
        let mut from = Pieces::new(&[&bytes[..bytes.len() - 6], &bytes[bytes.len() - 6..]]);
        let failed = answer(inbox.receive(&mut from).unwrap());
        assert_eq!((failed.error, failed.in_block), (Some(("40001".into(), "no".into())), true));
        assert_eq!(answer(inbox.receive(&mut from).unwrap()), Answer::default());
    }

    #[test]
    fn malformed_messages_are_errors() {
        for malformed in [b"Z\0\0\0\x03", b"Z\xff\0\0\0"] {
            assert!(Inbox::default().receive(&mut Pieces::new(&[malformed])).is_err());
        }
        assert!(Inbox::default().receive(&mut io::empty()).is_err(), "the connection is closed");
    }
}
