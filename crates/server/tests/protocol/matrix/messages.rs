//! Every message of the protocol: well-formed, malformed and unknown, and the packets that precede
//! a session.

use crate::raw::{bind, close, describe, execute, flush, message, parse, query, startup, sync};

/// A name, and the message or messages it stands for.
pub type Named = (&'static str, Vec<u8>);

/// All messages of a session.
pub fn messages() -> Vec<Named> {
    let mut all = vec![("nothing", vec![])];
    all.extend(simple());
    all.extend(extended());
    all.extend(copy());
    all.extend(malformed());
    all.extend(malformed_binds());
    all.extend(out_of_step());
    all
}

fn simple() -> Vec<Named> {
    vec![
        ("query", query("select 1 as a")),
        ("empty query", query("")),
        ("query with a syntax error", query("nonsense")),
        ("query that fails", query("insert into matrix values (1)")),
        ("query that divides by zero", query("select 1 / 0")),
        ("query with two statements", query("select 1 as a; select 2 as b")),
        ("query begin", query("begin")),
        ("query commit", query("commit")),
        ("query rollback", query("rollback")),
        ("query insert", query("insert into matrix values (6)")),
        (
            "query copy in with its data",
            [query("copy matrix from stdin"), message(b'd', b"8\n"), message(b'c', b"")].concat(),
        ),
        ("query copy out", query("copy (select * from matrix order by a) to stdout")),
        // int4pl(1, 2)
        ("function call", message(b'F', b"\0\0\0\xb1\0\0\0\x02\0\0\0\x011\0\0\0\x012\0\0")),
        ("terminate", message(b'X', b"")),
    ]
}

fn extended() -> Vec<Named> {
    vec![
        ("parse", parse("", "select 2 as b", &[])),
        ("parse with a name", parse("t", "select 2 as b", &[])),
        ("parse with an existing name", parse("s", "select 2 as b", &[])),
        ("parse a syntax error with an existing name", parse("s", "nonsense", &[])),
        ("parse a syntax error", parse("", "nonsense", &[])),
        ("parse an unknown table", parse("", "select * from nosuch", &[])),
        ("parse two statements", parse("", "select 1; select 2", &[])),
        ("parse an empty text", parse("", "", &[])),
        ("parse commit", parse("", "commit", &[])),
        ("parse a parameter without a type", parse("", "select $1 is null", &[])),
        ("bind", bind("", "s", &["4"], false)),
        ("bind binary", bind("", "s", &["4"], true)),
        ("bind the unnamed statement", bind("", "", &[], false)),
        ("bind to a portal", bind("p", "s", &["4"], false)),
        ("bind an unknown statement", bind("", "nosuch", &[], false)),
        ("bind too few parameters", bind("", "s", &[], false)),
        ("bind too many parameters", bind("", "s", &["1", "2"], false)),
        ("bind an invalid value", bind("", "s", &["x"], false)),
        ("describe statement", describe('S', "s")),
        ("describe the unnamed statement", describe('S', "")),
        ("describe an unknown statement", describe('S', "nosuch")),
        ("describe the unnamed portal", describe('P', "")),
        ("describe portal", describe('P', "p")),
        ("execute the unnamed portal", execute("", 0)),
        ("execute the unnamed portal and flush", [execute("", 0), flush()].concat()),
        ("execute portal", execute("p", 0)),
        ("execute one row of a portal", execute("p", 1)),
        ("execute a negative count of rows", execute("p", u32::MAX)),
        ("execute an unknown portal", execute("nosuch", 0)),
        ("close statement", close('S', "s")),
        ("close the unnamed statement", close('S', "")),
        ("close an unknown statement", close('S', "nosuch")),
        ("close portal", close('P', "p")),
        ("close an unknown portal", close('P', "nosuch")),
        ("bind and execute", [bind("", "s", &["4"], false), execute("", 0)].concat()),
        (
            "bind and execute two rows",
            [bind("", "s", &["4"], false), execute("", 1), execute("", 1)].concat(),
        ),
        ("flush", flush()),
        ("sync", sync()),
    ]
}

fn copy() -> Vec<Named> {
    vec![
        ("copy data", message(b'd', b"8\n")),
        ("copy data with an invalid value", message(b'd', b"x\n")),
        ("copy data with the end marker", message(b'd', b"8\n\\.\n")),
        ("copy of an existing key", [message(b'd', b"1\n"), message(b'c', b"")].concat()),
        ("copy data and done", [message(b'd', b"8\n"), message(b'c', b"")].concat()),
        ("copy done", message(b'c', b"")),
        ("copy fail", message(b'f', b"enough\0")),
    ]
}

fn malformed() -> Vec<Named> {
    vec![
        ("query without a terminator", message(b'Q', b"select 1")),
        ("query without a body", message(b'Q', b"")),
        ("query that is not UTF-8", message(b'Q', b"select '\xff'\0")),
        ("query with an incomplete character", message(b'Q', b"select '\xe2\x82'\0")),
        ("query with trailing bytes", message(b'Q', b"select 1\0more")),
        ("function call truncated", message(b'F', b"\0\0")),
        ("parse truncated", message(b'P', b"x\0select 1\0\0")),
        ("parse without a count", message(b'P', b"\0select 1\0")),
        ("parse with too few types", message(b'P', b"\0select 1\0\0\x02\0\0\0\x17")),
        ("parse with trailing bytes", message(b'P', b"\0select 1\0\0\0more")),
        ("parse of invalid UTF-8", message(b'P', b"\0select '\xff'\0\0\0")),
        ("describe truncated", message(b'D', b"S")),
        ("describe without a body", message(b'D', b"")),
        ("describe with trailing bytes", message(b'D', b"Ss\0more")),
        ("describe with subtype X", describe('X', "s")),
        ("close truncated", message(b'C', b"P")),
        ("close without a body", message(b'C', b"")),
        ("close with trailing bytes", message(b'C', b"Ps\0more")),
        ("close with subtype X", close('X', "s")),
        ("execute truncated", message(b'E', b"\0\0\0")),
        ("execute with trailing bytes", message(b'E', b"\0\0\0\0\0more")),
        ("sync with a body", message(b'S', b"x")),
        ("flush with a body", message(b'H', b"x")),
        ("copy done with a body", message(b'c', b"x")),
        ("copy fail without a terminator", message(b'f', b"why")),
        ("copy fail with trailing bytes", message(b'f', b"why\0more")),
        ("terminate with a body", message(b'X', b"x")),
    ]
}

fn malformed_binds() -> Vec<Named> {
    let b = |name, body: &[u8]| (name, message(b'B', body));
    vec![
        b("bind truncated", b"xx"),
        b("bind truncated after the names", b"\0s\0"),
        b("bind of an unknown statement, truncated", b"\0nosuch\0"),
        b("bind to an existing portal, truncated", b"p\0s\0\0\0\0\x01"),
        b("bind with a length beyond the message", b"\0s\0\0\0\0\x01\0\0\0\x09x\0\0"),
        b("bind with a length of -2", b"\0s\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
        b("bind NULL", b"\0s\0\0\0\0\x01\xff\xff\xff\xff\0\0"),
        b("bind with a format 7", b"\0s\0\0\x01\0\x07\0\x01\0\0\0\x011\0\0"),
        b("bind with two formats", b"\0s\0\0\x02\0\0\0\0\0\x01\0\0\0\x011\0\0"),
        b("bind a binary value too short", b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x02\0\x01\0\0"),
        b("bind a binary value too long", b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x05\0\0\0\0\x01\0\0"),
        b("bind a value that is not UTF-8", b"\0s\0\0\0\0\x01\0\0\0\x02\xff1\0\0"),
        b("bind with two result formats", b"\0s\0\0\0\0\x01\0\0\0\x011\0\x02\0\0\0\0"),
        b("bind with a result format 7", b"\0s\0\0\0\0\x01\0\0\0\x011\0\x01\0\x07"),
        b("bind with trailing bytes", b"\0s\0\0\0\0\x01\0\0\0\x011\0\0more"),
        b("bind an invalid value, truncated", b"\0s\0\0\0\0\x01\0\0\0\x01x\0"),
    ]
}

/// Messages that leave the stream out of sync, or that swallow the following messages.
fn out_of_step() -> Vec<Named> {
    vec![
        ("password", message(b'p', b"secret\0")),
        ("unknown type", message(b'z', b"")),
        ("unknown type alone", b"z".to_vec()),
        ("type 0", message(0, b"")),
        ("half a header", b"S\0\0".to_vec()),
        ("length 0", b"S\0\0\0\0".to_vec()),
        ("length 3", b"Q\0\0\0\x03".to_vec()),
        ("length 10000 of a sync", b"S\0\0\x27\x10".to_vec()),
        ("length 10001 of a sync", b"S\0\0\x27\x11".to_vec()),
        ("length 10001 of a query", b"Q\0\0\x27\x11".to_vec()),
        ("length 10001 of copy data", b"d\0\0\x27\x11".to_vec()),
        ("length 10001 of copy done", b"c\0\0\x27\x11".to_vec()),
        ("length 300 MiB", b"Q\x12\xc0\0\0".to_vec()),
        ("length 1 GiB", b"Q\x40\0\0\0".to_vec()),
        ("negative length", b"Q\xff\xff\xff\xff".to_vec()),
    ]
}

/// A packet without a type byte.
fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
    [&(rest.len() as u32 + 8).to_be_bytes()[..], &code.to_be_bytes(), rest].concat()
}

const VERSION_3: u32 = 3 << 16;
const CANCEL: u32 = (1234 << 16) | 5678;
pub const SSL: u32 = (1234 << 16) | 5679;
pub const GSS: u32 = (1234 << 16) | 5680;

/// An encryption request.
pub fn encryption(code: u32) -> Vec<u8> {
    packet(code, b"")
}

/// All packets that may precede a session.
pub fn packets() -> Vec<Named> {
    let user = b"user\0postgres\0";
    let with = |more: &[u8]| packet(VERSION_3, &[&user[..], more, b"\0"].concat());
    vec![
        ("nothing", vec![]),
        ("startup", with(b"")),
        ("startup of the database postgres", with(b"database\0postgres\0")),
        ("startup of an unknown database", with(b"database\0nosuch\0")),
        ("startup without a user", startup(&[("database", "postgres")])),
        ("startup with an empty user", startup(&[("user", "")])),
        ("startup with settings", with(b"application_name\0matrix\0datestyle\0us, iso\0")),
        (
            "startup with options",
            with(b"options\0-c application_name=one\\ two --extra_float_digits=3\0"),
        ),
        ("startup with invalid options", with(b"options\0nonsense\0")),
        ("startup with an unknown setting", with(b"nosuch\0x\0")),
        ("startup with a bad setting", with(b"extra_float_digits\0x\0")),
        ("startup with replication off", with(b"replication\0off\0")),
        ("startup with a bad replication", with(b"replication\0nonsense\0")),
        ("startup of version 3.1", packet(VERSION_3 | 1, &[&user[..], b"\0"].concat())),
        ("startup of version 3.2 without a user", packet(VERSION_3 | 2, b"\0")),
        ("startup with a protocol option", with(b"_pq_.one\0yes\0_pq_.two\0no\0")),
        ("startup of version 2.0", packet(2 << 16, &[0; 288])),
        ("startup of version 1.0", packet(1 << 16, b"")),
        ("startup of version 4.0", packet(4 << 16, b"")),
        ("startup of version 0.0", packet(0, b"")),
        ("startup without a terminator", packet(VERSION_3, user)),
        ("startup with a name without a value", packet(VERSION_3, b"user\0postgres\0database\0")),
        ("startup with an unterminated name", packet(VERSION_3, b"user")),
        ("startup with an unterminated value", packet(VERSION_3, b"user\0postgres")),
        ("startup with trailing bytes", packet(VERSION_3, &[&user[..], b"\0more"].concat())),
        ("startup without a body", packet(VERSION_3, b"")),
        (
            "startup with a user that is not UTF-8",
            packet(VERSION_3, b"user\0\xff\0database\0postgres\0\0"),
        ),
        ("startup twice", [with(b""), with(b"")].concat()),
        ("request for SSL", packet(SSL, b"")),
        ("request for SSL with a body", packet(SSL, b"more")),
        ("request for GSS", packet(GSS, b"")),
        ("request for SSL and startup at once", [packet(SSL, b""), with(b"")].concat()),
        ("request for GSS and startup at once", [packet(GSS, b""), with(b"")].concat()),
        ("cancel of an unknown session", packet(CANCEL, &[0, 0, 0, 1, 0, 0, 0, 1])),
        ("cancel truncated", packet(CANCEL, &[0, 0, 0, 1])),
        ("cancel with trailing bytes", packet(CANCEL, &[0, 0, 0, 1, 0, 0, 0, 1, 0])),
        ("length 0", vec![0; 4]),
        ("length 7", b"\0\0\0\x07\0\0\0".to_vec()),
        ("length 10001", b"\0\0\x27\x11\0\x03\0\0".to_vec()),
        ("half a packet", b"\0\0\0\x20\0\x03\0\0user".to_vec()),
        ("query before the startup", query("select 1")),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ]
}
