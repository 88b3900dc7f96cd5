//! The message of a caught panic: the reason that a node fails with.
//!
//! A thread of the engine that panics leaves its change incomplete. So every thread catches its own
//! panics and makes the node fail: nothing more is written or acknowledged, and the process ends.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why something was not done: a thread panicked. Inside an [`std::io::Error`], it distinguishes a
/// panic from a failing disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(pub String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Panicked {}

/// Returns the message of a caught panic.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Runs `work`; an error has the message of its panic.
///
/// This is unwind safe only if the caller then fails the node, so that no thread relies on the
/// partial results of `work`.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(&*panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_panics_are_kept() {
        assert_eq!(caught(|| 1), Ok(1));
        assert_eq!(caught(|| panic!("a text")), Err::<(), _>("a text".to_owned()));
        assert_eq!(caught(|| panic!("number {}", 7)), Err::<(), _>("number 7".to_owned()));
        assert_eq!(
            caught(|| std::panic::panic_any(7)),
            Err::<(), _>("a panic without a message".to_owned())
        );
    }
}
