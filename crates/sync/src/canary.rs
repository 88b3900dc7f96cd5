//! Bugs that the simulation plants to see that it would find them. None in a build without `--cfg shuttle`: [`on`] is then `false`, for
//! the compiler too.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The log says that it is durable without having synced its file.
    SkippedSync,
    /// Pages are written before the log is durable up to their LSNs.
    PageBeforeLog,
    /// The undo of a change does not say in the log that the change is undone: the next recovery undoes it again.
    UndoneTwice,
    /// A page is taken as it is though its checksum is another's.
    StaleChecksum,
    /// The second level keeps its copy of a page of which a newer version is written.
    StaleCopy,
}

/// All of them.
pub const BUGS: [Bug; 5] = [Bug::SkippedSync, Bug::PageBeforeLog, Bug::UndoneTwice, Bug::StaleChecksum, Bug::StaleCopy];

#[cfg(shuttle)]
static PLANTED: std::sync::Mutex<Option<Bug>> = std::sync::Mutex::new(None);

/// Plants a bug for the whole process, or none.
#[cfg(shuttle)]
pub fn plant(bug: Option<Bug>) {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = bug;
}

/// Whether this bug is planted.
#[cfg(shuttle)]
pub fn on(bug: Bug) -> bool {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(bug)
}

/// Whether this bug is planted: no.
#[cfg(not(shuttle))]
#[inline(always)]
pub const fn on(_bug: Bug) -> bool {
    false
}
