//! CPU time of the calling thread.

/// Returns the CPU time that the calling thread has used, in nanoseconds.
pub fn of_this_thread() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = of_this_thread();
        let mut sum = 0_u64;
        while of_this_thread() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(of_this_thread() > before);
    }
}
