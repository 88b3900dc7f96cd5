//! A checker of transaction histories: finds isolation anomalies in what clients saw.
//!
//! A [`History`] contains transactions over three kinds of objects: lists that transactions append
//! unique elements to, registers that transactions write unique values to, and counters that
//! transactions add unique powers of two to. [`History::check`] infers the order of each object's
//! versions from the reads and derives the dependencies between transactions. It then adds the
//! order of sessions and of real time, and reports every kind of anomaly with its evidence.
//!
//! The crate has no connection to any database: it checks what the clients recorded. The module
//! [`jsonl`] reads and writes histories as files.
//!
//! Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations", VLDB 2020; Adya, Liskov and O'Neil, "Generalized Isolation Level Definitions",
//! ICDE 2000.
//!
//! ```
//! use clearway_history::{Anomaly, CheckerOptions, History, Op, TxnOutcome, Txn};
//!
//! let mut history = History::new();
//! let (x, y) = (history.key("x"), history.key("y"));
//! // Write skew: each transaction reads what the other one writes.
//! for (session, read, write) in [(0, x, y), (1, y, x)] {
//!     history.push(Txn {
//!         session,
//!         start: 10,
//!         end: Some(20),
//!         outcome: TxnOutcome::Committed,
//!         ops: vec![Op::Read { key: read, value: None }, Op::Write { key: write, value: 1 }],
//!     })?;
//! }
//! let report = history.check(&CheckerOptions::default());
//! assert_eq!(report.anomalies().collect::<Vec<_>>(), [Anomaly::G2]);
//! println!("{report}");
//! # Ok::<(), clearway_history::HistoryError>(())
//! ```

#![forbid(unsafe_code)]

mod check;
mod components;
mod counters;
mod cycles;
mod dependencies;
mod explain;
mod graph;
mod history;
mod internal;
pub mod jsonl;
mod lists;
mod realtime;
mod registers;
mod report;
mod txn;
mod versions;

pub use check::CheckerOptions;
pub use history::{History, HistoryError};
pub use report::{Anomaly, Counts, CycleStep, HistoryFinding, HistoryReport, Order};
pub use txn::{Key, Op, Txn, TxnIndex, TxnOutcome};

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
