//! A client that sends exactly the bytes of a test, and returns the server's messages one by one.

use clearway_server::{Config, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time that a test waits for something that must happen.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A server for one test, on a free port, with a temporary data directory.
pub struct Fixture {
    server: Option<Server>,
    dir: PathBuf,
}

impl Fixture {
    pub fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }
    pub fn with(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        let dir = std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let mut config = Config::new(&dir);
        config.listen = "127.0.0.1:0".parse().unwrap();
        config.partitions = Some(4);
        config.workers = 2;
        config.buffer_pool = 8 << 20;
        config.log_segment = 4 << 20;
        config.log_buffer = 1 << 20;
        change(&mut config);
        Self { server: Some(Server::start(config).unwrap()), dir }
    }
    pub fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address()
    }
    pub fn metrics_address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().metrics_address().unwrap()
    }
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    pub fn connect(&self) -> Raw {
        Raw::connect(self.address())
    }
    pub fn stop(mut self) {
        self.server.take().unwrap().stop().unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let stopped = server.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub tag: char,
    pub body: Vec<u8>,
}

impl Message {
    /// The SQLSTATE of an error.
    pub fn code(&self) -> String {
        self.field(b'C')
    }
    /// An error's primary message.
    pub fn primary(&self) -> String {
        self.field(b'M')
    }
    /// An error's severity.
    pub fn severity(&self) -> String {
        self.field(b'S')
    }
    /// An error's detail.
    pub fn detail(&self) -> String {
        self.field(b'D')
    }
    /// An error's hint.
    pub fn hint(&self) -> String {
        self.field(b'H')
    }
    fn field(&self, code: u8) -> String {
        let mut fields = self.body.split(|&b| b == 0);
        let found = fields.find(|f| f.first() == Some(&code)).unwrap_or(&[]);
        String::from_utf8_lossy(found.get(1..).unwrap_or(&[])).into_owned()
    }
    /// The command tag.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim_end_matches('\0').to_owned()
    }
    /// The values of a DataRow.
    pub fn values(&self) -> Vec<Option<Vec<u8>>> {
        let mut rest = &self.body[2..];
        let mut out = Vec::new();
        while let Some((len, tail)) = rest.split_first_chunk::<4>() {
            let len = i32::from_be_bytes(*len);
            let n = len.max(0) as usize;
            out.push((len >= 0).then(|| tail[..n].to_vec()));
            rest = &tail[n..];
        }
        out
    }
}

/// A connection.
pub struct Raw {
    pub stream: TcpStream,
    pub pid: i32,
    pub secret: i32,
    pub parameters: Vec<String>,
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

pub fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = format!("{name}\0{sql}\0").into_bytes();
    body.extend((types.len() as u16).to_be_bytes());
    types.iter().for_each(|t| body.extend(t.to_be_bytes()));
    message(b'P', &body)
}

/// Text parameters; binary results if `binary` is set.
pub fn bind(portal: &str, statement: &str, params: &[&str], binary: bool) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0").into_bytes();
    body.extend([0, 0]);
    body.extend((params.len() as u16).to_be_bytes());
    for p in params {
        body.extend((p.len() as u32).to_be_bytes());
        body.extend_from_slice(p.as_bytes());
    }
    body.extend(if binary { &[0, 1, 0, 1][..] } else { &[0, 0][..] });
    message(b'B', &body)
}

pub fn describe(kind: char, name: &str) -> Vec<u8> {
    message(b'D', format!("{kind}{name}\0").as_bytes())
}

pub fn execute(portal: &str, max_rows: u32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.extend(max_rows.to_be_bytes());
    message(b'E', &body)
}

pub fn close(kind: char, name: &str) -> Vec<u8> {
    message(b'C', format!("{kind}{name}\0").as_bytes())
}

pub fn sync() -> Vec<u8> {
    message(b'S', &[])
}

pub fn flush() -> Vec<u8> {
    message(b'H', &[])
}

pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend(format!("{name}\0{value}\0").into_bytes());
    }
    body.push(0);
    let mut out = (body.len() as u32 + 4).to_be_bytes().to_vec();
    out.extend(body);
    out
}

impl Raw {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream, pid: 0, secret: 0, parameters: Vec::new() }
    }
    pub fn connect(address: SocketAddr) -> Self {
        let mut raw = Self::open(address);
        raw.send(&startup(&[("user", "tester")]));
        for m in raw.until_ready() {
            match m.tag {
                'K' => {
                    raw.pid = i32::from_be_bytes(m.body[..4].try_into().unwrap());
                    raw.secret = i32::from_be_bytes(m.body[4..].try_into().unwrap());
                }
                'S' => raw.parameters.push(m.text().replace('\0', "=")),
                _ => {}
            }
        }
        raw
    }
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }
    pub fn send_all(&mut self, messages: &[Vec<u8>]) {
        self.send(&messages.concat());
    }
    /// The next message; `None` if the server has closed the connection.
    pub fn try_next(&mut self) -> Option<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let len = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; len - 4];
        self.stream.read_exact(&mut body).ok()?;
        Some(Message { tag: char::from(head[0]), body })
    }
    /// Returns true if something arrives within `time`.
    pub fn hears_within(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let came = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(LIMIT)).unwrap();
        came.is_ok()
    }
    pub fn next(&mut self) -> Message {
        self.try_next().expect("no message from the server within the time limit, or it closed")
    }
    /// All messages up to and including ReadyForQuery.
    pub fn until_ready(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        loop {
            out.push(self.next());
            if out.last().is_some_and(|m| m.tag == 'Z') {
                return out;
            }
        }
    }
    /// The types of all messages up to and including ReadyForQuery, followed by its status.
    pub fn tags(&mut self) -> String {
        let messages = self.until_ready();
        let status = char::from(messages.last().unwrap().body[0]);
        messages.iter().map(|m| m.tag).chain([status]).collect()
    }
    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&query(sql));
        self.until_ready()
    }
    /// Repeats the query until [`Raw::column`] returns this.
    #[track_caller]
    pub fn repeat_until(&mut self, sql: &str, wanted: &[&str]) {
        let began = Instant::now();
        loop {
            let found = self.column(sql);
            if found == wanted {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{found:?}");
        }
    }
    /// The first column of all rows as text, or the error's SQLSTATE if there is an error.
    pub fn column(&mut self, sql: &str) -> Vec<String> {
        let messages = self.query(sql);
        if let Some(e) = messages.iter().find(|m| m.tag == 'E') {
            return vec![e.code()];
        }
        let first =
            |m: &Message| String::from_utf8(m.values()[0].clone().unwrap_or_default()).unwrap();
        messages.iter().filter(|m| m.tag == 'D').map(first).collect()
    }
}
