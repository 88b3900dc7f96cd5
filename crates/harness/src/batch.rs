//! Batches of prepared statements of the extended protocol, sent in one message.
//!
//! A [`MessageBatch`] ends with one Sync. Without BEGIN it is one implicit transaction, and the
//! first error skips the rest. Text format only.

use crate::client::{Answer, PgClient, QueryError, lost, sql_error};
use std::fmt::Display;
use std::io::Write;

/// Executions of prepared statements, encoded as protocol messages.
#[derive(Debug, Default)]
pub struct MessageBatch {
    bytes: Vec<u8>,
    count: usize,
}

impl MessageBatch {
    /// Removes all messages.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Returns the number of executions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no executions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Prepares a named statement; the server infers the parameter types.
    pub fn prepare(&mut self, name: impl Display, sql: &str) {
        let start = self.start(b'P');
        self.text(name);
        self.text(sql);
        self.bytes.extend_from_slice(&[0, 0]);
        self.end(start);
    }

    /// Adds an execution of a prepared statement with these parameters.
    pub fn execute(&mut self, statement: impl Display, parameters: &[impl Display]) {
        let start = self.start(b'B');
        self.bytes.push(0);
        self.text(statement);
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            let at = self.bytes.len();
            self.bytes.extend_from_slice(&[0; 4]);
            self.show(parameter);
            let length = (self.bytes.len() - at - 4) as u32;
            self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        self.bytes.extend_from_slice(&[0, 0]);
        self.end(start);
        let start = self.start(b'E');
        self.bytes.extend_from_slice(&[0; 5]);
        self.end(start);
        self.count += 1;
    }

    fn start(&mut self, kind: u8) -> usize {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.len() - 4
    }

    fn end(&mut self, start: usize) {
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn show(&mut self, value: impl Display) {
        // Writing to a `Vec` cannot fail.
        let _ = write!(self.bytes, "{value}");
    }

    fn text(&mut self, text: impl Display) {
        self.show(text);
        self.bytes.push(0);
    }

    /// Appends a Sync: the server answers everything before it.
    pub fn sync(&mut self) {
        let start = self.start(b'S');
        self.end(start);
    }

    /// Returns the encoded messages.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl PgClient {
    /// Prepares a named statement; the server infers the parameter types.
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<(), QueryError> {
        let mut message = MessageBatch::default();
        message.prepare(name, sql);
        message.sync();
        self.write(&message.bytes)?;
        self.receive().map(|_| ())
    }

    /// Sends all executions and a Sync, and waits for one answer per execution, in order. After an
    /// error, `answers` holds the answers before it.
    pub fn run(
        &mut self,
        batch: &mut MessageBatch,
        answers: &mut Vec<Answer>,
    ) -> Result<(), QueryError> {
        answers.clear();
        batch.sync();
        self.write(&batch.bytes)?;
        let (mut answer, mut failure) = (Answer::default(), None);
        loop {
            let (kind, body) = self.read_message()?;
            match kind {
                b'Z' => {
                    self.set_status(&body)?;
                    return failure.map_or(Ok(()), Err);
                }
                b'E' => failure = failure.or(Some(sql_error(&body))),
                b'C' => {
                    self.take(kind, &body, &mut answer)?;
                    answers.push(std::mem::take(&mut answer));
                }
                // The end of a statement without a result.
                b'I' => answers.push(std::mem::take(&mut answer)),
                b'G' | b'H' | b'W' => return Err(lost("COPY in a batch")),
                _ => self.take(kind, &body, &mut answer)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_bind_and_execute_messages() {
        let mut batch = MessageBatch::default();
        assert!(batch.is_empty());
        batch.execute("s", &["42"]);
        let bind = b"B\0\0\0\x13\0s\0\0\0\0\x01\0\0\0\x0242\0\0";
        let execute = b"E\0\0\0\x09\0\0\0\0\0";
        assert_eq!(batch.bytes, [&bind[..], &execute[..]].concat());
        assert_eq!(batch.len(), 1);
        batch.clear();
        assert!(batch.is_empty() && batch.bytes.is_empty());
    }
}
