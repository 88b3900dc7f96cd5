//! Traces of page accesses, what replacement policies are judged by: readers of the literature's
//! traces, generators for where those are not, the optimum, and the figures that are known.
//!
//! The literature's traces are data that lies outside the repository: [`find`] says where it looks.
//! A test that wants them must say when it ran on generated ones instead.

#![forbid(unsafe_code)]

mod figures;
mod file;
pub mod generate;
mod opt;
mod read;
mod rng;

pub use figures::{FIGURES, Figure, Known};
pub use file::{DIRECTORY_VARIABLE, directory, find, load};
pub use opt::opt_misses;
pub use read::{TraceError, read};
pub use rng::Rng;

use hashbrown::HashMap;

/// A sequence of page accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What tables and plots call it.
    pub name: String,
    /// The pages in order of access, renumbered `0 .. distinct` in order of first access.
    pub pages: Vec<u32>,
    /// How many pages there are.
    pub distinct: u32,
}

impl Trace {
    /// The trace of accesses to pages of any numbers. At most 2^32 accesses: the caller bounds
    /// them.
    pub fn new(name: &str, keys: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers = HashMap::new();
        let number = |key| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        };
        let pages = keys.into_iter().map(number).collect();
        Self { name: name.to_owned(), pages, distinct: numbers.len() as u32 }
    }

    /// The hit ratio in percent of a run over it that missed so often.
    pub fn hit_percent(&self, misses: u64) -> f64 {
        if self.pages.is_empty() {
            return 0.0;
        }
        100.0 - misses as f64 / self.pages.len() as f64 * 100.0
    }
}
