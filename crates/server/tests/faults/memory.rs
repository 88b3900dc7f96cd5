//! Statements that exceed their memory fail with 53200 and affect nothing else. Large results need
//! little memory.

use crate::check::connect;
use crate::place::{LIMIT, Place, binary};
use clearway_harness::client::startup;
use clearway_harness::server::{Kind, PrivateServer};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

fn start(data: &Path, query_memory: &str) -> PrivateServer {
    let args =
        ["--partitions", "4", "--workers", "1", "--buffer-pool", "32MiB", "--log-filter", "warn"];
    let args =
        args.into_iter().chain(["--query-memory", query_memory]).map(str::to_owned).collect();
    Kind::Clearway { binary: binary().to_owned(), args }.start(data).unwrap()
}

/// Rows, groups, sort keys and collected keys are charged everywhere: at the partitions and where
/// they are gathered.
#[test]
fn statements_over_their_memory_limit_fail() {
    let place = Place::new("query-memory");
    let server = start(&place.data(), "1MiB");
    let mut client = connect(&server);
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE INDEX t_v ON t (v)",
        // Runs in chunks: the rows of a series are not kept.
        "INSERT INTO t SELECT i, 'a text that takes its place: ' || i FROM generate_series(1, 40000) i",
        "CREATE TABLE copy (id int PRIMARY KEY, v text)",
        "CREATE TABLE keys (id int PRIMARY KEY, u int UNIQUE)",
        "INSERT INTO keys SELECT i, i FROM generate_series(1, 15000) i",
    ] {
        client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let refused = [
        "SELECT v, count(*) FROM t GROUP BY v",
        "SELECT count(DISTINCT v) FROM t",
        "SELECT max(id) FROM t GROUP BY id % 30000",
        "SELECT DISTINCT v FROM t",
        "SELECT id FROM t ORDER BY v",
        "SELECT i FROM generate_series(1, 100000) i ORDER BY -i",
        "SELECT DISTINCT i FROM generate_series(1, 100000) i",
        "SELECT i, count(*) FROM generate_series(1, 100000) i GROUP BY i",
        "SELECT count(DISTINCT i) FROM generate_series(1, 100000) i",
        "UPDATE t SET v = v || '!' RETURNING *",
        "UPDATE t SET v = v || '!' WHERE v > 'a'",
        "DELETE FROM t RETURNING v",
        "INSERT INTO copy SELECT * FROM t",
        "INSERT INTO copy SELECT i, 'a text' FROM generate_series(1, 100000) i RETURNING *",
        // Each reply is too small to be charged by itself.
        "INSERT INTO copy SELECT id + 7 FROM t WHERE id <= 10000 RETURNING repeat('x', 150)",
        "INSERT INTO keys SELECT -id FROM t WHERE id <= 10000 ON CONFLICT DO NOTHING RETURNING repeat('x', 150)",
        "UPDATE t SET id = -id WHERE id <= 10000 RETURNING repeat('x', 150)",
        // The entries of the global index.
        "DELETE FROM keys",
        "UPDATE keys SET u = -u",
    ];
    let answers = refused.map(|sql| match client.query(sql) {
        Err(error) if error.to_string().starts_with("53200: out of memory") => None,
        other => Some((sql, other.map(|answer| answer.tag))),
    });
    let others: Vec<_> = answers.into_iter().flatten().collect();
    assert!(others.is_empty(), "not refused: {others:#?}");
    // Results that are sent in parts need memory for one part only.
    for sql in ["SELECT * FROM t", "COPY t TO STDOUT", "SELECT i FROM generate_series(1, 100000) i"]
    {
        assert!(client.query(sql).is_ok(), "{sql}");
    }
    // The returned rows are charged once. The reply for each chunk is large enough to be charged.
    let sql =
        "INSERT INTO copy SELECT i FROM generate_series(1, 1900) i RETURNING repeat('x', 400)";
    assert_eq!(client.query(sql).unwrap().rows.len(), 1900);
    client.query("DELETE FROM copy").unwrap();
    for (sql, expected) in [
        ("SELECT count(*) FROM t WHERE v LIKE '%: ' || id", 40000),
        ("SELECT count(*) FROM copy", 0),
        ("SELECT count(*) FROM keys WHERE u = id", 15000),
        ("SELECT sum(id) FROM t WHERE id % 1000 = 0", 820_000),
        ("SELECT id FROM t ORDER BY id DESC LIMIT 1", 40000),
        ("SELECT count(*) FROM generate_series(1, 100000) i WHERE i % 2 = 0", 50000),
    ] {
        // A new connection: the failed statements have left no lock.
        assert_eq!(connect(&server).number(sql).unwrap(), expected, "{sql}");
    }
    drop(client);
    server.stop().unwrap();
}

/// A connection that counts the bytes it reads, and reads only on request.
struct Reader {
    stream: BufReader<TcpStream>,
}

impl Reader {
    fn connect(server: &PrivateServer) -> Self {
        let endpoint = server.endpoint();
        let mut stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&startup(endpoint)).unwrap();
        let mut reader = Self { stream: BufReader::new(stream) };
        reader.until_ready();
        reader
    }

    fn send(&mut self, tag: u8, body: &[u8]) {
        let mut message = vec![tag];
        message.extend((body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        self.stream.get_mut().write_all(&message).unwrap();
    }

    /// Reads up to ReadyForQuery; returns the bytes of rows and whether a portal was suspended.
    fn until_ready(&mut self) -> (u64, bool) {
        let (mut bytes, mut suspended) = (0, false);
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).unwrap();
            let len = u64::from(u32::from_be_bytes(head[1..].try_into().unwrap())) - 4;
            std::io::copy(&mut (&mut self.stream).take(len), &mut std::io::sink()).unwrap();
            match head[0] {
                b'D' | b'd' => bytes += len,
                b's' => suspended = true,
                b'E' => panic!("an error"),
                b'Z' => return (bytes, suspended),
                _ => {}
            }
        }
    }
}

/// The process's peak memory since the last call, in bytes.
fn peak(server: &PrivateServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5").unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A result is sent as fast as its client takes it, in memory that does not grow with the result.
#[test]
fn result_of_200_mb_takes_less_than_16_mb() {
    const RESULT: u64 = 200 << 20;
    const MAX_GROWTH: u64 = 16 << 20;
    let place = Place::new("stream-memory");
    let server = start(&place.data(), "64MiB");
    let mut asker = connect(&server);
    asker.query("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    asker.query("INSERT INTO t SELECT i FROM generate_series(1, 21000) i").unwrap();
    let wide = "SELECT id, repeat('x', 10000) FROM t";
    let mut reader = Reader::connect(&server);
    for sql in [
        wide.to_owned(),
        format!("COPY ({wide}) TO STDOUT"),
        format!("BEGIN; {wide}; COMMIT"),
        "SELECT repeat('x', 1000000) FROM generate_series(1, 220)".to_owned(),
    ] {
        peak(&server);
        let before = peak(&server);
        reader.send(b'Q', format!("{sql}\0").as_bytes());
        // The client reads nothing until the server cannot send more.
        while asker
            .number("SELECT count(*) FROM clearway.sessions WHERE waits_for = 'client'")
            .unwrap()
            == 0
        {}
        let (bytes, _) = reader.until_ready();
        let after = peak(&server);
        assert!(bytes > RESULT, "{sql}: {bytes} bytes of rows");
        assert!(after < before + MAX_GROWTH, "{sql}: from {before} to {after} bytes of memory");
        println!(
            "{sql}: {bytes} bytes of rows, {} additional bytes of memory",
            after.saturating_sub(before)
        );
    }
    reader.send(b'Q', b"BEGIN\0");
    reader.until_ready();
    reader.send(b'P', format!("\0{wide}\0\0\0").as_bytes());
    reader.send(b'B', b"\0\0\0\0\0\0\0\0");
    peak(&server);
    let before = peak(&server);
    let mut all = 0;
    loop {
        reader.send(b'E', b"\0\0\0\x03\xe8");
        reader.send(b'S', b"");
        let (bytes, suspended) = reader.until_ready();
        all += bytes;
        if !suspended {
            break;
        }
    }
    let after = peak(&server);
    assert!(
        all > RESULT && after < before + MAX_GROWTH,
        "{all} bytes of rows, from {before} to {after} bytes of memory"
    );
    drop(reader);
    drop(asker);
    server.stop().unwrap();
}

/// A pattern is matched in place, whatever its number of parts.
#[test]
fn long_patterns_take_less_than_256_mb() {
    const MAX_GROWTH: u64 = 256 << 20;
    let place = Place::new("pattern-memory");
    let server = start(&place.data(), "64MiB");
    let mut client = connect(&server);
    for unit in ["%_", "%a", "_a"] {
        peak(&server);
        let before = peak(&server);
        let sql = format!("SELECT CASE WHEN 'b' LIKE repeat('{unit}', 30000000) THEN 1 ELSE 0 END");
        assert_eq!(client.number(&sql).unwrap(), 0);
        let after = peak(&server);
        assert!(after < before + MAX_GROWTH, "{sql}: from {before} to {after} bytes of memory");
    }
    drop(client);
    server.stop().unwrap();
}
