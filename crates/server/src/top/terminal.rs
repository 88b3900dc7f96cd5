//! The terminal as a full screen: the alternate screen buffer, redrawn as a whole, and unbuffered
//! keys.
//!
//! Invariant: dropping a [`Terminal`] restores the screen, the cursor and the terminal's settings,
//! also during a panic.
//!
//! Source: ECMA-48 and xterm's "Control Sequences", for the alternate screen.

use super::view::{Row, Style};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The size of a terminal that does not report its own.
const DEFAULT_SIZE: (u16, u16) = (24, 80);
/// Ctrl-C, if the terminal does not turn it into a signal.
const CTRL_C: u8 = 3;

/// A pressed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// `q` or Ctrl-C.
    Quit,
    /// `h` or `?`.
    Help,
    /// Any other key.
    Other,
}

/// The terminal as a full screen.
pub(super) struct Terminal {
    /// The settings to restore; `None` if standard input is not a terminal.
    before: Option<Termios>,
    colours: bool,
}

impl Terminal {
    /// Takes over the terminal. Without `colours`, only bold and inverse text is used.
    pub(super) fn enter(colours: bool) -> io::Result<Self> {
        let mut terminal = Self { before: None, colours };
        if io::stdin().is_terminal() {
            let before = termios::tcgetattr(io::stdin())?;
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read returns at once with the available keys.
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            termios::tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
            terminal.before = Some(before);
        }
        say(ENTER)?;
        Ok(terminal)
    }

    /// Returns the screen's size in rows and columns.
    pub(super) fn size(&self) -> (usize, usize) {
        let (rows, columns) = size();
        (rows.into(), columns.into())
    }

    /// Replaces the screen's contents. Rows are cut at its edge.
    pub(super) fn draw(&mut self, shown: &[Row]) -> io::Result<()> {
        let (rows, columns) = size();
        let mut page = String::from("\x1b[H");
        for (at, row) in shown.iter().take(rows.into()).enumerate() {
            if at > 0 {
                page.push_str("\r\n");
            }
            page.push_str(&styled(row, columns.into(), self.colours));
            // In the last column the sequence would erase the row's last character.
            if row.text.chars().count() < columns.into() {
                page.push_str("\x1b[K");
            }
        }
        page.push_str("\x1b[J");
        say(&page)
    }

    /// Waits for this time; returns the most important of the keys pressed meanwhile.
    pub(super) fn key(&mut self, wait: Duration) -> io::Result<Option<Key>> {
        std::thread::park_timeout(wait);
        if self.before.is_none() {
            return Ok(None);
        }
        let mut keys = [0; 64];
        let n = match io::stdin().lock().read(&mut keys) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
            n => n?,
        };
        Ok(most_important(&keys[..n]))
    }
}

fn most_important(keys: &[u8]) -> Option<Key> {
    let has = |wanted: &[u8]| keys.iter().any(|key| wanted.contains(key));
    match keys {
        [] => None,
        _ if has(&[b'q', b'Q', CTRL_C]) => Some(Key::Quit),
        _ if has(b"hH?") => Some(Key::Help),
        _ => Some(Key::Other),
    }
}

/// Returns a row with its escape sequences, cut to a width.
fn styled(row: &Row, columns: usize, colours: bool) -> String {
    let text: String = row.text.chars().take(columns).collect();
    match row.style {
        Style::Plain => text,
        Style::Title => format!("\x1b[1m{text}\x1b[0m"),
        Style::Head => format!("\x1b[7m{text}\x1b[0m"),
        _ if !colours => text,
        Style::Label(width) => {
            let split = text.char_indices().nth(width).map_or(text.len(), |(at, _)| at);
            let (label, rest) = text.split_at(split);
            format!("\x1b[36m{label}\x1b[0m{rest}")
        }
        Style::Blocker => format!("\x1b[31m{text}\x1b[0m"),
        Style::Waiter => format!("\x1b[33m{text}\x1b[0m"),
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that the terminal is gone, so there is nothing to restore.
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

/// Returns the screen's rows and columns.
fn size() -> (u16, u16) {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => DEFAULT_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_optional_and_rows_are_cut() {
        let row = |style| Row { text: "label text".to_owned(), style };
        assert_eq!(styled(&row(Style::Label(5)), 8, true), "\x1b[36mlabel\x1b[0m te");
        assert_eq!(styled(&row(Style::Label(5)), 8, false), "label te");
        assert_eq!(styled(&row(Style::Label(5)), 3, true), "\x1b[36mlab\x1b[0m");
        assert_eq!(styled(&row(Style::Waiter), 80, false), "label text");
        assert_eq!(styled(&row(Style::Head), 5, false), "\x1b[7mlabel\x1b[0m");
    }

    #[test]
    fn quit_goes_before_help_and_help_before_others() {
        for (keys, key) in [
            (&b""[..], None),
            (b"x", Some(Key::Other)),
            (b"x?", Some(Key::Help)),
            (b"hq", Some(Key::Quit)),
            (b"\x03", Some(Key::Quit)),
        ] {
            assert_eq!(most_important(keys), key);
        }
    }
}
