//! The metrics endpoint: the page is valid in Prometheus' text format, and no client can block it.

use crate::raw::{Fixture, LIMIT, query};
use clearway_server::exit::ExitCode;
use clearway_server::{Config, Server};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

fn with_metrics(name: &str) -> (Fixture, SocketAddr) {
    let server =
        Fixture::with(name, |config| config.metrics = Some("127.0.0.1:0".parse().unwrap()));
    let address = server.metrics_address();
    (server, address)
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends bytes, and returns everything received until the server closes.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = open(address);
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn page(address: SocketAddr) -> String {
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{head}"
    );
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

/// A sample: its name, its labels as written, its value.
type Sample = (String, String, f64);

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match series.split_once('{') {
        None => (series, ""),
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
    };
    for label in labels.split_terminator("\",") {
        let (key, value) = label.split_once("=\"").unwrap();
        assert!(is_name(key) && !value.contains('\n'), "{line}");
    }
    assert!(is_name(name), "{line}");
    (name.to_owned(), labels.to_owned(), value.parse().unwrap())
}

/// Parses a page and checks the rules of the format and of Prometheus' naming conventions.
fn parsed(page: &str) -> Vec<Sample> {
    let (mut kinds, mut helped) = (HashMap::new(), HashSet::new());
    let (mut seen, mut samples) = (HashSet::new(), Vec::new());
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(helped.insert(name) && text.ends_with('.'), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(
                kinds.insert(name.to_owned(), kind).is_none() && helped.contains(name),
                "{line}"
            );
            assert!(name.starts_with("clearway_"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, labels, value) = sample(line);
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(&name);
            let kind =
                kinds.get(&name).or(kinds.get(family)).unwrap_or_else(|| panic!("no type: {line}"));
            assert!(*kind == "gauge" || value >= 0.0, "{line}");
            assert!(seen.insert((name.clone(), labels.clone())), "duplicate: {line}");
            samples.push((name, labels, value));
        }
    }
    samples
}

fn value(samples: &[Sample], name: &str, labels: &str) -> f64 {
    let found = samples.iter().find(|(n, l, _)| n == name && l == labels);
    found.unwrap_or_else(|| panic!("no {name}{{{labels}}}")).2
}

#[test]
fn page_is_valid_and_counts_what_sessions_do() {
    let (server, address) = with_metrics("metrics");
    let mut c = server.connect();
    let before = parsed(&page(address));
    c.query("create table t (a int primary key)");
    c.query("insert into t values (1)");
    c.query("insert into t values (1)");
    c.query("selec");
    let after = parsed(&page(address));
    let grown =
        |name: &str, labels: &str| value(&after, name, labels) - value(&before, name, labels);
    assert_eq!(grown("clearway_transactions_total", "outcome=\"committed\""), 2.0);
    assert_eq!(grown("clearway_transactions_total", "outcome=\"aborted\""), 1.0);
    assert_eq!(grown("clearway_statements_total", ""), 3.0);
    assert_eq!(grown("clearway_errors_total", "class=\"23\""), 1.0);
    assert_eq!(grown("clearway_errors_total", "class=\"42\""), 1.0);
    assert!(
        grown("clearway_received_bytes_total", "") > 50.0
            && grown("clearway_sent_bytes_total", "") > 50.0
    );
    assert!(
        grown("clearway_log_bytes_total", "") > 0.0 && grown("clearway_log_syncs_total", "") > 0.0
    );
    assert!(grown("clearway_uptime_seconds", "") > 0.0);
    assert_eq!(value(&after, "clearway_sessions", ""), 1.0);
    assert_eq!(value(&after, "clearway_commits_waiting", ""), 0.0);
    let frames = |state: &str| value(&after, &format!("clearway_pool_{state}frames"), "");
    assert_eq!((frames(""), frames("used_") + frames("free_")), (1024.0, 1024.0));
    let scheme = "partition=\"0\",scheme=\"hybrid\"";
    assert_eq!(value(&after, "clearway_partition_scheme_info", scheme), 1.0);
    assert_eq!(value(&after, "clearway_partition_speculated_total", "partition=\"0\""), 0.0);
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(value(&after, "clearway_build_info", &version), 1.0);
    assert!(value(&after, "clearway_contention_requests_total", "name=\"buffer.free_list\"") > 0.0);
}

/// docs/metrics.md names exactly the metrics of the page.
#[test]
fn documentation_lists_every_metric() {
    let docs = include_str!("../../../../docs/metrics.md");
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let documented: HashSet<&str> =
        docs.split(|c| !is_part(c)).filter(|word| word.starts_with("clearway_")).collect();
    let (_server, address) = with_metrics("documented");
    let page = page(address);
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: HashSet<&str> = types.map(|line| line.split_once(' ').unwrap().0).collect();
    let is_family = |name: &&&str| {
        let of_histogram = ["_sum", "_count", "_bucket"];
        families.contains(**name)
            || of_histogram
                .iter()
                .any(|end| name.strip_suffix(end).is_some_and(|n| families.contains(n)))
    };
    let undocumented: Vec<_> = families.difference(&documented).collect();
    let unknown: Vec<_> = documented.iter().filter(|name| !is_family(name)).collect();
    assert!(undocumented.is_empty() && unknown.is_empty(), "{undocumented:?} {unknown:?}");
}

#[test]
fn latency_is_counted_per_statement_and_commit() {
    let (server, address) = with_metrics("latency");
    let mut c = server.connect();
    let before = parsed(&page(address));
    c.query("create table t (a int primary key)");
    c.query("insert into t values (1)");
    c.query("select pg_sleep(0.02)");
    c.query("select 1 / 0");
    let after = parsed(&page(address));
    let grown = |name: &str| value(&after, name, "") - value(&before, name, "");
    assert_eq!(grown("clearway_statement_duration_seconds_count"), 4.0);
    assert!(grown("clearway_statement_duration_seconds_sum") >= 0.02);
    assert!(grown("clearway_commit_duration_seconds_count") >= 2.0);
    assert!(grown("clearway_commit_duration_seconds_sum") > 0.0);
    let view = "select sum(count) >= 4, min(upper_us - lower_us) > 0 from clearway.latency where name = 'statement'";
    assert_eq!(c.query(view)[1].values(), [Some(b"t".to_vec()), Some(b"t".to_vec())]);
}

#[test]
fn lock_waiters_and_deadlocks_are_counted() {
    let (server, address) = with_metrics("lock-metrics");
    let (mut first, mut second) = (server.connect(), server.connect());
    first.query("create table t (a int primary key, n int)");
    first.query("insert into t values (1, 0), (2, 0)");
    let metric = |name: &str| value(&parsed(&page(address)), name, "");
    assert_eq!((metric("clearway_lock_waiters"), metric("clearway_deadlocks_total")), (0.0, 0.0));
    first.query("begin; update t set n = 1 where a = 1");
    second.query("begin; update t set n = 1 where a = 2");
    second.send(&query("update t set n = 2 where a = 1"));
    let began = Instant::now();
    while metric("clearway_lock_waiters") != 1.0 {
        assert!(began.elapsed() < LIMIT, "no transaction waits");
    }
    first.query("update t set n = 2 where a = 2");
    // One of the two has failed; its rollback lets the other one continue.
    first.query("rollback");
    second.until_ready();
    second.query("rollback");
    // The end of a wait is counted shortly after its statement continues.
    while metric("clearway_lock_waiters") != 0.0 {
        assert!(began.elapsed() < LIMIT, "a transaction still waits");
    }
    assert_eq!(metric("clearway_deadlocks_total"), 1.0);
    let activity = "select lock_waiters, deadlocks from clearway.activity";
    assert_eq!(first.query(activity)[1].values(), [Some(b"0".to_vec()), Some(b"1".to_vec())]);
}

#[test]
fn disk_bytes_are_the_lengths_of_the_files() {
    let (server, address) = with_metrics("disk-metrics");
    let bytes = |kind: &str| {
        value(&parsed(&page(address)), "clearway_disk_bytes", &format!("kind=\"{kind}\""))
    };
    // Segments of the log are 4 MiB; each of the 4 partitions has at least a page.
    assert!(bytes("log") >= f64::from(4 << 20) && bytes("data") >= 4.0 * 8192.0);
    let mut c = server.connect();
    c.query("create table t (a int primary key, b text)");
    c.query("insert into t select i, repeat('x', 2000) from generate_series(1, 2000) i");
    c.query("checkpoint");
    assert!(bytes("data") >= f64::from(2 << 20), "{}", bytes("data"));
}

#[test]
fn labels_have_no_places_in_the_source() {
    let (server, address) = with_metrics("labels");
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.query("create table t (a int primary key, n int)");
    holder.query("insert into t values (1, 0)");
    let contended = "name=\"lock.key_no_key_update\",module=\"partition::exec::modify\"";
    let began = Instant::now();
    loop {
        holder.query("begin; update t set n = n + 1 where a = 1");
        waiter.send(&query("update t set n = n * 2 where a = 1"));
        holder.query("select pg_sleep(0.002); commit");
        waiter.until_ready();
        let samples = parsed(&page(address));
        assert!(samples.iter().all(|(_, labels, _)| !labels.contains(".rs")), "{samples:?}");
        if samples.iter().any(|(_, labels, _)| labels == contended) {
            break;
        }
        assert!(began.elapsed() < LIMIT, "no wait is counted");
    }
}

#[test]
fn metrics_address_in_use_fails_the_start_and_leaves_no_socket() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = std::env::temp_dir().join(format!("clearway-metrics-taken-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut config = Config::new(dir.join("data"));
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.unix_socket = Some(dir.clone());
    config.metrics = Some(taken.local_addr().unwrap());
    let failure = Server::start(config).err().unwrap();
    assert_eq!(failure.code, ExitCode::Listen);
    assert!(failure.message.starts_with("cannot listen for metrics on 127.0.0.1:"), "{failure}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn malformed_requests_are_refused() {
    let (_server, address) = with_metrics("malformed");
    for (request, status) in [
        (&b"GET /nothing HTTP/1.1\r\n\r\n"[..], "404"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", "400"),
        (b"GET /metrics HTTP/1.1\r\n\xff\xfe: \0\r\n\r\n", "400"),
        (&[b'A'; 20_000], "431"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    // An incomplete request from a client that disconnects.
    let mut half = open(address);
    half.write_all(b"GET /metr").unwrap();
    drop(half);
    parsed(&page(address));
}

#[test]
fn invariants_2_and_3_slow_clients_are_limited_and_closed() {
    let (server, address) = with_metrics("slow");
    let mut slow: Vec<TcpStream> = (0..40).map(|_| open(address)).collect();
    // A write to a connection that was closed at once fails sooner or later.
    slow.iter_mut().for_each(|stream| drop(stream.write_all(b"GET /")));
    // Sessions are served meanwhile.
    assert_eq!(server.connect().column("select 1"), ["1"]);
    // Each is closed without an answer, at the latest when its time limit is reached.
    for mut stream in slow {
        let mut answer = Vec::new();
        let closed = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{closed:?}");
        let timed_out = closed.is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock));
        assert!(!timed_out, "it was not closed");
    }
    parsed(&page(address));
    server.stop();
}
