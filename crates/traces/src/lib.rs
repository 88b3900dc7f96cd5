//! Traces of page accesses to compare replacement policies: readers of published traces,
//! generators, the optimal policy, and known results.
//!
//! The published traces are not in the repository: [`directory`] documents their location. A test
//! that needs them must report when it ran on generated ones instead.

#![forbid(unsafe_code)]

mod figures;
mod file;
pub mod generate;
mod opt;
mod read;

pub use figures::{FIGURES, Figure, Known};
pub use file::{DIRECTORY_VARIABLE, directory, find, load};
pub use opt::opt_misses;
pub use read::{TraceError, read};

use hashbrown::HashMap;

/// A sequence of page accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Name in tables and charts.
    pub name: String,
    /// The accessed pages in order, numbered `0 .. distinct` in order of first access.
    pub pages: Vec<u32>,
    /// Number of distinct pages.
    pub distinct: u32,
}

impl Trace {
    /// Creates a trace of accesses to pages with arbitrary numbers. At most 2^32 accesses; the
    /// caller bounds them.
    pub fn new(name: &str, keys: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers = HashMap::new();
        let number = |key| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        };
        let pages = keys.into_iter().map(number).collect();
        Self { name: name.to_owned(), pages, distinct: numbers.len() as u32 }
    }

    /// Returns the hit ratio in percent of a run with this many misses.
    pub fn hit_percent(&self, misses: u64) -> f64 {
        if self.pages.is_empty() {
            return 0.0;
        }
        100.0 - misses as f64 / self.pages.len() as f64 * 100.0
    }
}
