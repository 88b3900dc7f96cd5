//! Attempts that miss pages.
//!
//! An attempt finds out about the pages that it needs one after the other, and what it is told to
//! want next may leave out what it has seen before: the way down a tree, say, when it misses a page
//! of the free list. In a small pool others take that meanwhile, so that two pages could be missed
//! in turn for ever.
//!
//! Invariant: a page that is missed again comes together with all that was missed since it was
//! missed before. So what an attempt needs, if it is missed in at most [`LISTS`] pieces and is not
//! more than [`PAGES`], is at last there at once.

use std::collections::VecDeque;

use clearway_buffer::{MissingPage, Pin, Pool};

use crate::error::{Blocked, StorageError};

/// How many misses are remembered: those of the way down a tree, and of what a change of its
/// deepest node needs.
const LISTS: usize = 16;

/// To how many pages a want is filled up: fewer than the smallest pool has.
const PAGES: usize = 12;

/// The misses of a task since it last got on.
#[derive(Debug, Default)]
pub struct Missed {
    lists: VecDeque<Vec<MissingPage>>,
    progress: usize,
}

impl Missed {
    /// What the task's next attempt is to find; `wants`: what this one has missed, `progress`:
    /// another number if anything was done since the last.
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

/// Repeats an attempt, fetching what it wants in between. Blocking.
pub fn patiently<T>(
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
                // What the last attempt had is let go only now, so that it need not be read again.
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
    fn what_is_missed_again_comes_with_all_that_was_missed_since() {
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
    fn what_was_missed_before_the_last_progress_is_forgotten() {
        let mut missed = Missed::default();
        for progress in 0..3 {
            assert_eq!(missed.recall(vec![page(1)], progress), [page(1)]);
            assert_eq!(missed.recall(vec![page(1), page(2)], progress), [page(1), page(2)]);
        }
    }

    #[test]
    fn so_many_misses_are_remembered() {
        let mut missed = Missed::default();
        let last = LISTS as u32;
        for no in 0..last {
            assert_eq!(missed.recall(vec![page(no)], 0), [page(no)]);
        }
        assert_eq!(missed.recall(vec![page(0)], 0).len(), PAGES);
        assert_eq!(missed.recall(vec![page(last)], 0), [page(last)]);
    }
}
