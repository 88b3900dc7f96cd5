//! `clearway check` with the server's binary, and a server whose directory has a damaged page.

use crate::exits::{refused, serve};
use crate::pack;
use crate::place::{LIMIT, Place, binary, run};
use clearway_harness::client::{PgClient, QueryError};
use clearway_harness::server::{Kind, PrivateServer};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const PAGE: u64 = 8192;

pub fn check(data: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg("check").arg(data);
    command
}

pub fn kind() -> Kind {
    let args =
        ["--partitions", "2", "--workers", "1", "--buffer-pool", "8MiB", "--log-segment", "1MiB"];
    let more = ["--log-buffer", "1MiB", "--checkpoint-interval-s", "3600", "--log-filter", "warn"];
    let args = args.into_iter().chain(more).map(str::to_owned).collect();
    Kind::Clearway { binary: binary().to_owned(), args }
}

pub fn connect(server: &PrivateServer) -> PgClient {
    PgClient::connect(server.endpoint(), LIMIT).unwrap()
}

/// Completes the checkpoint that a server makes shortly after its start. The next one comes when it
/// stops, so later changes are only in the log.
pub(crate) fn checkpoint(client: &mut PgClient) {
    client.query("CHECKPOINT").unwrap();
}

/// Creates a directory with two tables and indexes; returns its running server.
pub fn filled(data: &Path) -> PrivateServer {
    let server = kind().start(data).unwrap();
    let mut client = connect(&server);
    checkpoint(&mut client);
    for sql in [
        "CREATE TABLE account (id int PRIMARY KEY, owner text NOT NULL, balance int8)",
        "CREATE INDEX account_owner ON account (owner)",
        "CREATE TABLE other (id int PRIMARY KEY, note text)",
        "INSERT INTO account SELECT i, 'owner ' || i, i * 10 FROM generate_series(1, 5000) i",
        "INSERT INTO other SELECT i, 'note ' || i FROM generate_series(1, 500) i",
        "UPDATE account SET balance = 0 WHERE id % 7 = 0",
        "DELETE FROM account WHERE id % 11 = 0",
    ] {
        client.query(sql).unwrap();
    }
    server
}

/// The contents of all files below `dir`.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    pack::files(dir)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(dir.join(path)).unwrap()))
        .collect()
}

/// The first leaf page of partition 0 that contains this text.
fn leaf_with(data: &Path, text: &str) -> u64 {
    let bytes = std::fs::read(data.join("data/p0000.data")).unwrap();
    let is_leaf = |page: &[u8]| page[5] == 2 && page[30] == 0;
    let has = |page: &[u8]| page.windows(text.len()).any(|part| part == text.as_bytes());
    bytes
        .chunks_exact(PAGE as usize)
        .position(|page| is_leaf(page) && has(page))
        .expect("a leaf has the text") as u64
}

/// Changes a byte in the middle of a page of partition 0, and removes the copies in the
/// double-write file.
fn damage(data: &Path, page: u64) {
    let open = |name: &str| {
        std::fs::OpenOptions::new().read(true).write(true).open(data.join(name)).unwrap()
    };
    let file = open("data/p0000.data");
    let mut byte = [0];
    file.read_exact_at(&mut byte, page * PAGE + 5000).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], page * PAGE + 5000).unwrap();
    open("data/double-write.data").set_len(0).unwrap();
}

#[test]
fn check_finds_a_clean_directory_sound_and_leaves_it_unchanged() {
    let place = Place::new("check-sound");
    let server = filled(&place.data());
    refused(&mut check(&place.data()), 4, "in use by another server");
    server.stop().unwrap();
    let before = contents(&place.data());
    let done = run(&mut check(&place.data()));
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
    assert!(
        done.output.contains("2 tables, 5046 rows") && done.output.contains("sound: "),
        "{}",
        done.output
    );
    assert!(
        !done.output.contains("not shut down cleanly") && !done.output.contains("damage"),
        "{}",
        done.output
    );
    assert!(contents(&place.data()) == before, "the directory was changed");
}

#[test]
fn check_recovers_a_killed_directory_in_memory() {
    let place = Place::new("check-killed");
    filled(&place.data()).kill();
    let before = contents(&place.data());
    let done = run(&mut check(&place.data()));
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
    assert!(
        done.output.contains("not shut down cleanly") && done.output.contains("5046 rows"),
        "{}",
        done.output
    );
    assert!(contents(&place.data()) == before, "the directory was changed");
}

#[test]
fn check_refuses_what_is_not_a_data_directory() {
    let place = Place::new("check-refused");
    refused(&mut check(place.path()), 5, "is not a data directory");
    let mut nowhere = check(&place.path().join("nowhere"));
    refused(&mut nowhere, 5, "is not a data directory");
    let hint = "hint: Nothing was changed. Name the data directory of a server, ";
    assert!(run(&mut nowhere).output.contains(hint), "{}", run(&mut nowhere).output);
    std::fs::write(place.path().join("file"), "").unwrap();
    for scratch in ["nowhere", "file"].map(|name| place.path().join(name)) {
        let mut unusable = check(place.path());
        unusable.arg("--scratch").arg(&scratch);
        let says = format!("cannot create a scratch file in {}", scratch.display());
        refused(&mut unusable, 2, &says);
    }
    let help = run(check(place.path()).arg("--help"));
    assert!(
        help.status.success() && help.output.contains("9  damage was found"),
        "{}",
        help.output
    );
}

/// `check` reports a damaged page with its location. A server on the directory serves everything
/// that does not need the page, writes, takes checkpoints, and reports the damage when the page is
/// read.
#[test]
fn damaged_page_affects_only_its_contents() {
    let place = Place::new("check-damaged");
    filled(&place.data()).stop().unwrap();
    let page = leaf_with(&place.data(), "owner 4");
    damage(&place.data(), page);
    let done = run(&mut check(&place.data()));
    assert_eq!(done.status.code(), Some(9), "{}", done.output);
    let line = format!("damage: data/p0000.data page {page} offset {}: checksum 0x", page * PAGE);
    let found = done
        .output
        .lines()
        .find(|line_found| line_found.starts_with(&line))
        .unwrap_or_else(|| panic!("{}", done.output));
    assert!(found.contains(" expected, 0x") && found.ends_with(" found"), "{found}");
    assert!(
        done.output.contains("is damaged: ") && done.output.contains("hint: "),
        "{}",
        done.output
    );

    let server = kind().start(&place.data()).unwrap();
    let mut client = connect(&server);
    let (mut read, mut refused) = (0, 0);
    for id in (1..=5000).filter(|id| id % 11 != 0) {
        match client.query(&format!("SELECT owner FROM account WHERE id = {id}")) {
            Ok(answer) => {
                assert_eq!(answer.rows, [[Some(format!("owner {id}"))]]);
                read += 1;
            }
            Err(QueryError::Sql { code, message, .. }) => {
                assert_eq!(code, "XX001", "{message}");
                let location = format!("partition 0 page {page} in ");
                let whole = ["p0000.data is damaged: checksum 0x", " expected, 0x", " found"];
                assert!(
                    message.contains(&location) && whole.iter().all(|part| message.contains(part)),
                    "{message}"
                );
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 10 && read > 4000, "{read} rows read, {refused} refused");
    assert_eq!(client.number("SELECT count(*) FROM other").unwrap(), 500);
    client.query("UPDATE other SET note = 'new'").unwrap();
    client.query("INSERT INTO other VALUES (1000, 'last')").unwrap();
    client.query("CHECKPOINT").unwrap();
    drop(client);
    server.stop().unwrap();
    let server = kind().start(&place.data()).unwrap();
    assert_eq!(
        connect(&server).number("SELECT count(*) FROM other WHERE note = 'new'").unwrap(),
        500
    );
    server.stop().unwrap();
    assert_eq!(run(&mut check(&place.data())).status.code(), Some(9));
}

/// A table with a damaged page can be dropped. Later starts cannot free its remaining pages, but
/// serve everything else.
#[test]
fn table_with_a_damaged_page_can_be_dropped() {
    let place = Place::new("check-dropped");
    filled(&place.data()).stop().unwrap();
    damage(&place.data(), leaf_with(&place.data(), "owner 4"));
    let server = kind().start(&place.data()).unwrap();
    connect(&server).query("DROP TABLE account").unwrap();
    server.stop().unwrap();
    for _ in 0..2 {
        let server = kind().start(&place.data()).unwrap();
        let mut client = connect(&server);
        assert_eq!(client.number("SELECT count(*) FROM other").unwrap(), 500);
        assert!(client.query("SELECT 1 FROM account").is_err());
        drop(client);
        server.stop().unwrap();
    }
    let server = kind().start(&place.data()).unwrap();
    connect(&server).query("CREATE TABLE account (id int PRIMARY KEY)").unwrap();
    server.stop().unwrap();
}

/// Flips a bit of a log segment.
fn flip(segment: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(segment).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 2], offset).unwrap();
}

/// Returns true if the last bytes of a segment are a mark (docs/format.md): 4 bytes that begin it,
/// a checksum, the position in units of 8, and 4 zeros.
fn ends_with_a_mark(segment: &Path) -> bool {
    let bytes = std::fs::read(segment).unwrap();
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return false };
    (last / 8 * 8)
        .checked_sub(8)
        .is_some_and(|start| bytes[start..].starts_with(&0x8000_0010_u32.to_le_bytes()))
}

/// No acknowledged commit is lost silently. Damage in the log after the last checkpoint, even in
/// the last record, prevents the start, is reported with its location, and changes nothing. When
/// the damage is repaired, all rows are there.
#[test]
fn damage_anywhere_in_a_killed_servers_log_is_refused() {
    let place = Place::new("check-log");
    let server = kind().start(&place.data()).unwrap();
    let mut client = connect(&server);
    client.query("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    checkpoint(&mut client);
    let segment = place.data().join("wal/0000000000000000.wal");
    let begin = pack::last_nonzero(&segment);
    for id in 0..40 {
        client.query(&format!("INSERT INTO t VALUES ({id})")).unwrap();
    }
    // The mark after the last commit is written shortly after its reply; without the mark, damage
    // to that commit would look like a torn tail.
    let deadline = Instant::now() + LIMIT;
    while !ends_with_a_mark(&segment) {
        assert!(Instant::now() < deadline, "no mark");
        std::thread::yield_now();
    }
    server.kill();
    let end = pack::last_nonzero(&segment);
    // Inside the commits' records, which take some 60 bytes each.
    for back in [20, 40, 60, 100, 300, 1000, 1500] {
        assert!(begin + back < end, "{begin} to {end}");
        flip(&segment, end - back);
        let before = contents(&place.data());
        let mut command = serve(&place.data());
        refused(&mut command, 9, "the log is damaged at ");
        let output = run(&mut serve(&place.data())).output;
        assert!(
            output.contains("0000000000000000.wal offset ") && output.contains(" expected, "),
            "{back} before the end: {output}"
        );
        assert!(contents(&place.data()) == before, "the directory was changed");
        let done = run(&mut check(&place.data()));
        assert_eq!(done.status.code(), Some(9), "{}", done.output);
        let place = "damage: wal/0000000000000000.wal offset ";
        assert!(done.output.lines().any(|line| line.starts_with(place)), "{}", done.output);
        flip(&segment, end - back);
    }
    let server = kind().start(&place.data()).unwrap();
    assert_eq!(connect(&server).number("SELECT count(*) FROM t").unwrap(), 40);
    server.stop().unwrap();
}

/// `clearway check DIR | head` with a reader that has left.
#[test]
fn reader_that_leaves_does_not_end_the_check() {
    let place = Place::new("check-pipe");
    filled(&place.data()).stop().unwrap();
    let checked = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = check(&place.data()).stdout(writer).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, err) = checked();
    assert_eq!(code, Some(0), "{err}");
    damage(&place.data(), leaf_with(&place.data(), "owner 4"));
    let (code, err) = checked();
    assert!(code == Some(9) && err.contains("is damaged: "), "{code:?}: {err}");
}
