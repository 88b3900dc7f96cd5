//! The terminal as a screen: a page of its own, drawn anew each time, and keys as they are pressed.
//!
//! Invariant: whoever has entered leaves: dropping a [`Terminal`] gives back the page, the cursor
//! and the settings that were there before, also in a panic.
//!
//! Source: ECMA-48 and xterm's "Control Sequences", for the alternate screen.

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The size of a terminal that does not say its own.
const USUAL: (u16, u16) = (24, 80);
/// Ctrl-C, where the terminal makes no signal of it.
const CTRL_C: u8 = 3;

/// The terminal, as a screen.
pub(super) struct Terminal {
    /// The settings to go back to; none if there are no keys to be read.
    before: Option<Termios>,
}

impl Terminal {
    /// Takes the terminal over.
    pub(super) fn enter() -> io::Result<Self> {
        let mut terminal = Self { before: None };
        if io::stdin().is_terminal() {
            let before = termios::tcgetattr(io::stdin())?;
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read returns at once, with what there is.
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            termios::tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
            terminal.before = Some(before);
        }
        say(ENTER)?;
        Ok(terminal)
    }

    /// Lines of text that there is room for.
    pub(super) fn rows(&self) -> usize {
        size().0.into()
    }

    /// Shows these lines, cut to the screen, and nothing else; the one with the number `head`
    /// stands out.
    pub(super) fn draw(&mut self, lines: &[String], head: usize) -> io::Result<()> {
        let (rows, columns) = size();
        let mut page = String::from("\x1b[H");
        for (at, line) in lines.iter().take(rows.into()).enumerate() {
            if at > 0 {
                page.push_str("\r\n");
            }
            let cut = line.chars().take(columns.into());
            if at == head {
                page.push_str("\x1b[7m");
                page.extend(cut);
                page.push_str("\x1b[0m");
            } else {
                page.extend(cut);
            }
            page.push_str("\x1b[K");
        }
        page.push_str("\x1b[J");
        say(&page)
    }

    /// Waits so long; whether the user wants to leave: `q`, or Ctrl-C as a key.
    pub(super) fn quit(&mut self, wait: Duration) -> io::Result<bool> {
        std::thread::park_timeout(wait);
        if self.before.is_none() {
            return Ok(false);
        }
        let mut keys = [0; 64];
        let n = match io::stdin().lock().read(&mut keys) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
            n => n?,
        };
        Ok(keys[..n].iter().any(|key| matches!(*key, b'q' | b'Q' | CTRL_C)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If it is gone there is nothing to be given back.
        let _ = say(LEAVE);
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Rows and columns.
fn size() -> (u16, u16) {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => USUAL,
    }
}
