//! System views: read-only relations in schema `clearway` that describe the server.
//!
//! The server produces their rows when a statement runs. They are never distributed, and reading
//! them takes no transaction locks.

use clearway_types::SqlType;

/// The schema that contains only the server's own relations and functions.
pub const SCHEMA: &str = "clearway";

/// A system view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemView {
    /// What the server has done since it started, in one row.
    Activity,
    /// Transactions undone because one ahead of them was, one row for each partition and size of
    /// such a cascade.
    Cascades,
    /// Requests and waits of latches and locks, by caller, since the counters were last reset.
    Contention,
    /// Rows that several transactions hold or want at once, and how they are locked.
    HotRows,
    /// The processor measurements at startup, one row for each latch implementation.
    LatchCalibration,
    /// Histograms of the latency of statements and commits, one row for each bucket that is not
    /// empty.
    Latency,
    /// One row for each wait in progress: who waits for which lock, and who holds it.
    Locks,
    /// The partitions: their schemes, queues, counts and times.
    Partitions,
    /// Plans that read single rows in transaction blocks: which lock they take, and the counts from
    /// which it is learned.
    Plans,
    /// The connected sessions, their activity and what they wait for.
    Sessions,
    /// The open snapshots: the session, their age, and how much is retained for them.
    Snapshots,
}

/// A view's column.
pub type ViewColumn = (&'static str, SqlType);

impl SystemView {
    /// All views, ordered by name.
    pub const ALL: [Self; 11] = [
        Self::Activity,
        Self::Cascades,
        Self::Contention,
        Self::HotRows,
        Self::LatchCalibration,
        Self::Latency,
        Self::Locks,
        Self::Partitions,
        Self::Plans,
        Self::Sessions,
        Self::Snapshots,
    ];

    /// Returns the name, including the schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Activity => "clearway.activity",
            Self::Cascades => "clearway.cascades",
            Self::Contention => "clearway.contention",
            Self::HotRows => "clearway.hot_rows",
            Self::LatchCalibration => "clearway.latch_calibration",
            Self::Latency => "clearway.latency",
            Self::Locks => "clearway.locks",
            Self::Partitions => "clearway.partitions",
            Self::Plans => "clearway.plans",
            Self::Sessions => "clearway.sessions",
            Self::Snapshots => "clearway.snapshots",
        }
    }

    /// Returns the view with this name, including the schema.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.name() == name)
    }

    /// Returns the name without the schema.
    pub fn short_name(self) -> &'static str {
        &self.name()[SCHEMA.len() + 1..]
    }

    /// Returns the names and types of the columns, in the order of the rows' values.
    pub fn columns(self) -> &'static [ViewColumn] {
        use SqlType::{Bool, Float8, Int4, Int8, Text, Timestamptz};
        match self {
            Self::Activity => &[
                ("uptime_s", Float8),
                ("sessions", Int8),
                ("statements", Int8),
                ("committed", Int8),
                ("aborted", Int8),
                ("errors", Int8),
                ("received_bytes", Int8),
                ("sent_bytes", Int8),
                ("commits_waiting", Int8),
                ("pool_frames", Int8),
                ("pool_free", Int8),
                ("pool_dirty", Int8),
                ("page_reads", Int8),
                ("page_writes", Int8),
                ("page_evictions", Int8),
                ("frame_waits", Int8),
                ("second_level_pages", Int8),
                ("second_level_hits", Int8),
                ("second_level_misses", Int8),
                ("second_level_writes", Int8),
                ("second_level_dropped", Int8),
                ("second_level_skipped", Int8),
                ("log_bytes", Int8),
                ("log_syncs", Int8),
                ("checkpoints", Int8),
                ("replays", Int8),
                ("lock_waiters", Int8),
                ("deadlocks", Int8),
                ("data_file_bytes", Int8),
                ("log_file_bytes", Int8),
                ("version", Text),
            ],
            Self::Cascades => &[("partition_number", Int4), ("undone", Int8), ("count", Int8)],
            Self::Contention => &[
                ("name", Text),
                ("caller", Text),
                ("requests", Int8),
                ("contended", Int8),
                ("per_million", Float8),
                ("mean_wait_us", Float8),
                ("p99_wait_us", Float8),
                ("total_wait_us", Float8),
            ],
            Self::HotRows => &[
                ("table_name", Text),
                ("index_name", Text),
                ("key", Text),
                ("partition_number", Int4),
                ("locked", Text),
                ("holders", Int8),
                ("waiters", Int8),
                ("behind", Int8),
                ("learned", Bool),
            ],
            Self::LatchCalibration => &[
                ("name", Text),
                ("alone_ns", Float8),
                ("pair_per_us", Float8),
                ("chosen", Bool),
                ("spin_limit", Int8),
                ("pause_ns", Float8),
                ("yield_ns", Float8),
            ],
            Self::Latency => {
                &[("name", Text), ("lower_us", Float8), ("upper_us", Float8), ("count", Int8)]
            }
            Self::Locks => &[
                ("waiter", Int4),
                ("blocked_by", Int4),
                ("also_blocked_by", Text),
                ("holder", Int4),
                ("table_name", Text),
                ("index_name", Text),
                ("key", Text),
                ("mode", Text),
                ("since", Timestamptz),
                ("waited_s", Float8),
                ("partition_number", Int4),
                ("statement", Text),
                ("blocker_statement", Text),
            ],
            Self::Partitions => &[
                ("partition_number", Int4),
                ("scheme", Text),
                ("active", Int8),
                ("queue", Int8),
                ("speculated", Int8),
                ("validated", Int8),
                ("discarded", Int8),
                ("retried", Int8),
                ("blocked", Int8),
                ("stall_us", Float8),
                ("cpu_us", Float8),
            ],
            Self::Plans => &[
                ("plan", Text),
                ("read_lock", Text),
                ("recent_share", Float8),
                ("reads", Int8),
                ("changed", Int8),
                ("read_exclusively", Int8),
                ("switches", Int8),
            ],
            Self::Sessions => &[
                ("pid", Int4),
                ("client", Text),
                ("user_name", Text),
                ("application", Text),
                ("state", Text),
                ("state_since", Timestamptz),
                ("statement", Text),
                ("statement_since", Timestamptz),
                ("transaction", Int8),
                ("transaction_since", Timestamptz),
                ("waits_for", Text),
                ("blocked_by", Int4),
            ],
            Self::Snapshots => &[
                ("pid", Int4),
                ("snapshot", Int8),
                ("since", Timestamptz),
                ("log_bytes", Int8),
                ("kept_bytes", Int8),
                ("file_bytes", Int8),
                ("statement", Text),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_found_only_by_qualified_name() {
        for view in SystemView::ALL {
            assert_eq!(SystemView::by_name(view.name()), Some(view));
            assert_eq!(SystemView::by_name(view.short_name()), None);
            assert_eq!(format!("{SCHEMA}.{}", view.short_name()), view.name());
        }
    }
}
