//! Panics of the engine's threads. A panic that a thread catches is a finding, too.

use std::cell::RefCell;

thread_local! {
    /// The first panic of the execution in this OS thread.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records panics instead of printing them.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        FIRST.with_borrow_mut(|first| {
            first.get_or_insert(text);
        });
    }));
}

/// Returns the first panic since the last call.
pub fn take() -> Option<String> {
    FIRST.with_borrow_mut(Option::take)
}
