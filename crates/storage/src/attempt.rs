//! Attempts, which may miss pages.
//!
//! An attempt discovers the pages that it needs one after another. The list of missing pages that
//! it returns may omit pages that it found before. For example, a descent that misses a page of the
//! free list does not list the pages of its path. In a small pool other tasks may evict those pages
//! meanwhile. Two pages could then be missed in turn forever.
//!
//! Invariant: when a page is missed again, it is fetched together with everything missed since the
//! previous miss of that page. So an attempt eventually finds all its pages resident, if it misses
//! them in at most [`LISTS`] pieces and needs at most [`PAGES`] pages.

use std::collections::VecDeque;

use clearway_buffer::{MissingPage, Pin, Pool};

use crate::error::StorageError;
use crate::log_read::LogRead;

/// Number of misses remembered: enough for a tree descent and for the pages that a change of its
/// leaf needs.
const LISTS: usize = 16;

/// A list of missing pages is filled up to this many pages. The smallest pool has more.
const PAGES: usize = 12;

/// Why an attempt did not complete.
#[derive(Debug)]
pub enum Blocked {
    /// Nothing was changed. Fetch all of these pages, keep them pinned, and try again.
    MissingPage(Vec<MissingPage>),
    /// Like `MissingPage`, but a part of the log is missing: have it read, and try again.
    Log(LogRead),
    /// The attempt cannot complete. Nothing was changed.
    Failed(StorageError),
}

impl From<MissingPage> for Blocked {
    #[cold]
    fn from(want: MissingPage) -> Self {
        Self::MissingPage(vec![want])
    }
}
impl From<StorageError> for Blocked {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

/// The misses of a task since it last made progress.
#[derive(Debug, Default)]
pub struct Missed {
    lists: VecDeque<Vec<MissingPage>>,
    progress: usize,
}

impl Missed {
    /// Returns the pages to fetch before the next attempt. `wants` lists the pages that this
    /// attempt missed. `progress` must differ from the previous call's if the task made progress in
    /// between.
    pub fn recall(&mut self, mut wants: Vec<MissingPage>, progress: usize) -> Vec<MissingPage> {
        if std::mem::replace(&mut self.progress, progress) != progress {
            self.lists.clear();
        }
        let missing = |list: &[MissingPage]| list.iter().rev().find(|want| is_page(want)).copied();
        let now = missing(&wants);
        let before = self.lists.iter().position(|list| now.is_some() && missing(list) == now);
        self.lists.push_back(wants.clone());
        if let Some(before) = before {
            let since = self.lists.iter().skip(before).rev();
            for want in since.flatten().filter(|want| is_page(want)) {
                if wants.len() < PAGES && !wants.contains(want) {
                    wants.push(*want);
                }
            }
        }
        if self.lists.len() > LISTS {
            self.lists.pop_front();
        }
        wants
    }
}

/// Repeats an attempt until it succeeds or fails, and fetches the missing pages in between. Blocks.
pub fn retry_blocking<T>(
    pool: &Pool,
    mut attempt: impl FnMut() -> Result<T, Blocked>,
) -> Result<T, StorageError> {
    let (mut missed, mut kept) = (Missed::default(), Vec::new());
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(Blocked::Log(read)) => read.run(),
            Err(Blocked::Failed(error)) => return Err(error),
            Err(Blocked::MissingPage(wants)) => {
                let wants = missed.recall(wants, 0).into_iter();
                let fetched: Result<Vec<Pin>, _> =
                    wants.map(|want| pool.fetch_blocking(want)).collect();
                // Keep the previous attempt's pages pinned until now, so that they need not be read
                // again.
                drop(std::mem::replace(&mut kept, fetched?));
            }
        }
    }
}

fn is_page(want: &MissingPage) -> bool {
    matches!(want, MissingPage::Page(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::{PageId, PartitionId};

    fn page(no: u32) -> MissingPage {
        MissingPage::Page(PageId::new(PartitionId(0), no))
    }

    #[test]
    fn repeated_miss_fetches_all_misses_since() {
        let mut missed = Missed::default();
        assert_eq!(missed.recall(vec![page(1)], 0), [page(1)]);
        assert_eq!(missed.recall(vec![page(1), page(2)], 0), [page(1), page(2)]);
        assert_eq!(
            missed.recall(vec![page(2), MissingPage::Frames(1), page(3)], 0),
            [page(2), MissingPage::Frames(1), page(3)]
        );
        assert_eq!(missed.recall(vec![page(1)], 0), [page(1), page(2), page(3)]);
        assert_eq!(missed.recall(vec![page(2), page(4)], 0), [page(2), page(4)]);
        assert_eq!(missed.recall(vec![page(1)], 0), [page(1), page(2), page(4), page(3)]);
    }

    #[test]
    fn progress_clears_the_misses() {
        let mut missed = Missed::default();
        for progress in 0..3 {
            assert_eq!(missed.recall(vec![page(1)], progress), [page(1)]);
            assert_eq!(missed.recall(vec![page(1), page(2)], progress), [page(1), page(2)]);
        }
    }

    #[test]
    fn old_misses_are_forgotten() {
        let mut missed = Missed::default();
        let last = LISTS as u32;
        for no in 0..last {
            assert_eq!(missed.recall(vec![page(no)], 0), [page(no)]);
        }
        assert_eq!(missed.recall(vec![page(0)], 0).len(), PAGES);
        assert_eq!(missed.recall(vec![page(last)], 0), [page(last)]);
    }
}
