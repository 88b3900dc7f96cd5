//! How a thread waits for a page's latch. Its holders copy or change a page, and so let go soon if they have a core.

/// Attempts at a busy latch before the thread offers its core to another.
const SPIN_LIMIT: u32 = 64;

/// Between attempts at a busy latch.
pub(crate) fn pause(spins: &mut u32) {
    if *spins < SPIN_LIMIT {
        *spins += 1;
        clearway_sync::hint::spin_loop();
    } else {
        clearway_sync::thread::yield_now();
    }
}
