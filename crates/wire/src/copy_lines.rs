//! COPY FROM: splits data into lines.
//!
//! Invariants
//! 1. The lines do not depend on how the data is split into messages.
//! 2. No byte before `pos` is read again. An incomplete line stays in the buffer, up to
//!    [`MAX_LINE`].
//! 3. No byte before `scanned` is searched again. A byte whose meaning depends on the next ones is
//!    scanned when they have arrived.
//! 4. All lines end like the first one: with `\n`, `\r\n` or `\r`.
//!
//! Locking: none. A crash leaves nothing.
//!
//! Source: `CopyReadLineText` in PostgreSQL 15's copyfromparse.c.

use clearway_ir::statement::CopyFormat;
use clearway_types::{SqlError, SqlResult, SqlState};
use std::ops::Range;

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 64 << 20;

/// How lines end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eol {
    /// The first line has not ended.
    Unknown,
    Lf,
    CrLf,
    Cr,
}

/// The data of a COPY, as lines of text or CSV records.
pub(crate) struct Lines {
    csv: bool,
    quote: u8,
    escape: u8,
    buf: Vec<u8>,
    pos: usize,
    /// The position up to which the line's end was searched for, whether that position is inside
    /// CSV quotes, and whether it follows an escape there.
    scanned: usize,
    quoted: bool,
    escaped: bool,
    eol: Eol,
    number: u64,
    ended: bool,
}

/// Returns 22P04: the data is not in COPY's format.
pub(crate) fn bad(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FORMAT, message)
}

impl Lines {
    pub(crate) fn new(format: &CopyFormat) -> Self {
        Self {
            csv: format.csv,
            quote: format.quote,
            escape: format.escape,
            buf: Vec::new(),
            pos: 0,
            scanned: 0,
            quoted: false,
            escaped: false,
            eol: Eol::Unknown,
            number: 0,
            ended: false,
        }
    }

    /// Appends a piece of data.
    pub(crate) fn feed(&mut self, data: &[u8]) {
        if self.ended {
            return;
        }
        if self.pos > 0 {
            self.buf.drain(..self.pos);
            self.scanned -= self.pos;
            self.pos = 0;
        }
        self.buf.extend_from_slice(data);
    }

    /// Returns the number of the last line read, or of the line that failed, from 1. Like
    /// PostgreSQL's, it also counts line ends inside of quotes.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns true after the end marker, which counts as a line.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns a line's bytes. Valid until the next [`Lines::feed`].
    pub(crate) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buf[line]
    }

    /// Returns the next line without its end; `last` means that no more data follows. `None`: more
    /// data is needed, or there is no line.
    pub(crate) fn next(&mut self, last: bool) -> SqlResult<Option<Range<usize>>> {
        if self.ended {
            return Ok(None);
        }
        let (start, eol) = (self.pos, self.eol);
        let found = self.scan(last);
        let end = match &found {
            Ok(None) if self.ended => start,
            Ok(None) => return Ok(None),
            Ok(Some(line)) => line.end,
            Err(_) => self.scanned,
        };
        self.number += 1 + self.quoted_ends(&self.buf[start..end], eol);
        found
    }

    /// Counts line ends inside quotes like PostgreSQL: `eol` is what was known before the record.
    fn quoted_ends(&self, record: &[u8], eol: Eol) -> u64 {
        let end = if eol == Eol::Lf { b'\n' } else { b'\r' };
        if self.csv { record.iter().filter(|b| **b == end).count() as u64 } else { 0 }
    }

    fn scan(&mut self, last: bool) -> SqlResult<Option<Range<usize>>> {
        let start = self.pos;
        while let Some(&b) = self.buf.get(self.scanned) {
            let at = self.scanned;
            match b {
                b'\r' | b'\n' if !self.quoted => {
                    let Some(length) = self.line_end(at, last)? else {
                        return self.wait_for_more();
                    };
                    self.go_on(at + length);
                    return Ok(Some(start..at));
                }
                b'\\' if !self.csv || at == start => match self.is_end_marker(at, last)? {
                    None => return self.wait_for_more(),
                    Some(true) => {
                        self.ended = true;
                        return Ok(Some(start..at).filter(|line| !line.is_empty()));
                    }
                    // In text the next byte is part of the value, whatever it is.
                    Some(false) if !self.csv => {
                        self.scanned = self.buf.len().min(at + 2);
                        continue;
                    }
                    Some(false) => {}
                },
                _ => {}
            }
            if self.csv {
                self.scan_quote(b);
            }
            self.scanned += 1;
        }
        if !last {
            return self.wait_for_more();
        }
        self.go_on(self.buf.len());
        Ok(Some(start..self.pos).filter(|line| !line.is_empty()))
    }

    fn wait_for_more(&self) -> SqlResult<Option<Range<usize>>> {
        if self.buf.len() - self.pos > MAX_LINE {
            return Err(SqlError::new(
                SqlState::LIMIT_EXCEEDED,
                format!("COPY line is longer than {MAX_LINE} bytes"),
            ));
        }
        Ok(None)
    }

    /// Continues with the line at `next`.
    fn go_on(&mut self, next: usize) {
        (self.pos, self.scanned) = (next, next);
        (self.quoted, self.escaped) = (false, false);
    }

    /// Tracks quotes only as far as needed to find the line's end.
    fn scan_quote(&mut self, b: u8) {
        // A quote that escapes itself only toggles.
        let escapes = b == self.escape && self.escape != self.quote;
        if self.quoted && escapes {
            self.escaped = !self.escaped;
        }
        if b == self.quote && !self.escaped {
            self.quoted = !self.quoted;
        }
        self.escaped &= escapes;
    }

    /// Returns the byte at a position, which is `None` after the end of the data. The result is
    /// `None` if the byte has not arrived.
    fn peek(&self, at: usize, last: bool) -> Option<Option<u8>> {
        match self.buf.get(at) {
            Some(b) => Some(Some(*b)),
            None => last.then_some(None),
        }
    }

    /// Returns the length of the line end at this `\r` or `\n`; `None` if it depends on a byte that
    /// has not arrived.
    fn line_end(&mut self, at: usize, last: bool) -> SqlResult<Option<usize>> {
        let is_return = self.buf[at] == b'\r';
        let (eol, length) = match self.eol {
            Eol::Unknown | Eol::CrLf if is_return => match self.peek(at + 1, last) {
                None => return Ok(None),
                Some(Some(b'\n')) => (Eol::CrLf, 2),
                Some(_) => (Eol::Cr, 1),
            },
            _ if is_return => (Eol::Cr, 1),
            _ => (Eol::Lf, 1),
        };
        if self.eol != Eol::Unknown && self.eol != eol {
            return Err(self.stray(is_return));
        }
        self.eol = eol;
        Ok(Some(length))
    }

    /// Returns the error for a line end that is not like the first line's.
    fn stray(&self, is_return: bool) -> SqlError {
        let (name, escape) =
            if is_return { ("carriage return", "\\r") } else { ("newline", "\\n") };
        if self.csv {
            bad(format!("unquoted {name} found in data"))
                .hint(format!("Use quoted CSV field to represent {name}."))
        } else {
            bad(format!("literal {name} found in data"))
                .hint(format!("Use \"{escape}\" to represent {name}."))
        }
    }

    /// Returns true if the backslash at this position starts the end marker: `\.` and a line end.
    /// `None` if that depends on a byte that has not arrived. In CSV, `\.` with anything else after
    /// it is a value.
    fn is_end_marker(&self, at: usize, last: bool) -> SqlResult<Option<bool>> {
        match self.peek(at + 1, last) {
            None => return Ok(None),
            Some(Some(b'.')) => {}
            Some(_) => return Ok(Some(false)),
        }
        let refused = |problem| bad(format!("end-of-copy marker {problem}"));
        let unless_csv = |e| if self.csv { Ok(Some(false)) } else { Err(e) };
        let differs = || refused("does not match previous newline style");
        let corrupt = || refused("corrupt");
        let mut after = at + 2;
        if self.eol == Eol::CrLf {
            match self.peek(after, last) {
                None => return Ok(None),
                Some(Some(b'\r')) => after += 1,
                Some(Some(b'\n')) => return unless_csv(differs()),
                Some(_) => return unless_csv(corrupt()),
            }
        }
        let Some(end) = self.peek(after, last) else { return Ok(None) };
        match (end, self.eol) {
            (Some(b'\n'), Eol::Cr) | (Some(b'\r'), Eol::Lf | Eol::CrLf) => Err(differs()),
            (Some(b'\n' | b'\r'), _) => Ok(Some(true)),
            _ => unless_csv(corrupt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines, or the error's message.
    fn split(csv: bool, data: &str, cut: usize) -> Result<Vec<String>, String> {
        let (quote, escape) = (b'"', b'"');
        let format =
            CopyFormat { csv, delimiter: b',', null: String::new(), header: false, quote, escape };
        let (mut lines, mut out) = (Lines::new(&format), Vec::new());
        let mut drain = |lines: &mut Lines, last| -> Result<(), String> {
            while let Some(line) = lines.next(last).map_err(|e| e.message().to_owned())? {
                out.push(String::from_utf8(lines.bytes(line).to_vec()).unwrap());
            }
            Ok(())
        };
        for piece in data.as_bytes().chunks(cut) {
            lines.feed(piece);
            drain(&mut lines, false)?;
        }
        drain(&mut lines, true)?;
        Ok(out)
    }

    /// Invariant 1: the same result however the data is cut.
    #[track_caller]
    fn expect(csv: bool, data: &str, wanted: Result<&[&str], &str>) {
        let wanted = wanted.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect());
        let wanted: Result<Vec<String>, String> = wanted.map_err(str::to_owned);
        for cut in 1..=data.len() {
            assert_eq!(split(csv, data, cut), wanted, "{data:?}, csv: {csv}, cut: {cut}");
        }
    }

    #[test]
    fn invariant_4_lines_end_like_the_first_one() {
        for csv in [false, true] {
            expect(csv, "a\rb\rc\r", Ok(&["a", "b", "c"]));
            expect(csv, "a\rb\rc", Ok(&["a", "b", "c"]));
            expect(csv, "a\r\nb\r\nc", Ok(&["a", "b", "c"]));
            expect(csv, "a\r\r\rb", Ok(&["a", "", "", "b"]));
            expect(csv, "\n\na\n", Ok(&["", "", "a"]));
            let word = if csv { "unquoted" } else { "literal" };
            let stray = format!("{word} carriage return found in data");
            for data in ["x\ny\rz\n", "x\ny\r\n", "x\r\ny\rz\r\n", "x\r\ny\r", "x\r\ny\r\r\n"] {
                expect(csv, data, Err(&stray));
            }
            let stray = format!("{word} newline found in data");
            for data in ["x\r\ny\n", "x\ry\n", "x\ry\r\n"] {
                expect(csv, data, Err(&stray));
            }
        }
    }

    #[test]
    fn line_ends_in_values_are_kept() {
        expect(false, "x\\\r\ny\\\n\n", Ok(&["x\\\r", "y\\\n"]));
        expect(false, "x\\\n\ry\\\r\r", Ok(&["x\\\n", "y\\\r"]));
        expect(false, "x\\\\\ny\\", Ok(&["x\\\\", "y\\"]));
        expect(true, "\"x\r\"\n\"y\r\n\"\n", Ok(&["\"x\r\"", "\"y\r\n\""]));
        expect(true, "\"x\n\"\r\"y\"\"\r\n\"\r", Ok(&["\"x\n\"", "\"y\"\"\r\n\""]));
        expect(true, "x\\\n\"y\\\"\n", Ok(&["x\\", "\"y\\\""]));
    }

    #[test]
    fn end_marker_ends_like_the_first_line() {
        for csv in [false, true] {
            expect(csv, "a\n\\.\nb\n", Ok(&["a"]));
            expect(csv, "a\r\n\\.\r\nb\n", Ok(&["a"]));
            expect(csv, "a\r\\.\rb\n", Ok(&["a"]));
            expect(csv, "\\.\rb\n", Ok(&[]));
            expect(csv, "\\.\r\nb\n", Ok(&[]));
            let differs = "end-of-copy marker does not match previous newline style";
            expect(csv, "a\n\\.\rb", Err(differs));
            expect(csv, "a\r\\.\nb", Err(differs));
            expect(csv, "a\r\n\\.\r\rb", Err(differs));
        }
        let corrupt = "end-of-copy marker corrupt";
        for data in ["a\n\\.b\n", "a\n\\.", "a\r\n\\.b", "a\r\n\\.\rb", "\\.\\.\n"] {
            expect(false, data, Err(corrupt));
        }
        expect(false, "a\nb\\.\nc\n", Ok(&["a", "b"]));
        expect(false, "a\\\\.b\n", Ok(&["a\\\\.b"]));
        expect(true, "a\n\\.b\nb\\.\n\\.", Ok(&["a", "\\.b", "b\\.", "\\."]));
        expect(true, "a\n\"\\.\"\n", Ok(&["a", "\"\\.\""]));
    }
}
