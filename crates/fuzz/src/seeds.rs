//! Initial inputs, made by the engine and from the SQL of the server's tests.
//! `cargo run -p clearway-fuzz --bin seeds` writes them.

use crate::seal;
use crate::targets::Image;
use crate::targets::verbs::KEY;
use crate::targets::{backup, directory};
use clearway_buffer::PAGE_SIZE;
use clearway_storage::wal::{WalConfig, WalReader};
use clearway_types::row::encode;
use clearway_types::{Datum, Lsn, PageId, PartitionId};
use std::collections::BTreeSet;
use std::path::Path;

/// An input for a target.
#[derive(Debug)]
pub struct Seed {
    /// The target.
    pub target: &'static str,
    /// Its name within the target's directory, after `seed-`.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// Maximum length of a record: longer ones test nothing more.
const LONGEST_RECORD: usize = 400;

/// The bytes at 0, 1 and 20 of a record of page changes with the undo of an addition.
const ADDITION: [u8; 3] = [1, 1, 3];

/// Returns all seeds.
pub fn all() -> Vec<Seed> {
    let mut seeds = Seeds(Vec::new());
    seeds.storage();
    seeds.values();
    seeds.text();
    seeds.wire();
    seeds.verbs();
    seeds.0
}

struct Seeds(Vec<Seed>);

impl Seeds {
    fn push(&mut self, target: &'static str, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push(Seed { target, name: name.into(), bytes: bytes.into() });
    }

    fn storage(&mut self) {
        let image = directory::base();
        let file = |end: &str| {
            let found = image.0.iter().find(|(path, _)| path.ends_with(end));
            &found.expect("a file of every directory").1
        };
        self.pages(file("data/p0000.data"));
        let records = records(image);
        let mut kinds = BTreeSet::new();
        let mut run = Vec::new();
        for record in records.iter().filter(|r| r.len() <= LONGEST_RECORD) {
            let sized = [&(record.len() as u16).to_le_bytes()[..], record].concat();
            // By its type, its role, and the order of magnitude of its length.
            if kinds.insert((record[0], record[1], record.len().ilog2())) {
                self.push("record", format!("{}", kinds.len()), sized.clone());
            }
            if record.starts_with(&ADDITION[..2]) && record.get(20) == Some(&ADDITION[2]) {
                self.push("record", "addition", sized.clone());
            }
            if run.len() < 1500 {
                run.extend_from_slice(&sized);
            }
        }
        self.push("record", "run", run);
        let short: Vec<u8> = records
            .iter()
            .filter(|r| r.len() < 120)
            .take(12)
            .flat_map(|r| seal::record(r, 0))
            .collect();
        let log =
            |flags: u8, place: u8, log: &[u8]| [&[flags, place, 8, 0, 0, 0][..], log].concat();
        let from_start = [&[0; 8][..], &short].concat();
        self.push("log", "empty", log(5, 0, &[]));
        self.push("log", "short", log(5, 0, &from_start));
        self.push("log", "unsealed", log(4, 0, &from_start));
        self.push(
            "log",
            "two-segments",
            log(5, 0x90, &[&seal::record(&[2; 4090], 1)[..], &short].concat()),
        );
        self.push("log", "last-place", log(5, 0xff, &short));
        let control = file("db/control");
        let slots = [&control[..64], control.get(4096..4160).unwrap_or(&[])].concat();
        self.push("control", "sealed", [&[1][..], &slots].concat());
        self.push("control", "as-it-is", [&[0][..], &slots].concat());
        self.directory("directory", 7, image);
        let copy = backup::base_backup();
        self.directory("backup", backup::SEAL, copy);
        let manifest = &copy
            .0
            .iter()
            .find(|(path, _)| path.ends_with("manifest"))
            .expect("a backup has one")
            .1;
        let text = manifest.len() - "sum 00000000\n".len();
        self.push("manifest", "sealed", [&[1][..], &manifest[..text]].concat());
        self.push("manifest", "as-it-is", [&[0][..], manifest].concat());
        let id = |no: u32| PageId::new(PartitionId(0), no).to_u64().to_le_bytes();
        let copy = |content: u8, no: u32| [&[content][..], &id(no), &[0; 4]].concat();
        for (name, flags) in [("whole", 3), ("bad-header", 2), ("bad-copies", 1)] {
            let head = [flags, 2, 2, 3, 4, 5, 6, 8];
            self.push("double_write", name, [&head[..], &copy(6, 1), &copy(8, 2)].concat());
        }
    }

    fn pages(&mut self, file: &[u8]) {
        let mut kinds = BTreeSet::new();
        for page in file.chunks_exact(PAGE_SIZE) {
            let (kind, slots) = (page[5], u16::from_le_bytes([page[24], page[25]]));
            if !kinds.insert((kind, page[30], slots.min(60))) || kinds.len() > 8 {
                continue;
            }
            let heap = usize::from(u16::from_le_bytes([page[26], page[27]]))
                .clamp(PAGE_SIZE - 1500, PAGE_SIZE);
            let front = &page[24..(48 + 6 * usize::from(slots.min(200))).min(PAGE_SIZE)];
            let record = [1, 0, 0, 0, 3, 7, 0, 0, 0, 0, 0];
            let head =
                [&[kind][..], &(front.len() as u16).to_le_bytes(), &[record.len() as u8], &record];
            self.push(
                "page",
                format!("{}", kinds.len()),
                [&head.concat()[..], front, &page[heap..]].concat(),
            );
        }
    }

    fn directory(&mut self, target: &'static str, flags: u8, image: &Image) {
        self.push(target, "unchanged", [flags]);
        // A byte of each field of a page's header, of a record, and of each other file.
        for (i, (path, bytes)) in (0u8..).zip(&image.0) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            for at in [
                12u32,
                24,
                28,
                30,
                36,
                48,
                4096 + 8,
                4096 + 40,
                8192 + 24,
                8192 + 32,
                3 * 8192 + 26,
                3 * 8192 + 50,
            ] {
                if (at as usize) < bytes.len() {
                    let [a, b, c, _] = at.to_le_bytes();
                    self.push(target, format!("{name}-{at}"), [flags, i, a, b, c, 2, 1, 0]);
                }
            }
        }
    }

    fn values(&mut self) {
        let rows: [&[Datum]; 3] = [
            &[
                Datum::Null,
                Datum::Bool(true),
                Datum::Int2(-2),
                Datum::Int4(70_000),
                Datum::Int8(-1 << 40),
            ],
            &[
                Datum::Float8(-1.5e300),
                Datum::from("na\u{ef}ve"),
                Datum::Timestamp(1),
                Datum::Timestamptz(-1),
            ],
            &[Datum::Numeric("-12345.678".parse().unwrap_or_default()), Datum::from("")],
        ];
        for (i, row) in rows.iter().enumerate() {
            let mut bytes = Vec::new();
            encode(row, &mut bytes);
            self.push("row", format!("{i}"), bytes);
        }
        self.push("key", "ints", [1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x80]);
        self.push("key", "texts", [1, 5, 0, 3, b'a', 0, b'b', 0, 2, b'a', 0, 5, 0xff, 0, 1, b'x']);
        self.push(
            "key",
            "floats",
            [0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
        );
        let texts: [(u8, &str); 18] = [
            (13, "4714-11-24 BC"),
            (13, "5874897-12-31"),
            (0, "true"),
            (1, "-32768"),
            (2, " 2147483647 "),
            (3, "-9223372036854775808"),
            (4, "1.5e-300"),
            (4, "-Infinity"),
            (6, "abcde  "),
            (8, "ab "),
            (9, "2024-02-29 23:59:60"),
            (9, "4713-01-01 BC"),
            (9, "294276-12-31 23:59:59.999999"),
            (10, "2024-03-31 02:30:00.5 Europe/Berlin"),
            (10, "2024-03-31T02:30:00+05:45"),
            (10, "infinity"),
            (11, "-79228162514264337593543950335"),
            (11, "0.0000000000000000000000000001"),
        ];
        for (i, (ty, text)) in texts.iter().enumerate() {
            self.push("values", format!("{i}"), [&[*ty, i as u8][..], text.as_bytes()].concat());
            self.push("bind", format!("text-{i}"), [&[*ty, 0][..], text.as_bytes()].concat());
        }
        let numeric = [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 9, 41, 26, 124];
        for (name, ty, bytes) in
            [("bool", 0, &[1][..]), ("int4", 2, &[0xff; 4]), ("float8", 4, &[0x7f; 8])]
        {
            self.push("bind", name, [&[ty, 1][..], bytes].concat());
        }
        self.push("bind", "numeric", [&[11, 1][..], &numeric].concat());
        for (i, (pattern, text)) in
            [("a%b_c", "axxbyc"), ("%", ""), ("\\%\\_", "%_"), ("%a%a%b", "aaaaaaab")]
                .iter()
                .enumerate()
        {
            let head = [i as u8, pattern.len() as u8];
            self.push(
                "like",
                format!("{i}"),
                [&head[..], pattern.as_bytes(), text.as_bytes()].concat(),
            );
        }
    }

    fn text(&mut self) {
        let scripts = [
            include_str!("../../server/tests/sql/errors.sql"),
            include_str!("../../server/tests/sql/modify.sql"),
            include_str!("../../server/tests/sql/select.sql"),
            include_str!("../../server/tests/sql/transactions.sql"),
        ];
        for (script, text) in ["errors", "modify", "select", "transactions"].iter().zip(scripts) {
            let lines = text.lines().filter(|l| !l.starts_with('\\') && !l.starts_with("--"));
            for (i, statement) in lines.collect::<Vec<_>>().join("\n").split(";\n").enumerate() {
                let statement = statement.trim();
                if statement.is_empty() {
                    continue;
                }
                self.push("sql", format!("{script}-{i}"), statement);
                if clearway_planner::normalize(statement).is_some() {
                    self.push("normalize", format!("{script}-{i}"), statement);
                }
                if let Some(expression) =
                    statement.strip_prefix("select ").filter(|e| !e.contains(" from "))
                {
                    self.push("expr", format!("{script}-{i}"), expression);
                }
            }
        }
        for (i, sql) in STATEMENTS.iter().enumerate() {
            self.push("normalize", format!("own-{i}"), *sql);
            self.push("sql", format!("own-{i}"), *sql);
        }
        for (i, text) in EXPRESSIONS.iter().enumerate() {
            self.push("expr", format!("own-{i}"), *text);
        }
        for (i, text) in COPIES.iter().enumerate() {
            self.push("copy", format!("{i}"), *text);
        }
        for (i, request) in REQUESTS.iter().enumerate() {
            self.push("http", format!("{i}"), *request);
        }
        self.push("config", "all", CONFIG);
        self.push(
            "config",
            "sizes",
            "buffer_pool = 134217728\nlog_segment = \"1GiB\"\nlog_buffer = \"2 mb\"",
        );
    }

    fn wire(&mut self) {
        let session = b"\0\0\0\x1c\0\x03\0\0user\0me\0database\0d\0\0";
        self.push("startup", "session", &session[..]);
        for (name, code) in [("ssl", 5679u32), ("gss", 5680)] {
            self.push(
                "startup",
                name,
                [&8u32.to_be_bytes()[..], &(1234 << 16 | code).to_be_bytes()].concat(),
            );
        }
        let cancel = [16u32, 1234 << 16 | 5678, 7, 9].map(u32::to_be_bytes);
        self.push("startup", "cancel", cancel.concat());
        let update = "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2";
        let parse = |sql: &str, types: &[u32]| {
            let types: Vec<u8> = types.iter().flat_map(|t| t.to_be_bytes()).collect();
            message(
                b'P',
                &[b"s\0", sql.as_bytes(), b"\0", &(types.len() as u16 / 4).to_be_bytes(), &types]
                    .concat(),
            )
        };
        let tail =
            [message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        let text = message(b'B', b"\0s\0\0\0\0\x02\0\0\0\x03-12\0\0\0\x017\0\0");
        let binary = message(
            b'B',
            b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\xff\xff\xff\xf4\0\0\0\x04\0\0\0\x07\0\x01\0\x01",
        );
        self.push("wire", "text", [&parse(update, &[])[..], &text, &tail].concat());
        self.push("wire", "binary", [&parse(update, &[23, 23])[..], &binary, &tail].concat());
        let types = parse("select $1, $2, $3, $4, $5", &[16, 21, 701, 1114, 1700]);
        let values = b"p\0s\0\0\x05\0\x01\0\x01\0\x01\0\0\0\0\0\x05\0\0\0\x01\x01\0\0\0\x02\0\x09\xff\xff\xff\xff\0\0\0\x0a2024-02-29\0\0\0\x03-.5\0\0";
        self.push("wire", "types", [&types[..], &message(b'B', values), &tail].concat());
        let query = [
            message(b'Q', b"copy pgbench_history from stdin\0"),
            message(b'd', b"1\t2\t3\t4\t\\N\tx\n"),
            message(b'c', b""),
        ];
        self.push(
            "wire",
            "copy",
            [query.concat(), message(b'f', b"why\0"), message(b'X', b"")].concat(),
        );
        self.push(
            "wire",
            "close",
            [message(b'C', b"Ss\0"), message(b'C', b"P\0"), message(b'H', b"")].concat(),
        );
    }

    fn verbs(&mut self) {
        use clearway_fabric::tcp::frame;
        let mut bytes = Vec::new();
        frame::write(&mut bytes, KEY, 1, &[1, 2, 3]);
        frame::read(&mut bytes, KEY, 0, 8);
        frame::cas(&mut bytes, KEY, 1, 1, 9);
        frame::faa(&mut bytes, KEY, 7, u64::MAX);
        self.push("verbs", "one-sided", &bytes[..]);
        frame::read(&mut bytes, KEY, 7, 2);
        self.push("verbs", "out-of-bounds", &bytes[..]);
        let mut bytes = Vec::new();
        frame::send(&mut bytes, &[5; 4]);
        frame::send_done(&mut bytes, frame::SendStatus::Gone);
        frame::refused(&mut bytes);
        frame::read(&mut bytes, KEY ^ 1, 0, 1);
        self.push("verbs", "messages", bytes);
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// Returns the log records of a directory.
fn records(image: &Image) -> Vec<Vec<u8>> {
    let config = WalConfig { dir: Path::new("db/wal").to_owned(), ..WalConfig::default() };
    let starts = image.0.iter().filter_map(|(path, _)| directory::segment_start(path));
    // In the middle of a log, only the last checkpoint's LSN is known to be a record's start.
    let control = &image
        .0
        .iter()
        .find(|(path, _)| path.ends_with("db/control"))
        .expect("every directory has one")
        .1;
    let word = |at: usize| {
        control.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let from = word(32).max(word(4096 + 32)).max(starts.min().unwrap_or(8).min(8));
    let mut out = Vec::new();
    if let Ok(mut reader) = WalReader::open(image.disk(), &config, Lsn(from)) {
        while let Ok(Some(entry)) = reader.next() {
            out.push(entry.payload.to_vec());
        }
    }
    out
}

const STATEMENTS: &[&str] = &[
    "select abalance from pgbench_accounts where aid = 5",
    "update pgbench_accounts set abalance = abalance + -9461 where aid = 3",
    "insert into pgbench_history (tid, bid, aid, delta, mtime) values (9, 1, 7, -3, current_timestamp)",
    "select a-1, a - 1, (-1), -a from t where e like 'it''s%' order by 1, a limit 5 offset 1",
    "insert into t values (1, 2, -3000000000, 1.5e3, 'x', 'y', 'z', '2024-01-01', '2024-01-01 12:00+02', true)",
    "select b, count(*), sum(c), avg(d) from t group by b having count(*) > 2 order by 2 desc",
    "select distinct f from t where a between 3 and 7 and b in (1, 2, null) or not j",
    "select case when a > 1 then 'x' else g end, coalesce(e, '-'), e || 'y', f::char(5), d::int from t where h > '2024-01-01'",
    "delete from pairs where a = 1 and b = 'x' returning *",
    "insert into pairs select x, 'v', 2 from generate_series(1, 10, 3) g(x)",
    "explain select * from pairs where c = 3",
    "create table n (a int primary key, b varchar(10) not null default 'x', unique (b)) distributed by (a)",
    "prepare p (int, text) as select $1 + 1, $2",
    "execute p (1 + 2, 'a')",
    "begin; set local timezone = 'UTC'; savepoint a; rollback to a; commit",
    "select name, contended from clearway.contention as c where c.per_million > 1.5 order by total_wait_us desc limit 5",
    "select clearway.reset_contention(); select count(*) from clearway.activity; delete from clearway.latch_calibration",
    "select clearway.set_scheme(0, 'locking'); select clearway.set_scheme($1); select * from clearway.partitions",
];

const EXPRESSIONS: &[&str] = &[
    "1 + 2 * 3 - 4 / 5 % 6, 7::bigint * 8, 1.5 / 3, 2e308, -32768::smallint",
    "substring('text' from 2 for 3), left('text', -1), right('text', 2), position('x' in 'text'), trim(both 'x' from 'xax')",
    "repeat('ab', 3), replace('aXa', 'a', 'bb'), upper('\u{df}'), lower('\u{130}'), length('\u{1F600}'), md5('x')",
    "round(2.5), round(-2.567, 2), round(1234.5, -2), floor(-0.5), ceil(1e20::float8), abs(-9223372036854775807)",
    "date_trunc('week', timestamp '2024-02-29 12:00'), '294276-12-31'::timestamptz, '2024-03-10 02:30'::timestamptz::timestamp",
    "'1'::int, 'x'::char(3), 'abcdef'::varchar(2), true::int, 1::bool, 1e10::float8::int8, 'NaN'::float8::numeric",
    "case when null then 1 else 2 end, coalesce(null, 3), nullif(1, 1), greatest(1, 2.5, 3e0), least('a', 'b')",
    "'a' like '%', 'a' ilike 'A_', null is null, 1 in (2, null), 1 between 0 and 2, not true and false or null",
    "79228162514264337593543950335 + 1, 1 / 3.0, 0.0000000000000000000000000001 * 0.1, 10 % 3.3",
    "now(), current_user, version(), current_setting('TimeZone'), pg_backend_pid()",
];

const COPIES: &[&str] = &[
    "copy pairs from stdin\n1\ta\\tb\\\\\t2\n2\t\\101\\x42\\\nc\t\\N\n\\.\nignored",
    "copy pairs from stdin with (format csv, header)\na,b,c\r\n1,\"x,\"\"y\"\"\r\nz\",\r\n2,\"\",3\r\n",
    "copy pairs (b, a) from stdin with (format csv, delimiter ';', quote '''', escape '\\', null 'NULL')\n'it\\'s';1\nNULL;2\n",
    "copy t from stdin\n1\t2\t3\t4.5\tx\ty\tz\t2024-01-01\t2024-01-01 12:00+02\tt\t2024-02-29\n",
    "copy t (a, c, d) from stdin with (delimiter '|', null '')\n1|2|Infinity\n-1|+3|\n",
];

const REQUESTS: &[&str] = &[
    "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9187\r\nUser-Agent: Prometheus/3.0\r\nAccept: text/plain;version=0.0.4;q=0.2,*/*;q=0.1\r\n\r\n",
    "HEAD /metrics?a=b HTTP/1.0\r\n\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.1\nno colon\n\n",
];

const CONFIG: &str = "data = \"d\"\nlisten = \"127.0.0.1:5433\"\nunix_socket = \"s\"\npartitions = 8\nbuffer_pool = \"256MiB\"\nworkers = 2\n\
synchronous_commit = \"off\"\ncheckpoint_interval_s = 30\nlog_segment = \"16MiB\"\nlog_buffer = \"4MiB\"\n\
max_connections = 100\nspin_us = 0\nmetrics = \"127.0.0.1:9187\"\nlatch = \"cas\"\nlatch_spins = 70\nlog_filter = \"info\"\n";
