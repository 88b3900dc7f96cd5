//! COPY data. The first line of the input is the statement; the rest is the data. However the data
//! is split into messages, the result is the same rows, or the same error after the same rows. Rows
//! written as COPY TO does are read as the same rows.

use super::common::{same, session, text};
use super::expr::plan;
use clearway_ir::Statement;
use clearway_ir::statement::{Copy, CopyDirection};
use clearway_testkit::Rng;
use clearway_types::{Datum, RowBatch, SqlError};
use clearway_wire::copy::data_line;
use clearway_wire::copy_read::CopyReader;

pub(super) fn run(data: &[u8]) {
    let end = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let (sql, data) = (&data[..end], data.get(end + 1..).unwrap_or(&[]));
    let Some(plan) = text(sql).map(plan) else { return };
    let Ok(Statement::Copy(copy)) = plan.map(|p| p.statement) else { return };
    if !matches!(copy.direction, CopyDirection::From { .. }) {
        return;
    }
    let whole = read(&copy, std::iter::once(data));
    agree("one byte each", &whole, &read(&copy, data.chunks(1)));
    let mut rng = Rng::new(data.len() as u64 ^ u64::from(crc32c::crc32c(data)));
    let mut rest = data;
    let pieces = std::iter::from_fn(|| {
        let (head, tail) = rest.split_at((1 + rng.below(9) as usize).min(rest.len()));
        rest = tail;
        (!head.is_empty()).then_some(head)
    });
    agree("several bytes each", &whole, &read(&copy, pieces));
    if whole.error.is_none() {
        let written = write(&copy, &whole.rows);
        let again = read(&copy, std::iter::once(&written[..]));
        agree("written and read", &whole, &again);
    }
}

struct Read {
    rows: RowBatch,
    error: Option<SqlError>,
}

fn read<'a>(copy: &Copy, pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let mut reader =
        CopyReader::new(copy.format.clone(), copy.types.clone(), session().zone.clone());
    let mut rows = RowBatch::new();
    for piece in pieces {
        reader.feed(piece);
        if let Err(error) = drain(&mut reader, false, &mut rows) {
            return Read { rows, error: Some(error) };
        }
    }
    let error = drain(&mut reader, true, &mut rows).err();
    Read { rows, error }
}

fn drain(reader: &mut CopyReader, last: bool, rows: &mut RowBatch) -> Result<(), SqlError> {
    while reader.rows(last, 3, rows)? {}
    Ok(())
}

fn write(copy: &Copy, rows: &RowBatch) -> Vec<u8> {
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    if copy.format.header {
        out.extend_from_slice(b"header\n");
    }
    for row in rows.iter() {
        let mut message = Vec::new();
        data_line(&mut message, row, &copy.types, &copy.format, &session().zone, &mut scratch)
            .expect("a row of our own");
        out.extend_from_slice(&message[5..]);
    }
    out
}

fn agree(how: &str, a: &Read, b: &Read) {
    assert_eq!(
        a.error.as_ref().map(SqlError::state),
        b.error.as_ref().map(SqlError::state),
        "{how}"
    );
    let values = |read: &Read| -> Vec<Vec<Datum>> {
        read.rows.iter().map(|row| row.to_datums().expect("a row of our own")).collect()
    };
    let (a, b) = (values(a), values(b));
    assert_eq!(a.len(), b.len(), "{how}: {a:?} and {b:?}");
    for (a, b) in a.iter().zip(&b) {
        assert!(
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
            "{how}: {a:?} and {b:?}"
        );
    }
}
