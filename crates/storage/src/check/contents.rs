//! The third pass: shows the entries of the trees to a caller that can interpret them.

use std::collections::HashMap;
use std::io;

use clearway_buffer::PAGE_SIZE;
use clearway_types::TreeId;

use super::Out;
use super::node::{self, Cell};
use super::pages::Page;
use super::trees::Map;
use crate::page::{next, part};

/// A key of a tree and its value, with their location.
#[derive(Clone, Copy, Debug)]
pub struct TreeEntry<'a> {
    /// The tree.
    pub tree: TreeId,
    /// The page in the partition's file that has the key.
    pub page: u32,
    /// The key.
    pub key: &'a [u8],
    /// The complete value.
    pub value: &'a [u8],
}

/// Number of inner nodes cached for lookups.
const KEPT: usize = 256;

/// Visits all entries of all trees in page order, with large reads. Skips damaged pages.
pub(super) fn scan(
    map: &Map,
    out: &mut Out<'_>,
    visit: &mut dyn FnMut(TreeEntry<'_>, &mut Out<'_>),
) {
    let (mut buffer, mut value) = (Vec::new(), Vec::new());
    let mut from = 0;
    while from < map.file.pages {
        let readable = map.file.stride(from, &mut buffer);
        let count = readable.len() as u32;
        for ((page, readable), no) in
            buffer.as_chunks::<PAGE_SIZE>().0.iter().zip(readable).zip(from..)
        {
            let leaf = map.leaves.get(no as usize).copied().flatten().filter(|_| readable);
            let Some(tree) = leaf.and_then(|tree| map.trees.get(tree as usize)) else { continue };
            for slot in 0..node::count(page) {
                let cell = node::cell(page, slot);
                if let Ok(value) = whole_value(map, &cell, &mut value) {
                    visit(TreeEntry { tree: tree.id, page: no, key: cell.key, value }, out);
                }
            }
        }
        from += count;
        out.pages(u64::from(count));
    }
}

/// Returns a cell's value, read from its overflow chain if it is long.
fn whole_value<'a>(map: &Map, cell: &Cell<'a>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    if !cell.long {
        return Ok(cell.value);
    }
    let (len, mut no) = cell.chain();
    buffer.clear();
    let mut page = [0; PAGE_SIZE];
    while no != 0 && buffer.len() < len as usize {
        map.file.read(no, &mut page)?;
        buffer.extend_from_slice(part(&page));
        no = next(&page);
    }
    if buffer.len() == len as usize { Ok(buffer) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Lookups in the trees of one partition, which must be intact.
pub(super) struct Reader<'m> {
    map: &'m Map,
    inner: HashMap<u32, Box<Page>>,
}

impl<'m> Reader<'m> {
    pub(super) fn new(map: &'m Map) -> Self {
        Self { map, inner: HashMap::new() }
    }

    fn page(&mut self, no: u32) -> io::Result<Box<Page>> {
        if let Some(page) = self.inner.get(&no) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; PAGE_SIZE]);
        self.map.file.read(no, &mut page[..])?;
        if node::level(&*page) > 0 {
            if self.inner.len() >= KEPT {
                self.inner.clear();
            }
            self.inner.insert(no, page.clone());
        }
        Ok(page)
    }

    fn root(&self, tree: TreeId) -> Option<u32> {
        self.map.trees.iter().find(|t| t.id == tree).map(|t| t.root)
    }

    /// Returns the value of a key.
    pub(super) fn get(&mut self, tree: TreeId, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some(mut no) = self.root(tree) else { return Ok(None) };
        loop {
            let page = self.page(no)?;
            let count = node::count(&*page);
            if node::level(&*page) > 0 {
                let slots: Vec<usize> = (1..count).collect();
                let slot = slots.partition_point(|&slot| node::cell(&*page, slot).key <= key);
                no = node::cell(&*page, slot).child();
                continue;
            }
            let slots: Vec<usize> = (0..count).collect();
            let found = slots.binary_search_by(|&slot| node::cell(&*page, slot).key.cmp(key));
            let Ok(slot) = found else { return Ok(None) };
            let mut value = Vec::new();
            return whole_value(self.map, &node::cell(&*page, slot), &mut value)
                .map(|value| Some(value.to_vec()));
        }
    }

    /// Visits the entries of a tree in key order.
    pub(super) fn each(
        &mut self,
        tree: TreeId,
        visit: &mut dyn FnMut(&mut Self, TreeEntry<'_>),
    ) -> io::Result<()> {
        match self.root(tree) {
            Some(root) => self.below(tree, root, visit),
            None => Ok(()),
        }
    }

    fn below(
        &mut self,
        tree: TreeId,
        no: u32,
        visit: &mut dyn FnMut(&mut Self, TreeEntry<'_>),
    ) -> io::Result<()> {
        let page = self.page(no)?;
        let mut value = Vec::new();
        for slot in 0..node::count(&*page) {
            let cell = node::cell(&*page, slot);
            if node::level(&*page) > 0 {
                self.below(tree, cell.child(), visit)?;
            } else {
                let value = whole_value(self.map, &cell, &mut value)?;
                visit(self, TreeEntry { tree, page: no, key: cell.key, value });
            }
        }
        Ok(())
    }
}
