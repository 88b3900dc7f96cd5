//! Panics of the engine's threads: those that a thread catches are findings too.

use std::cell::RefCell;

thread_local! {
    /// The first panic of the execution in this thread of the operating system.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics noted instead of printed.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        FIRST.with_borrow_mut(|first| {
            first.get_or_insert(text);
        });
    }));
}

/// The first panic since the last call.
pub fn take() -> Option<String> {
    FIRST.with_borrow_mut(Option::take)
}
