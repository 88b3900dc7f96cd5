//! Plays a message in a state and records everything that the server sends.

use super::messages::{GSS, Named, SSL, encryption};
use super::states::{State, ending};
use crate::raw::{LIMIT, parse, query, startup, sync};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The server's replies to a message, up to the end of the connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The replies if the client's stream ends after the message.
    pub alone: String,
    /// The replies if the client sends further messages.
    pub going_on: String,
}

/// A message, a state, and the answer.
pub type Cell = (String, String, Answer);

/// The message types that answer a startup packet.
const LOGGED_IN: &str = "RSSSSSSSSSSSSSKZ";

struct Player {
    stream: UnixStream,
    heard: Vec<u8>,
    name: String,
}

impl Player {
    fn new(socket: &Path, name: String) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream, heard: Vec::new(), name }
    }

    /// Sends bytes; an error means that the server has closed the connection.
    fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes));
    }

    /// Reads once; returns false at the end. A server that closes with unread input resets the
    /// connection after its last reply.
    fn hear(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(n) => {
                self.heard.extend_from_slice(&chunk[..n]);
                n > 0
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => false,
            Err(e) => {
                panic!("{}: {e} after {:?}", self.name, self.heard.escape_ascii().to_string())
            }
        }
    }

    /// Reads messages of these types.
    fn expect(&mut self, tags: &str) {
        for tag in tags.chars() {
            let len = loop {
                if let Some(len) = frame(&self.heard) {
                    break len;
                }
                assert!(self.hear(), "{}: closed before {tag} of {tags}", self.name);
            };
            assert_eq!(
                char::from(self.heard[0]),
                tag,
                "{}: {}",
                self.name,
                shown(&self.heard[..len])
            );
            self.heard.drain(..len);
        }
    }

    /// Reads everything up to the end of the connection.
    fn rest(mut self) -> Vec<u8> {
        // Fails if the server has already closed the connection.
        drop(self.stream.shutdown(Shutdown::Write));
        while self.hear() {}
        self.heard
    }
}

/// The length of the message at the front.
fn frame(bytes: &[u8]) -> Option<usize> {
    let (head, _) = bytes[bytes.len().min(1)..].split_first_chunk::<4>()?;
    let len = 1 + u32::from_be_bytes(*head) as usize;
    (len > 4 && len <= bytes.len()).then_some(len)
}

/// Fields of errors that refer to PostgreSQL's source.
const SOURCE: [u8; 3] = [b'F', b'L', b'R'];

/// Abbreviations of common messages, to keep the file readable. Each stands for exactly one
/// message.
const SHORT: [(&str, &str); 6] = [
    (
        "E ERROR C25P02 Mcurrent transaction is aborted, commands ignored until end of transaction block",
        "(failed block)",
    ),
    ("E ERROR C26000 Munnamed prepared statement does not exist", "(no statement)"),
    (r#"E ERROR C34000 Mportal \"\" does not exist"#, "(no portal)"),
    (r#"E ERROR C34000 Mportal \"p\" does not exist"#, "(no portal p)"),
    (
        r"T \x00\x01count\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x14\x00\x08\xff\xff\xff\xff\x00\x00",
        "(count)",
    ),
    ("E FATAL C08P01 Mterminating connection because protocol synchronization was lost", "(lost)"),
];

fn short(text: String) -> String {
    SHORT.iter().find(|(long, _)| *long == text).map_or(text, |(_, short)| (*short).to_owned())
}

/// Formats a message without the parts that differ between servers: source locations of errors,
/// keys, the version.
fn shown(message: &[u8]) -> String {
    let (tag, body) = (char::from(message[0]), &message[5..]);
    let text = match tag {
        'E' | 'N' => {
            let fields = body
                .split(|b| *b == 0)
                .filter(|f| f.first().is_some_and(|code| !SOURCE.contains(code)));
            let mut fields: Vec<String> = fields.map(|f| f.escape_ascii().to_string()).collect();
            if fields.len() > 1 && fields[0][1..] == fields[1][1..] {
                // The localized severity and the English one.
                fields[0] = fields.remove(1)[1..].to_owned();
            }
            return format!("{tag} {}", fields.join(" "));
        }
        'K' => format!("{} bytes", body.len()),
        'S' if body.starts_with(b"server_version\0") => "server_version".to_owned(),
        _ => body.escape_ascii().to_string(),
    };
    if text.is_empty() { tag.to_string() } else { format!("{tag} {text}") }
}

fn all_shown(mut bytes: &[u8]) -> String {
    let mut all = Vec::new();
    while let Some(len) = frame(bytes) {
        all.push(short(shown(&bytes[..len])));
        bytes = &bytes[len..];
    }
    if !bytes.is_empty() {
        all.push(format!("bytes {}", bytes.escape_ascii()));
    }
    if all.is_empty() { "-".to_owned() } else { all.join(" | ") }
}

/// A server and database to play messages in.
struct Place<'a> {
    socket: &'a Path,
    database: &'a str,
}

impl Place<'_> {
    fn connect(&self, name: String) -> Player {
        let mut player = Player::new(self.socket, name);
        player.send(&startup(&[("user", "postgres"), ("database", self.database)]));
        player.expect(LOGGED_IN);
        player
    }

    fn prepare(&self) {
        let mut player = self.connect(self.database.to_owned());
        player.send(&query("create table matrix (a int primary key)"));
        player.send(&query("insert into matrix values (1), (2), (3)"));
        player.expect("CZCZ");
    }

    /// Opens a connection in this state.
    fn enter(&self, state: &State, message: &str) -> Player {
        let mut player = self.connect(format!("{} / {message}", state.name));
        player.send(
            &[
                // Removes rows that earlier sessions have committed.
                query("delete from matrix where a > 3"),
                parse("s", "select $1::int4 + 1 as c", &[]),
                sync(),
                state.setup.clone(),
            ]
            .concat(),
        );
        player.expect("CZ1Z");
        player.expect(state.answers);
        player
    }

    /// Plays a message in this state: once with nothing after it, once followed by messages that
    /// show what it has changed.
    fn play(&self, state: &State, (name, bytes): &Named) -> Cell {
        let [alone, going_on] = [vec![], ending(state.copying)].map(|end| {
            let mut player = self.enter(state, name);
            player.send(&[bytes.clone(), end].concat());
            all_shown(&player.rest())
        });
        (format!("message: {name}"), state.name.to_owned(), Answer { alone, going_on })
    }
}

/// Encryption requests before the packet. Each is sent after the answer to the previous one.
pub const BEFORE: [(&str, &[u32]); 5] = [
    ("first", &[]),
    ("after SSL", &[SSL]),
    ("after GSS", &[GSS]),
    ("after SSL and GSS", &[SSL, GSS]),
    ("after GSS and SSL", &[GSS, SSL]),
];

/// Plays a packet that precedes a session.
pub fn play_packet(socket: &Path, (when, before): &(&str, &[u32]), (name, bytes): &Named) -> Cell {
    let [alone, going_on] = [vec![], [query("select 1"), crate::raw::message(b'X', b"")].concat()]
        .map(|end| {
            let mut player = Player::new(socket, format!("{when} / {name}"));
            for code in *before {
                player.send(&encryption(*code));
                while player.heard.is_empty() {
                    assert!(player.hear(), "{}: closed", player.name);
                }
                assert_eq!(std::mem::take(&mut player.heard), b"N");
            }
            player.send(&[bytes.clone(), end].concat());
            let heard = player.rest();
            // The answer to an encryption request is a single letter, not a message.
            let letters = heard.iter().take_while(|b| **b == b'N').count();
            let (letters, messages) = heard.split_at(letters);
            format!("{}{}", String::from_utf8_lossy(letters), all_shown(messages))
        });
    (format!("packet: {name}"), (*when).to_owned(), Answer { alone, going_on })
}

/// Plays everything. The messages are divided among these databases, which run in parallel.
pub fn play_all(socket: &Path, databases: &[&str]) -> Vec<Cell> {
    let (packets, messages, states) =
        (super::messages::packets(), super::messages::messages(), super::states::states());
    let mut cells: Vec<Cell> = Vec::new();
    for packet in &packets {
        cells.extend(BEFORE.iter().map(|before| play_packet(socket, before, packet)));
    }
    let part = |first: usize| -> Vec<Vec<Cell>> {
        let at = Place { socket, database: databases[first] };
        at.prepare();
        let mine = messages.iter().skip(first).step_by(databases.len());
        mine.map(|message| states.iter().map(|state| at.play(state, message)).collect()).collect()
    };
    let mut parts: Vec<_> = std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> =
            (0..databases.len()).map(|first| scope.spawn(move || part(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().into_iter()).collect()
    });
    let turns = (0..messages.len()).map(|i| i % databases.len());
    cells.extend(turns.flat_map(|turn| parts[turn].next().unwrap()));
    cells
}
