//! The second pass: every page has exactly one use, and every tree is valid.
//!
//! The walk starts at page 0 and follows the free list and the directory, and from the directory
//! each tree. It claims each page that it reaches, and reports a page that is claimed twice or
//! never. It enters no page twice, whatever the references say, and each step down a tree goes one
//! level down. So the walk ends.

use clearway_buffer::PAGE_SIZE;
use clearway_types::TreeId;

use super::node::{self, shown};
use super::pages::{BAD, PageFile, Pages, Summary, UNWRITTEN};
use super::report::FindingSeverity;
use super::{Out, pages::Page};
use crate::directory;
use crate::page::{KIND_FREE, KIND_NODE, KIND_OVERFLOW, OVERFLOW_ROOM, free_head, page_count};

/// Owners of pages: 0 for none, then these, then the trees in the order of [`Map::trees`].
const SYSTEM: u32 = 1;
const FREE: u32 = 2;
const DIRECTORY: u32 = 3;
const FIRST_TREE: u32 = 4;

/// A tree of a partition.
#[derive(Clone, Debug)]
pub(super) struct TreeInfo {
    pub(super) id: TreeId,
    pub(super) root: u32,
    /// Every page of the tree exists and is valid.
    pub(super) whole: bool,
}

/// A partition after the second pass.
pub(super) struct Map {
    pub(super) file: PageFile,
    pub(super) trees: Vec<TreeInfo>,
    /// For each page of the file: the index in `trees` if it is a leaf. Cleared when no longer
    /// needed.
    pub(super) leaves: Vec<Option<u32>>,
}

struct Walk<'a, 'o> {
    pages: Pages,
    owners: Vec<u32>,
    trees: Vec<TreeInfo>,
    /// Number of pages in use according to page 0.
    count: u32,
    /// Something below a damaged page was not walked, so pages may lack an owner for that reason.
    cut: bool,
    directory_whole: bool,
    out: &'a mut Out<'o>,
}

/// The bounds of the keys below a node.
#[derive(Clone, Copy)]
struct Range<'k> {
    low: Option<&'k [u8]>,
    high: Option<&'k [u8]>,
}

/// Walks all lists and trees of a partition.
pub(super) fn walk(pages: Pages, out: &mut Out<'_>) -> Map {
    let owners = vec![0; pages.facts.len()];
    let mut walk =
        Walk { pages, owners, trees: Vec::new(), count: 0, cut: false, directory_whole: true, out };
    if let Some(meta) = walk.pages.meta.take() {
        walk.all(&meta);
    } else if walk.pages.file.is_there() && walk.pages.fact(0).kind != BAD {
        let finding = walk.pages.file.damage(0, "page 0 expected, none found");
        walk.out.add(finding);
    }
    let Walk { pages, owners, trees, .. } = walk;
    let leaf = |(no, owner): (usize, u32)| {
        let fact = pages.facts[no];
        (owner >= FIRST_TREE && fact.kind == KIND_NODE && fact.level == 0)
            .then(|| owner - FIRST_TREE)
    };
    let leaves = owners.into_iter().enumerate().map(leaf).collect();
    Map { file: pages.file, trees, leaves }
}

impl Walk<'_, '_> {
    fn damage(&mut self, page: u32, what: String) {
        self.out.add(self.pages.file.damage(page, what));
    }

    fn all(&mut self, meta: &Page) {
        self.owners[0] = SYSTEM;
        self.count = page_count(meta);
        if self.count > self.pages.file.pages {
            let what = format!(
                "{} pages expected in the file, {} found",
                self.count, self.pages.file.pages
            );
            self.damage(0, what);
        }
        self.free_list(free_head(meta));
        let whole = self.tree(directory::ROOT, 0, DIRECTORY);
        self.directory_whole = whole;
        for (id, root, page) in self.directory_entries() {
            let at = self.trees.len() as u32;
            self.trees.push(TreeInfo { id, root, whole: true });
            let whole = self.tree(root, page, FIRST_TREE + at);
            self.trees[at as usize].whole = whole;
            self.out.report.trees += 1;
        }
        self.unclaimed();
    }

    fn name(&self, owner: u32) -> String {
        match owner {
            SYSTEM => "the file's head".to_owned(),
            FREE => "the free list".to_owned(),
            DIRECTORY => "the directory".to_owned(),
            other => self
                .trees
                .get((other - FIRST_TREE) as usize)
                .map_or(String::new(), |t| format!("tree {}", t.id)),
        }
    }

    /// Claims a page that page `from` refers to. If that is invalid, reports it and returns false.
    fn claim(&mut self, no: u32, owner: u32, from: u32) -> bool {
        if no == 0 || no >= self.count.min(self.owners.len() as u32) {
            let what = format!(
                "{} refers to a page below {} expected, to page {no} found",
                self.name(owner),
                self.count
            );
            self.damage(from, what);
            return false;
        }
        let old = self.owners[no as usize];
        if old != 0 {
            let what = format!(
                "one use expected, two found: {} has it and {} refers to it, from page {from}",
                self.name(old),
                self.name(owner)
            );
            self.damage(no, what);
            return false;
        }
        self.owners[no as usize] = owner;
        true
    }

    fn free_list(&mut self, head: u32) {
        let (mut no, mut from) = (head, 0);
        while no != 0 {
            if !self.claim(no, FREE, from) {
                self.cut = true;
                return;
            }
            let fact = self.pages.fact(no);
            if fact.kind != KIND_FREE {
                if fact.kind != BAD {
                    self.damage(
                        no,
                        format!("a free page expected, {} found", kind_name(fact.kind)),
                    );
                }
                self.cut = true;
                return;
            }
            self.out.report.free += 1;
            (from, no) = (no, fact.next);
        }
    }

    /// Walks a tree whose root page `from` names. Returns true if the tree is intact.
    fn tree(&mut self, root: u32, from: u32, owner: u32) -> bool {
        self.node(root, from, owner, None, Range { low: None, high: None })
    }

    fn node(
        &mut self,
        no: u32,
        from: u32,
        owner: u32,
        level: Option<u8>,
        range: Range<'_>,
    ) -> bool {
        if !self.claim(no, owner, from) {
            self.cut = true;
            return false;
        }
        let fact = self.pages.fact(no);
        let wrong = match (fact.kind, level) {
            (KIND_NODE, Some(level)) if fact.level != level => {
                Some(format!("level {level} expected, {} found", fact.level))
            }
            (KIND_NODE, _) => None,
            (BAD, _) => Some(String::new()),
            (other, _) => {
                Some(format!("a node of {} expected, {} found", self.name(owner), kind_name(other)))
            }
        };
        if let Some(what) = wrong {
            if !what.is_empty() {
                self.damage(no, what);
            }
            self.cut = true;
            return false;
        }
        match self.pages.summary(no) {
            Ok(Summary::Leaf { count, first, last, chains }) => {
                self.leaf(no, owner, level.is_none(), (count, &first, &last), &chains, range)
            }
            Ok(Summary::Inner { keys, children }) => {
                self.inner(no, owner, fact.level, &keys, &children, range)
            }
            Err(error) => {
                self.damage(no, format!("it cannot be read: {error}"));
                self.cut = true;
                false
            }
        }
    }

    fn inner(
        &mut self,
        no: u32,
        owner: u32,
        level: u8,
        keys: &[Box<[u8]>],
        children: &[u32],
        range: Range<'_>,
    ) -> bool {
        let mut whole = true;
        if let [_, first, ..] = keys {
            let last = &keys[keys.len() - 1];
            whole = self.inside(no, first, last, range, true);
        }
        for (slot, &child) in children.iter().enumerate() {
            let low = if slot == 0 { range.low } else { Some(&*keys[slot]) };
            let high = keys.get(slot + 1).map(|key| &**key).or(range.high);
            whole &= self.node(child, no, owner, Some(level - 1), Range { low, high });
        }
        whole
    }

    fn leaf(
        &mut self,
        no: u32,
        owner: u32,
        root: bool,
        (count, first, last): (usize, &[u8], &[u8]),
        chains: &[(u32, u32)],
        range: Range<'_>,
    ) -> bool {
        if count == 0 {
            if !root {
                self.damage(no, "a leaf with keys expected, none found".to_owned());
            }
            return root;
        }
        if owner >= FIRST_TREE {
            self.out.report.entries += count as u64;
        }
        let mut whole = self.inside(no, first, last, range, false);
        for &(len, head) in chains {
            whole &= self.chain(no, owner, len, head);
        }
        whole
    }

    /// Checks that a node's least and greatest key are in its range. If `above`, the least key must
    /// be greater than the lower bound.
    fn inside(
        &mut self,
        no: u32,
        first: &[u8],
        last: &[u8],
        range: Range<'_>,
        above: bool,
    ) -> bool {
        let low = range.low.filter(|low| first < *low || (above && first == *low));
        let high = range.high.filter(|high| last >= *high);
        if let Some(low) = low {
            self.damage(
                no,
                format!("keys from {} on expected, {} found", shown(low), shown(first)),
            );
        }
        if let Some(high) = high {
            self.damage(no, format!("keys below {} expected, {} found", shown(high), shown(last)));
        }
        low.is_none() && high.is_none()
    }

    /// Follows a long value of `len` bytes that a cell of page `from` refers to.
    fn chain(&mut self, from: u32, owner: u32, len: u32, head: u32) -> bool {
        let (mut no, mut left, mut before) = (head, len, from);
        while no != 0 {
            if !self.claim(no, owner, before) {
                self.cut = true;
                return false;
            }
            let fact = self.pages.fact(no);
            if fact.kind != KIND_OVERFLOW {
                if fact.kind != BAD {
                    self.damage(
                        no,
                        format!("a part of a long value expected, {} found", kind_name(fact.kind)),
                    );
                }
                self.cut = true;
                return false;
            }
            let part = left.min(OVERFLOW_ROOM as u32);
            if u32::from(fact.part) != part {
                let what = format!(
                    "{part} bytes of a value of {len} expected, {} found (referred to by page {from})",
                    fact.part
                );
                self.damage(no, what);
                self.cut = true;
                return false;
            }
            left -= part;
            (before, no) = (no, fact.next);
        }
        if left > 0 {
            self.damage(
                before,
                format!("{left} more bytes of a value of {len} expected, none found"),
            );
        }
        left == 0
    }

    /// Returns the trees in the directory: id, root, and the page that has the entry.
    fn directory_entries(&mut self) -> Vec<(TreeId, u32, u32)> {
        let mut entries = Vec::new();
        let mut page = [0; PAGE_SIZE];
        for no in 0..self.owners.len() as u32 {
            let fact = self.pages.fact(no);
            if self.owners[no as usize] != DIRECTORY || fact.kind != KIND_NODE || fact.level != 0 {
                continue;
            }
            if self.pages.file.read(no, &mut page).is_err() {
                self.damage(no, "it cannot be read".to_owned());
                continue;
            }
            for slot in 0..node::count(&page) {
                let cell = node::cell(&page, slot);
                match directory::entry(cell.key, cell.value) {
                    Some((id, root)) if !cell.long => entries.push((id, root, no)),
                    _ => self.damage(
                        no,
                        format!(
                            "slot {slot}: a tree and its root expected, {} found",
                            shown(cell.key)
                        ),
                    ),
                }
            }
        }
        entries
    }

    /// Reports pages that have no owner.
    fn unclaimed(&mut self) {
        let (mut lost, mut beyond) = (0u64, 0u64);
        for no in 1..self.owners.len() as u32 {
            let kind = self.pages.fact(no).kind;
            if self.owners[no as usize] != 0 || kind == BAD {
                continue;
            }
            if no >= self.count {
                beyond += u64::from(kind != UNWRITTEN);
            } else if self.cut {
                lost += 1;
            } else {
                self.damage(
                    no,
                    format!(
                        "a use expected, none found: it is {}, in no tree, and not on the free list",
                        kind_name(kind)
                    ),
                );
            }
        }
        let file = &self.pages.file;
        if lost > 0 {
            let what = format!(
                "{lost} pages are in no tree that could be walked and not on the free list"
            );
            self.out.add(file.finding(FindingSeverity::Damage, None, what));
        }
        if beyond > 0 {
            let what = format!("{beyond} pages beyond the {} in use are not empty", self.count);
            self.out.add(file.finding(FindingSeverity::Note, None, what));
        }
    }
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        UNWRITTEN => "a page never written",
        KIND_NODE => "a node",
        KIND_OVERFLOW => "a part of a long value",
        KIND_FREE => "a free page",
        _ => "the head of a file",
    }
}
