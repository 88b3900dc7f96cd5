//! What the commands print.

use crate::exit::{ExitCode, ExitFailure};
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes a text and a line end to standard output. A reader that leaves early, such as `head`, is
/// no failure.
///
/// # Errors
/// The output cannot be written, for example because a disk is full.
pub(crate) fn print(text: impl Display) -> Result<(), ExitFailure> {
    match writeln!(io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(ExitFailure {
            hint: Some("Only the output is lost: the command has done the rest."),
            ..ExitFailure::new(ExitCode::Other, format!("output: {e}"))
        }),
        _ => Ok(()),
    }
}

/// Writes a text and a line end to standard error. Nobody could be told that this fails.
pub fn report(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
