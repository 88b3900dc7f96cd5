//! The parent's lines of text, and the replies.

use std::error::Error;
use std::io::Write;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

pub type Res<T> = Result<T, Box<dyn Error>>;

/// The parent's lines.
pub struct Parent(Receiver<String>);

impl Parent {
    pub fn new() -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self(lines)
    }

    /// Reads the next line, which must begin with `word`, and returns the rest.
    pub fn receive(&self, word: &str) -> Res<String> {
        let line = self.0.recv().map_err(|_| "the parent closed standard input")?;
        rest_of(&line, word)
    }

    /// Waits for the next line. Calls `serve` until there is one, or until it returns false.
    /// Returns `None` at the end of input.
    pub fn next_line(&self, mut serve: impl FnMut() -> Res<bool>) -> Res<Option<String>> {
        loop {
            match self.0.try_recv() {
                Ok(line) => return Ok(Some(line)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) if serve()? => {}
                Err(TryRecvError::Empty) => return Ok(self.0.recv().ok()),
            }
        }
    }

    pub fn wait_for_end(&self) {
        while self.0.recv().is_ok() {}
    }
}

/// Returns what follows `word`, with which the line must begin.
pub fn rest_of(line: &str, word: &str) -> Res<String> {
    let rest = line.strip_prefix(word).ok_or_else(|| format!("expected `{word}`, got `{line}`"))?;
    Ok(rest.trim().to_owned())
}

pub fn print(line: &str) -> Res<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
