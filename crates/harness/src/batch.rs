//! Prepared statements of the extended protocol, many in one message to the server.
//!
//! A [`Batch`] ends with one Sync: without BEGIN it is one implicit transaction, and the first error skips the
//! rest. Text format only.

use crate::client::{Answer, Client, QueryError, lost, sql_error};

/// Executions of prepared statements, as the bytes that ask for them.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    count: usize,
}

impl Batch {
    /// Starts again without executions.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Number of executions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no executions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an execution of a prepared statement with these parameters.
    pub fn execute(&mut self, statement: &str, parameters: &[&str]) {
        let start = self.start(b'B');
        self.bytes.push(0);
        self.text(statement);
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            self.bytes.extend_from_slice(&(parameter.len() as u32).to_be_bytes());
            self.bytes.extend_from_slice(parameter.as_bytes());
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

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    fn sync(&mut self) {
        let start = self.start(b'S');
        self.end(start);
    }
}

impl Client {
    /// Prepares a statement under a name; the server infers the parameters' types.
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<(), QueryError> {
        let mut message = Batch::default();
        let start = message.start(b'P');
        message.text(name);
        message.text(sql);
        message.bytes.extend_from_slice(&[0, 0]);
        message.end(start);
        message.sync();
        self.write(&message.bytes)?;
        self.receive().map(|_| ())
    }

    /// Sends all executions with a Sync, and waits for all answers: one for each execution, in order. After an error
    /// `answers` has those of the executions before it.
    pub fn run(&mut self, batch: &mut Batch, answers: &mut Vec<Answer>) -> Result<(), QueryError> {
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
    fn an_execution_is_a_bind_and_an_execute() {
        let mut batch = Batch::default();
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
