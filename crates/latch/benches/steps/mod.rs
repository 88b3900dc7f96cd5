//! Counts instructions with the processor's trap flag, which raises a signal after each.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trap {
    use std::sync::atomic::{AtomicU64, Ordering};

    static STEPS: AtomicU64 = AtomicU64::new(0);

    const SIGTRAP: i32 = 5;

    unsafe extern "C" {
        fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    }

    extern "C" fn step(_: i32) {
        STEPS.fetch_add(1, Ordering::Relaxed); // Relaxed, here and below: one thread.
    }

    #[inline(never)]
    fn raw(f: &dyn Fn()) -> u64 {
        let f = std::hint::black_box(f);
        STEPS.store(0, Ordering::Relaxed);
        // SAFETY: sets the trap flag, which the handler of SIGTRAP handles, and changes nothing
        // else; the stack is restored.
        unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        f();
        // SAFETY: clears it again.
        unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
        STEPS.load(Ordering::Relaxed)
    }

    /// Returns the number of instructions of `f`, without its call and return. `None` if the system
    /// delivers no traps.
    pub fn of(f: &dyn Fn()) -> Option<u64> {
        // SAFETY: the handler accesses only an atomic.
        unsafe { signal(SIGTRAP, step) };
        // Run once first, for one-time work: the slot of a class, the block of a thread.
        f();
        let empty = raw(&|| {});
        (empty > 0).then(|| raw(f) - empty)
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod trap {
    /// Returns `None`: this processor has no trap flag that a program can set for itself.
    pub fn of(_: &dyn Fn()) -> Option<u64> {
        None
    }
}

pub use trap::of;
