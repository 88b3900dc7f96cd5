//! The states of a session, the messages that lead to each, and the replies that these get at once.

use crate::raw::{bind, close, describe, execute, flush, message, parse, query, sync};

/// A state of a session.
pub struct State {
    pub name: &'static str,
    /// The messages that lead to the state.
    pub setup: Vec<u8>,
    /// The types of the replies that arrive without further messages from the client.
    pub answers: &'static str,
    /// The server waits for COPY data.
    pub copying: bool,
}

fn state(name: &'static str, answers: &'static str, setup: &[Vec<u8>]) -> State {
    State { name, setup: setup.concat(), answers, copying: answers.ends_with('G') }
}

fn run(portal: &str, sql: &str, rows: u32) -> Vec<u8> {
    [parse("", sql, &[]), bind(portal, "", &[], false), execute(portal, rows)].concat()
}

const SERIES: &str = "select * from generate_series(1, 4)";
const INSERT: &str = "insert into matrix values (7)";
const FAILS: &str = "insert into matrix values (1)";
const COPY_IN: &str = "copy matrix from stdin";

/// All states after the startup. Each session has a prepared statement `s` with one int4 parameter.
pub fn states() -> Vec<State> {
    let begin = || query("begin");
    let parsed = || parse("", "select 1 as a", &[]);
    let bound = || [parsed(), bind("", "", &[], false)].concat();
    let nonsense = || parse("", "nonsense", &[]);
    let mut all = vec![
        state("idle", "", &[]),
        state("block", "CZ", &[begin()]),
        state("failed block", "CZEZ", &[begin(), query(FAILS)]),
        state("parsed", "1", &[parsed(), flush()]),
        state("bound", "12", &[bound(), flush()]),
        state("described", "12T", &[bound(), describe('P', ""), flush()]),
        state("executed", "12DC", &[run("", "select 1 as a", 0), flush()]),
        state("executed nothing", "12I", &[run("", "", 0), flush()]),
        state("written", "12C", &[run("", INSERT, 0), flush()]),
        state("closed", "1233", &[bound(), close('P', ""), close('S', ""), flush()]),
        state("begun by execute", "12C", &[run("", "begin", 0), flush()]),
        state("suspended", "12DDs", &[run("p", SERIES, 2), flush()]),
    ];
    all.extend([
        state("error", "1E", &[parsed(), nonsense()]),
        state("error after a write", "12CE", &[run("", INSERT, 0), nonsense()]),
        state("error in a block", "CZE", &[begin(), nonsense()]),
        state("statement lost by an error", "1ZEZ", &[parsed(), sync(), nonsense(), sync()]),
        state("bound in a block", "CZ12Z", &[begin(), bound(), sync()]),
        state("suspended in a block", "CZ12DDsZ", &[begin(), run("p", SERIES, 2), sync()]),
        state("finished in a block", "CZ12DDDDCZ", &[begin(), run("p", SERIES, 0), sync()]),
        state("written in a block", "CZ12CZ", &[begin(), run("p", INSERT, 0), sync()]),
        state(
            "suspended in a failed block",
            "CZ12DDsZEZ",
            &[begin(), run("p", SERIES, 2), sync(), query(FAILS)],
        ),
        state("bound in a failed block", "CZ12ZEZ", &[begin(), bound(), sync(), query(FAILS)]),
        state("ended by execute", "CZ12C", &[begin(), run("", "commit", 0), flush()]),
    ]);
    all.extend([
        state("copy in", "G", &[query(COPY_IN)]),
        state("copy in with data", "G", &[query(COPY_IN), message(b'd', b"8\n9")]),
        state("copy in in a block", "CZG", &[begin(), query(COPY_IN)]),
        state("copy in of several", "CG", &[query(&format!("{INSERT}; {COPY_IN}; select 1 as a"))]),
        state("copy in by execute", "12G", &[run("", COPY_IN, 0), flush()]),
        state("copy in by execute in a block", "CZ12G", &[begin(), run("p", COPY_IN, 0)]),
        state("copy out by execute", "12HdddcC", &[run("", "copy matrix to stdout", 0), flush()]),
        state("failed copy", "GEZ", &[query(COPY_IN), message(b'd', b"x\n")]),
        state("failed copy by execute", "12GE", &[run("", COPY_IN, 0), message(b'd', b"x\n")]),
    ]);
    all
}

/// What the client sends after the message, to show the state that the message has led to.
pub fn ending(copying: bool) -> Vec<u8> {
    let mut all = if copying { message(b'f', b"over\0") } else { Vec::new() };
    for what in [vec![], describe('S', ""), describe('P', ""), describe('P', "p")] {
        all.extend([what, sync()].concat());
    }
    all.extend([query("select count(*) from matrix"), message(b'X', b"")].concat());
    all
}
