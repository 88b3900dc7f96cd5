//! COPY FROM: decodes lines of text or CSV into rows.
//!
//! Invariant: the rows do not depend on how the data is split into messages.
//!
//! Locking: none. A crash leaves nothing.
//!
//! Source: PostgreSQL's documentation of COPY, "File Formats".

use crate::copy_lines::{Lines, bad};
use crate::frontend::utf8;
use crate::row::plain_i64;
use clearway_ir::Zone;
use clearway_ir::statement::CopyFormat;
use clearway_ir::value::parse_text;
use clearway_types::{DatumRef, RowBatch, RowBuilder, SqlError, SqlResult, SqlState, SqlType};

/// Decodes COPY data into rows.
pub struct CopyReader {
    format: CopyFormat,
    types: Vec<SqlType>,
    zone: Zone,
    lines: Lines,
    skip_header: bool,
    field: Vec<u8>,
    /// The table and its columns, for the context of errors.
    names: Option<(String, Vec<String>)>,
}

/// Maximum length of a line or value in an error's context, in bytes.
const SHOWN: usize = 100;

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= SHOWN {
        text.into_owned()
    } else {
        format!("{}...", &text[..text.floor_char_boundary(SHOWN)])
    }
}

/// A field's value, `None` for NULL; and the rest of the line if a delimiter followed.
type Field<'f, 'l> = (Option<&'f [u8]>, Option<&'l [u8]>);

impl CopyReader {
    /// Creates a reader of rows with columns of these types.
    pub fn new(format: CopyFormat, types: Vec<SqlType>, zone: Zone) -> Self {
        let (lines, skip_header) = (Lines::new(&format), format.header);
        Self { format, types, zone, lines, skip_header, field: Vec::new(), names: None }
    }

    /// Makes errors name the table, line and column, as PostgreSQL's do.
    pub fn of(mut self, table: &str, columns: &[String]) -> Self {
        self.names = Some((table.to_owned(), columns.to_vec()));
        self
    }

    /// Adds the line's number to an error's context, and its bytes if they can be shown.
    fn in_line(&self, error: SqlError, line: u64, bytes: Option<&[u8]>) -> SqlError {
        let Some((table, _)) = &self.names else { return error };
        if error.get_context().is_some() {
            return error;
        }
        // Bytes that are not valid text are not shown.
        let bytes = bytes.filter(|_| error.state() != SqlState::NOT_IN_REPERTOIRE);
        let text = bytes.map_or_else(String::new, |bytes| format!(": \"{}\"", shown(bytes)));
        error.context(format!("COPY {table}, line {line}{text}"))
    }

    /// Adds the next line's number to the context of an error that is not about the data.
    pub fn in_next_line(&self, error: SqlError) -> SqlError {
        self.in_line(error, self.line() + u64::from(!self.lines.has_ended()), None)
    }

    fn in_column(&self, error: SqlError, column: usize, value: &[u8]) -> SqlError {
        match &self.names {
            Some((table, columns)) if error.state() != SqlState::NOT_IN_REPERTOIRE => {
                let name = columns.get(column).map_or("?", String::as_str);
                error.context(format!(
                    "COPY {table}, line {}, column {name}: \"{}\"",
                    self.line(),
                    shown(value)
                ))
            }
            _ => error,
        }
    }

    /// Appends a piece of data.
    pub fn feed(&mut self, data: &[u8]) {
        self.lines.feed(data);
    }

    /// Returns the number of the last line read, from 1.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }

    /// Decodes complete lines into `out`, at most `max` rows; `last` means that no more data
    /// follows. Returns true if complete lines may be left.
    pub fn rows(&mut self, last: bool, max: usize, out: &mut RowBatch) -> SqlResult<bool> {
        let mut field = std::mem::take(&mut self.field);
        let result = self.rows_into(last, max, out, &mut field);
        self.field = field;
        result
    }

    fn rows_into(
        &mut self,
        last: bool,
        max: usize,
        out: &mut RowBatch,
        field: &mut Vec<u8>,
    ) -> SqlResult<bool> {
        for _ in 0..max {
            let line = match self.lines.next(last) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(false),
                Err(e) => return Err(self.in_line(e, self.line(), None)),
            };
            if std::mem::take(&mut self.skip_header) {
                continue;
            }
            let bytes = self.lines.bytes(line);
            let read = out.try_push_with(|row| self.row(bytes, row, field));
            read.map_err(|e| self.in_line(e, self.line(), Some(bytes)))?;
        }
        Ok(true)
    }

    fn row(&self, line: &[u8], row: &mut RowBuilder<'_>, field: &mut Vec<u8>) -> SqlResult<()> {
        let mut rest = Some(line);
        for (i, &ty) in self.types.iter().enumerate() {
            let Some(input) = rest else {
                let name = self.names.as_ref().and_then(|(_, columns)| columns.get(i));
                let name = name.map_or_else(|| (i + 1).to_string(), |name| format!("\"{name}\""));
                return Err(bad(format!("missing data for column {name}")));
            };
            let (value, after) =
                if self.format.csv { self.csv(input, field)? } else { self.text(input, field) };
            rest = after;
            match value {
                None => row.push(DatumRef::Null),
                Some(bytes) => {
                    self.value(ty, bytes, row).map_err(|e| self.in_column(e, i, bytes))?
                }
            }
        }
        // A table without columns has empty lines.
        if rest.is_some_and(|r| !self.types.is_empty() || !r.is_empty()) {
            return Err(bad("extra data after last expected column"));
        }
        Ok(())
    }

    fn value(&self, ty: SqlType, bytes: &[u8], row: &mut RowBuilder<'_>) -> SqlResult<()> {
        match ty {
            SqlType::Int4 => {
                if let Some(v) = plain_i64(bytes).and_then(|v| i32::try_from(v).ok()) {
                    row.push(DatumRef::Int4(v));
                    return Ok(());
                }
            }
            SqlType::Int8 => {
                if let Some(v) = plain_i64(bytes) {
                    row.push(DatumRef::Int8(v));
                    return Ok(());
                }
            }
            _ => {}
        }
        let text = utf8(bytes)?;
        if bytes.contains(&0) {
            return Err(SqlError::new(
                SqlState::NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\": 0x00",
            ));
        }
        match ty {
            SqlType::Text | SqlType::Varchar(None) | SqlType::Unknown => {
                row.push(DatumRef::Text(text))
            }
            ty => row.push(parse_text(ty, text, &self.zone)?.as_ref()),
        }
        Ok(())
    }

    /// Decodes a field in text format: its value, and the rest of the line if a delimiter followed.
    fn text<'f, 'l: 'f>(&self, input: &'l [u8], field: &'f mut Vec<u8>) -> Field<'f, 'l> {
        let plain = input
            .iter()
            .position(|&b| b == self.format.delimiter || b == b'\\')
            .unwrap_or(input.len());
        if input.get(plain) != Some(&b'\\') {
            let value = &input[..plain];
            return (
                (value != self.format.null.as_bytes()).then_some(value),
                input.get(plain + 1..),
            );
        }
        field.clear();
        let (mut at, mut dropped) = (0, 0);
        while let Some(&b) = input.get(at) {
            if b == self.format.delimiter {
                break;
            }
            at += 1;
            match b {
                b'\\' if at < input.len() => at += escape(&input[at..], field),
                // A backslash at the end of the data, which PostgreSQL drops.
                b'\\' => dropped = 1,
                b => field.push(b),
            }
        }
        let value = (&input[..at - dropped] != self.format.null.as_bytes()).then_some(&field[..]);
        (value, input.get(at + 1..))
    }

    fn csv<'f, 'l: 'f>(&self, input: &'l [u8], field: &'f mut Vec<u8>) -> SqlResult<Field<'f, 'l>> {
        let CopyFormat { delimiter, quote, escape, .. } = self.format;
        field.clear();
        let (mut at, mut quoted, mut was_quoted) = (0, false, false);
        while let Some(&b) = input.get(at) {
            let next = input.get(at + 1).copied();
            at += 1;
            if quoted && b == escape && next.is_some_and(|n| n == quote || n == escape) {
                field.extend(next);
                at += 1;
            } else if b == quote {
                quoted = !quoted;
                was_quoted = true;
            } else if b == delimiter && !quoted {
                at -= 1;
                break;
            } else {
                field.push(b);
            }
        }
        if quoted {
            return Err(bad("unterminated CSV quoted field"));
        }
        let null = !was_quoted && field == self.format.null.as_bytes();
        Ok(((!null).then_some(&field[..]), input.get(at + 1..)))
    }
}

/// Decodes the escape after a backslash; returns its length.
fn escape(after: &[u8], out: &mut Vec<u8>) -> usize {
    let b = after[0];
    let digits = |from: usize, max: usize, radix: u32| {
        after.iter().skip(from).take(max).take_while(|&&d| char::from(d).is_digit(radix)).count()
    };
    let number = |digits: &[u8], radix: u32| {
        digits.iter().fold(0u32, |v, &d| v * radix + char::from(d).to_digit(radix).unwrap_or(0))
            as u8
    };
    match b {
        b'b' => out.push(8),
        b'f' => out.push(12),
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'v' => out.push(11),
        b'0'..=b'7' => {
            let n = digits(0, 3, 8);
            out.push(number(&after[..n], 8));
            return n;
        }
        b'x' if digits(1, 2, 16) > 0 => {
            let n = digits(1, 2, 16);
            out.push(number(&after[1..=n], 16));
            return n + 1;
        }
        b => out.push(b),
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::Datum;

    fn format(csv: bool) -> CopyFormat {
        CopyFormat {
            csv,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            header: false,
            quote: b'"',
            escape: b'"',
        }
    }

    fn read(csv: bool, data: &[u8], cut: usize) -> SqlResult<Vec<Vec<Datum>>> {
        let mut reader =
            CopyReader::new(format(csv), vec![SqlType::Int4, SqlType::Text], Zone::utc());
        let mut out = RowBatch::new();
        for piece in data.chunks(cut) {
            reader.feed(piece);
            while reader.rows(false, 2, &mut out)? {}
        }
        while reader.rows(true, 2, &mut out)? {}
        Ok(out.iter().map(|r| r.to_datums().unwrap()).collect())
    }

    fn rows(rows: &[(i32, Option<&str>)]) -> Vec<Vec<Datum>> {
        rows.iter()
            .map(|(i, t)| vec![Datum::Int4(*i), t.map_or(Datum::Null, Datum::from)])
            .collect()
    }

    #[test]
    fn rows_do_not_depend_on_message_boundaries() {
        let text = b"1\ta\\tb\n-2\t\\N\n3\t\n4\tx\\\ny\\\\\n5\t\\101\\x42\n\\.\nignored";
        let want = rows(&[
            (1, Some("a\tb")),
            (-2, None),
            (3, Some("")),
            (4, Some("x\ny\\")),
            (5, Some("AB")),
        ]);
        let csv = b"1,\"a,\"\"b\"\"\"\r\n2,\r\n3,\"\"\r\n4,\"x\ny\"\r\n5,z";
        let csv_want = rows(&[
            (1, Some("a,\"b\"")),
            (2, None),
            (3, Some("")),
            (4, Some("x\ny")),
            (5, Some("z")),
        ]);
        for cut in 1..=text.len() {
            assert_eq!(read(false, text, cut).unwrap(), want, "cut {cut}");
            assert_eq!(read(true, csv, cut).unwrap(), csv_want, "cut {cut}");
        }
    }

    #[test]
    fn malformed_lines_are_refused() {
        for (csv, data) in
            [(false, &b"1\n"[..]), (false, b"1\ta\tb\n"), (true, b"1,\"a"), (false, b"1\t\xff\n")]
        {
            assert!(read(csv, data, 100).is_err(), "{data:?}");
        }
        assert!(read(false, b"", 1).unwrap().is_empty());
    }

    /// PostgreSQL drops it.
    #[test]
    fn backslash_at_the_end_of_the_data_is_dropped() {
        assert_eq!(read(false, b"1\ta\\", 1).unwrap(), rows(&[(1, Some("a"))]));
        assert_eq!(read(false, b"1\t\\N\\", 1).unwrap(), rows(&[(1, None)]));
    }

    proptest::proptest! {
        #[test]
        fn never_panics_wherever_data_is_split(data in proptest::collection::vec(proptest::sample::select(b"1\t\n\\N.,\"ax\r".to_vec()), 0..40), cut in 1usize..8) {
            for csv in [false, true] {
                let whole = read(csv, &data, 1000);
                let parts = read(csv, &data, cut);
                proptest::prop_assert_eq!(whole.is_ok(), parts.is_ok());
                if let (Ok(a), Ok(b)) = (whole, parts) {
                    proptest::prop_assert_eq!(a, b);
                }
            }
        }
        #[test]
        fn written_rows_read_back(values: Vec<(i32, Option<String>)>) {
            for csv in [false, true] {
                let mut data = Vec::new();
                for (i, t) in &values {
                    let t = t.as_ref().map(|t| t.replace('\0', "0"));
                    let mut row = Vec::new();
                    clearway_types::row::encode(&[Datum::Int4(*i), t.as_deref().map_or(Datum::Null, Datum::from)], &mut row);
                    let mut line = Vec::new();
                    let view = clearway_types::RowView::new(&row);
                    crate::copy::data_line(&mut line, view, &[SqlType::Int4, SqlType::Text], &format(csv), &Zone::utc(), &mut Vec::new()).unwrap();
                    data.extend_from_slice(&line[5..]);
                }
                let want: Vec<_> = values.iter().map(|(i, t)| vec![Datum::Int4(*i), t.as_ref().map_or(Datum::Null, |t| Datum::from(t.replace('\0', "0").as_str()))]).collect();
                proptest::prop_assert_eq!(read(csv, &data, 7).unwrap(), want);
            }
        }
    }
}
