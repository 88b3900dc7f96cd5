//! COPY TO: rows as lines of text or CSV, one CopyData message per row.

use crate::row::text;
use clearway_ir::Zone;
use clearway_ir::statement::CopyFormat;
use clearway_types::row::BadRow;
use clearway_types::{DatumRef, RowView, SqlType};

/// Appends a CopyData message with the row's line. `scratch` is a buffer for reuse.
///
/// # Errors
/// The row is corrupt; nothing is appended.
pub fn data_line(
    out: &mut Vec<u8>,
    row: RowView<'_>,
    types: &[SqlType],
    format: &CopyFormat,
    zone: &Zone,
    scratch: &mut Vec<u8>,
) -> Result<(), BadRow> {
    let at = crate::backend::begin(out, b'd');
    let mut values = row.iter();
    for (i, &ty) in types.iter().enumerate() {
        if i > 0 {
            out.push(format.delimiter);
        }
        let value = match values.next().unwrap_or(Ok(DatumRef::Null)) {
            Ok(value) => value,
            Err(bad) => {
                out.truncate(at);
                return Err(bad);
            }
        };
        if value.is_null() && ty != SqlType::Void {
            out.extend_from_slice(format.null.as_bytes());
            continue;
        }
        scratch.clear();
        text(scratch, ty, value, zone);
        if format.csv {
            csv_field(out, scratch, format, types.len() == 1);
        } else {
            text_field(out, scratch, format.delimiter);
        }
    }
    out.push(b'\n');
    crate::backend::end(out, at);
    Ok(())
}

/// Appends a CopyData message with the header line.
pub fn header_line(out: &mut Vec<u8>, names: &[String], format: &CopyFormat) {
    let at = crate::backend::begin(out, b'd');
    for (i, name) in names.iter().enumerate() {
        if i > 0 {
            out.push(format.delimiter);
        }
        if format.csv {
            csv_field(out, name.as_bytes(), format, names.len() == 1);
        } else {
            text_field(out, name.as_bytes(), format.delimiter);
        }
    }
    out.push(b'\n');
    crate::backend::end(out, at);
}

fn text_field(out: &mut Vec<u8>, value: &[u8], delimiter: u8) {
    for &b in value {
        let escape = match b {
            8 => b'b',
            9 => b't',
            10 => b'n',
            11 => b'v',
            12 => b'f',
            13 => b'r',
            b'\\' => b'\\',
            b if b == delimiter => b,
            b => {
                out.push(b);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escape]);
    }
}

fn csv_field(out: &mut Vec<u8>, value: &[u8], format: &CopyFormat, only_column: bool) {
    let special =
        |b: &u8| *b == format.delimiter || *b == format.quote || *b == b'\n' || *b == b'\r';
    // A lone `\.` would be read as the end of the data.
    let quote = value == format.null.as_bytes()
        || (only_column && value == b"\\.")
        || value.iter().any(special);
    if !quote {
        out.extend_from_slice(value);
        return;
    }
    out.push(format.quote);
    for &b in value {
        if b == format.quote || b == format.escape {
            out.push(format.escape);
        }
        out.push(b);
    }
    out.push(format.quote);
}
