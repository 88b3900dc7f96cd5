//! Every state of the protocol combined with every message, compared byte for byte with the answers
//! of PostgreSQL 15.
//!
//! A cell is a state and a message. It is played twice: once the message is followed by the end of
//! the client's stream, once by messages that show what it has changed: portals, statements, the
//! transaction, the data. A server discards unsent replies when the stream ends, so the first run
//! shows what is sent at once. Both runs end with the connection, so nothing depends on timing.
//!
//! `matrix.out` has the recorded answers: for each message, groups of states with the same answer.
//! To record them again: `BLESS=1 cargo test -p clearway-server --test protocol matrix`. Where
//! PostgreSQL 15 is installed, the same test without BLESS checks that the recorded answers are
//! PostgreSQL's.
//!
//! Intended differences are listed below, and must exist. Not compared: the source fields F, L and
//! R of errors, the keys of BackendKeyData, the value of server_version.

mod messages;
mod player;
mod states;

use crate::raw::{Fixture, LIMIT};
use clearway_harness::client::PgClient;
use clearway_harness::server::Kind;
use clearway_harness::tools::{self, TempDir};
use player::{Answer, Cell, play_all};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/matrix/matrix.out")
}

/// The text of `matrix.out`: for each message in order, its answers and the states that give them.
fn text(cells: &[Cell]) -> String {
    let mut out = String::new();
    for group in cells.chunk_by(|a, b| a.0 == b.0) {
        writeln!(out, "# {}", group[0].0).unwrap();
        let mut answers: Vec<(&Answer, Vec<&str>)> = Vec::new();
        for (_, state, answer) in group {
            match answers.iter_mut().find(|(known, _)| *known == answer) {
                Some((_, states)) => states.push(state),
                None => answers.push((answer, vec![state])),
            }
        }
        for (answer, states) in answers {
            // In most cases the second answer starts with the first.
            let going_on = match answer.going_on.strip_prefix(&answer.alone) {
                Some(rest) => format!("{SAME}{rest}"),
                None => answer.going_on.clone(),
            };
            writeln!(out, "= {}\n{}\n{going_on}", states.join(", "), answer.alone).unwrap();
        }
    }
    out
}

/// Stands for the first answer at the start of the second.
const SAME: &str = "^";

/// An intended difference. Messages after it are not compared.
struct Allowed {
    /// The message whose answers differ, in any state.
    message: &'static str,
    /// PostgreSQL's reply, without and with further messages.
    recorded: [&'static str; 2],
    /// Clearway's reply.
    answered: &'static str,
}

const ALLOWED: [Allowed; 6] = [
    // PostgreSQL finds this error while planning, when an earlier unnamed portal still exists.
    Allowed {
        message: "message: query that divides by zero",
        recorded: ["(no portal)", "n"],
        answered: "(failed block)",
    },
    // There are no users: any name is accepted if it is valid text.
    Allowed {
        message: "packet: startup with a user that is not UTF-8",
        recorded: [r"R \x00\x00\x00\x00"; 2],
        answered: r#"E FATAL C22021 Minvalid byte sequence for encoding \"UTF8\": 0xff"#,
    },
    // The function call protocol is not supported.
    Allowed {
        message: "message: function call",
        recorded: [r"V \x00\x00\x00\x013"; 2],
        answered: "E ERROR C0A000 Mthe function call protocol is not supported",
    },
    // Result formats are checked at Bind, not when a row is sent.
    Allowed {
        message: "message: bind with a result format 7",
        recorded: ["-", "2"],
        answered: "E ERROR C22023 Munsupported format code: 7",
    },
    // The engine takes rows in batches and does not report which row of a batch caused an error.
    Allowed {
        message: "message: copy of an existing key",
        recorded: [r#"E ERROR C23505 Mduplicate key value violates unique constraint \"matrix_pkey\" DKey (a)=(1) already exists. WCOPY matrix, line 1 spublic tmatrix nmatrix_pkey"#;
            2],
        answered: r#"E ERROR C23505 Mduplicate key value violates unique constraint \"matrix_pkey\" DKey (a)=(1) already exists. spublic tmatrix nmatrix_pkey"#,
    },
    // Our limit on the length of a message is lower than PostgreSQL's.
    Allowed {
        message: "message: length 300 MiB",
        recorded: ["-"; 2],
        answered: "E FATAL C54000 Ma message is longer than 256 MiB",
    },
];

/// Finds the entry that allows this difference.
fn allowed(message: &str, recorded: &str, answered: &str) -> Option<usize> {
    let differ = |(r, a): &(Option<&str>, Option<&str>)| r != a;
    let (mut r, mut a) = (recorded.split(" | "), answered.split(" | "));
    let (recorded, answered) = std::iter::from_fn(|| Some((r.next(), a.next()))).find(differ)?;
    ALLOWED.iter().position(|allowed| {
        allowed.message == message
            && recorded.is_some_and(|recorded| allowed.recorded.contains(&recorded))
            && answered == Some(allowed.answered)
    })
}

/// Answers by message and state.
type Answers = BTreeMap<(String, String), Answer>;

fn recorded() -> Answers {
    let text = std::fs::read_to_string(path()).unwrap();
    let mut answers = Answers::new();
    let mut message = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("# ") {
            message = name;
            continue;
        }
        let (alone, going_on) = (lines.next().unwrap(), lines.next().unwrap());
        let going_on = match going_on.strip_prefix(SAME) {
            Some(rest) => format!("{alone}{rest}"),
            None => going_on.to_owned(),
        };
        for state in line.strip_prefix("= ").unwrap().split(", ") {
            let answer = Answer { alone: alone.to_owned(), going_on: going_on.clone() };
            answers.insert((message.to_owned(), state.to_owned()), answer);
        }
    }
    answers
}

/// The cells that differ. If the answers are `ours`, intended differences are left out and must
/// exist.
fn differences(recorded: &Answers, cells: &[Cell], ours: bool) -> String {
    let mut out = String::new();
    let mut used = [false; ALLOWED.len()];
    for (message, state, answer) in cells {
        let Some(expected) = recorded.get(&(message.clone(), state.clone())) else {
            writeln!(out, "\n{message} / {state}: not recorded").unwrap();
            continue;
        };
        for (what, expected, actual) in [
            ("alone", &expected.alone, &answer.alone),
            ("going on", &expected.going_on, &answer.going_on),
        ] {
            if expected == actual {
                continue;
            }
            if let Some(entry) = allowed(message, expected, actual).filter(|_| ours) {
                used[entry] = true;
            } else {
                write!(
                    out,
                    "\n{message} / {state} / {what}\n  recorded: {expected}\n  answered: {actual}"
                )
                .unwrap();
            }
        }
    }
    for (entry, _) in ALLOWED.iter().zip(used).filter(|(_, used)| ours && !used) {
        write!(out, "\n{}: the listed difference no longer exists: remove it", entry.message)
            .unwrap();
    }
    if recorded.len() != cells.len() {
        write!(out, "\n{} cells are recorded, {} were played", recorded.len(), cells.len())
            .unwrap();
    }
    out
}

/// Several databases to play messages in parallel: a new session costs PostgreSQL a process with
/// cold caches.
const DATABASES: [&str; 4] = ["one", "two", "three", "four"];

/// Over Unix sockets PostgreSQL refuses encryption, as Clearway always does.
fn socket(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

#[test]
fn matrix_matches_the_recorded_answers() {
    let directory = TempDir::new("matrix-socket").unwrap();
    let server =
        Fixture::with("matrix", |config| config.unix_socket = Some(directory.path().to_owned()));
    let cells = play_all(&socket(directory.path(), server.address().port()), &["postgres"]);
    server.stop();
    if let Some(to) = std::env::var_os("MATRIX_OUT") {
        std::fs::write(to, differences(&recorded(), &cells, true)).unwrap();
    }
    assert_eq!(differences(&recorded(), &cells, true), "");
}

/// Records the answers again if BLESS is set.
#[test]
fn recorded_matrix_matches_postgres_15() {
    let bless = std::env::var_os("BLESS").is_some();
    if !tools::has_postgres_15() {
        assert!(!bless && !tools::in_ci(), "PostgreSQL 15 is not installed");
        eprintln!("the recorded matrix is NOT checked: PostgreSQL 15 is not installed");
        return;
    }
    let directory = TempDir::new("matrix-postgres").unwrap();
    let data = directory.path().join("data");
    let socket_in = format!("unix_socket_directories={}", data.display());
    let kind = Kind::Postgres {
        settings: vec![socket_in, "timezone=UTC".to_owned(), "fsync=off".to_owned()],
    };
    kind.prepare(&data).unwrap();
    let server = kind.start(&data).unwrap();
    let mut client = PgClient::connect(server.endpoint(), LIMIT).unwrap();
    for database in DATABASES {
        client.query(&format!("create database {database}")).unwrap();
    }
    drop(client);
    let cells = play_all(&socket(&data, server.endpoint().port), &DATABASES);
    server.stop().unwrap();
    if bless {
        std::fs::write(path(), text(&cells)).unwrap();
    } else {
        assert_eq!(
            differences(&recorded(), &cells, false),
            "",
            "PostgreSQL's answers differ from the recorded ones"
        );
    }
}
