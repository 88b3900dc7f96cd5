//! Messages to the client, appended to its send buffer.

use clearway_types::SqlError;

/// The transaction status in ReadyForQuery: `I` idle, `T` in a transaction, `E` failed.
pub type Status = u8;

/// Starts a message and returns its offset; [`end`] fills in its length.
pub fn begin(out: &mut Vec<u8>, tag: u8) -> usize {
    let at = out.len();
    out.extend_from_slice(&[tag, 0, 0, 0, 0]);
    at
}

/// Ends the message that starts at `at`.
pub fn end(out: &mut [u8], at: usize) {
    let len = (out.len() - at - 1) as u32;
    out[at + 1..at + 5].copy_from_slice(&len.to_be_bytes());
}

fn message(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = begin(out, tag);
    fill(out);
    end(out, at);
}

/// Appends a string and its terminating zero byte; a zero byte inside ends it early.
fn cstr(out: &mut Vec<u8>, s: &str) {
    out.extend(s.bytes().take_while(|&b| b != 0));
    out.push(0);
}

/// Appends AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"R\0\0\0\x08\0\0\0\0");
}

/// Appends BackendKeyData.
pub fn backend_key_data(out: &mut Vec<u8>, pid: i32, secret: i32) {
    message(out, b'K', |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(&secret.to_be_bytes());
    });
}

/// Appends ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        cstr(out, name);
        cstr(out, value);
    });
}

/// Appends NegotiateProtocolVersion: the newest supported version is 3.0, and these options are
/// unknown.
pub fn negotiate_protocol(out: &mut Vec<u8>, unknown: &[&str]) {
    message(out, b'v', |out| {
        out.extend_from_slice(&(3u32 << 16).to_be_bytes());
        out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
        for name in unknown {
            cstr(out, name);
        }
    });
}

/// Appends ReadyForQuery.
pub fn ready_for_query(out: &mut Vec<u8>, status: Status) {
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
}

/// Appends ParseComplete.
pub fn parse_complete(out: &mut Vec<u8>) {
    out.extend_from_slice(b"1\0\0\0\x04");
}

/// Appends BindComplete.
pub fn bind_complete(out: &mut Vec<u8>) {
    out.extend_from_slice(b"2\0\0\0\x04");
}

/// Appends CloseComplete.
pub fn close_complete(out: &mut Vec<u8>) {
    out.extend_from_slice(b"3\0\0\0\x04");
}

/// Appends NoData.
pub fn no_data(out: &mut Vec<u8>) {
    out.extend_from_slice(b"n\0\0\0\x04");
}

/// Appends PortalSuspended.
pub fn portal_suspended(out: &mut Vec<u8>) {
    out.extend_from_slice(b"s\0\0\0\x04");
}

/// Appends EmptyQueryResponse.
pub fn empty_query(out: &mut Vec<u8>) {
    out.extend_from_slice(b"I\0\0\0\x04");
}

/// Appends CommandComplete with this tag.
pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |out| cstr(out, tag));
}

/// Appends CommandComplete with a tag that ends in a count.
pub fn command_complete_count(out: &mut Vec<u8>, word: &str, count: u64) {
    message(out, b'C', |out| {
        out.extend_from_slice(word.as_bytes());
        out.push(b' ');
        crate::row::push_u64(out, count);
        out.push(0);
    });
}

/// Appends ParameterDescription.
pub fn parameter_description(out: &mut Vec<u8>, oids: impl ExactSizeIterator<Item = u32>) {
    message(out, b't', |out| {
        out.extend_from_slice(&(oids.len() as u16).to_be_bytes());
        oids.for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// Appends CopyInResponse or CopyOutResponse in text format.
pub fn copy_response(out: &mut Vec<u8>, incoming: bool, columns: usize) {
    message(out, if incoming { b'G' } else { b'H' }, |out| {
        out.push(0);
        out.extend_from_slice(&(columns as u16).to_be_bytes());
        out.resize(out.len() + 2 * columns, 0);
    });
}

/// Appends CopyDone.
pub fn copy_done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"c\0\0\0\x04");
}

/// The severity of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session ends.
    Fatal,
}

/// Appends ErrorResponse.
pub fn error(out: &mut Vec<u8>, severity: Severity, error: &SqlError) {
    let word = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    report(out, b'E', word, error);
}

/// Appends an error in the format of protocol versions 1 and 2.
pub fn old_error(out: &mut Vec<u8>, error: &SqlError) {
    out.push(b'E');
    cstr(out, &format!("FATAL:  {}\n", error.message()));
}

/// Appends NoticeResponse with severity `WARNING`, `NOTICE` or `INFO`.
pub fn notice(out: &mut Vec<u8>, severity: &str, notice: &SqlError) {
    report(out, b'N', severity, notice);
}

fn report(out: &mut Vec<u8>, tag: u8, severity: &str, error: &SqlError) {
    message(out, tag, |out| {
        let mut field = |code: u8, value: &str| {
            out.push(code);
            cstr(out, value);
        };
        field(b'S', severity);
        field(b'V', severity);
        field(b'C', error.state().as_str());
        field(b'M', error.message());
        if let Some(detail) = error.get_detail() {
            field(b'D', detail);
        }
        if let Some(hint) = error.get_hint() {
            field(b'H', hint);
        }
        if let Some(position) = error.position() {
            field(b'P', &position.to_string());
        }
        if let Some(context) = error.get_context() {
            field(b'W', context);
        }
        let object = error.object();
        if !object.table.is_empty() {
            // All user tables are in one schema.
            field(b's', "public");
            field(b't', &object.table);
        }
        for (code, name) in [(b'c', &object.column), (b'n', &object.constraint)] {
            if !name.is_empty() {
                field(code, name);
            }
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::SqlState;

    #[test]
    fn lengths_include_themselves_but_not_the_tag() {
        let mut out = Vec::new();
        command_complete(&mut out, "BEGIN");
        command_complete_count(&mut out, "SELECT", 120);
        assert_eq!(out, b"C\0\0\0\x0aBEGIN\0C\0\0\0\x0fSELECT 120\0");
        out.clear();
        error(&mut out, Severity::Error, &SqlError::new(SqlState::SYNTAX, "a\0b").at(3).hint("h"));
        assert_eq!(out, b"E\0\0\0\x23SERROR\0VERROR\0C42601\0Ma\0Hh\0P3\0\0");
    }

    #[test]
    fn errors_name_table_column_and_constraint() {
        let mut out = Vec::new();
        let e =
            SqlError::new(SqlState::UNIQUE_VIOLATION, "m").table("t").column("c").constraint("k");
        error(&mut out, Severity::Error, &e);
        assert!(out.ends_with(b"Mm\0spublic\0tt\0cc\0nk\0\0"), "{}", out.escape_ascii());
    }
}
