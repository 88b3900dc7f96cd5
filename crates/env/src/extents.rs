//! Which parts of a file have blocks.
//!
//! Blocks that are preallocated and were never written read as a hole. Only FIEMAP tells them from
//! a part without blocks, also beyond the end of the file.
//!
//! Source: `Documentation/filesystems/fiemap.rst` of Linux.

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// How many extents one call returns at most.
const EXTENTS: usize = 32;
/// The flag of the file's last extent.
const LAST: u32 = 1;
const FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);

/// `struct fiemap` without the extents.
#[repr(C)]
#[derive(Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_flags: [u32; 3],
}

#[repr(C)]
struct Request {
    header: Header,
    extents: [Extent; EXTENTS],
}

/// Returns the parts of this one that have no blocks. Fails if the file system does not know.
pub(crate) fn without_blocks(file: impl AsFd, all: &Range<u64>) -> Result<Vec<Range<u64>>, Errno> {
    let (mut parts, mut at) = (Vec::new(), all.start);
    while at < all.end {
        let from = at;
        let (length, count) = (all.end - from, EXTENTS as u32);
        let header = Header { start: from, length, count, ..Header::default() };
        let mut request = Request { header, extents: [Extent::default(); EXTENTS] };
        // SAFETY: FIEMAP reads and writes a `struct fiemap`, followed by `count` extents. `Request`
        // has this layout, with space for that many, and any bits are valid in all of its fields.
        unsafe { ioctl(&file, Updater::<FIEMAP, Request>::new(&mut request)) }?;
        let found = &request.extents[..EXTENTS.min(request.header.mapped as usize)];
        for extent in found {
            if at < extent.logical {
                parts.push(at..extent.logical.min(all.end));
            }
            at = at.max(extent.logical.saturating_add(extent.length));
        }
        if at == from || found.last().is_some_and(|extent| extent.flags & LAST != 0) {
            break;
        }
    }
    if at < all.end {
        parts.push(at..all.end);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::fs::File;

    const BLOCK: u64 = 64 << 10;

    /// Blocks count whether they were written or not, and whether they are before or beyond the end
    /// of the file.
    #[test]
    fn parts_without_blocks_are_found() {
        let scratch = crate::test_files::Scratch::new("extents");
        let path = scratch.0.join("file");
        std::fs::write(&path, vec![1; BLOCK as usize]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let missing = |from: u64, to: u64| {
            let parts = without_blocks(&file, &(from * BLOCK..to * BLOCK))?;
            Ok(parts.iter().map(|part| (part.start / BLOCK, part.end / BLOCK)).collect::<Vec<_>>())
        };
        match missing(0, 4) {
            Ok(parts) => assert_eq!(parts, [(1, 4)]),
            // The file system of temporary files does not know.
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => return,
            Err(error) => panic!("{error}"),
        }
        // More than one call returns.
        let blocks = 2 * EXTENTS as u64 + 10;
        for block in (2..blocks).step_by(2) {
            let allocated = fallocate(&file, FallocateFlags::KEEP_SIZE, block * BLOCK, BLOCK);
            match allocated {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => return,
                Err(error) => panic!("{error}"),
            }
        }
        let odd = |to: u64| (1..to).step_by(2).map(|at| (at, at + 1)).collect::<Vec<_>>();
        assert_eq!(missing(0, blocks), Ok::<_, Errno>(odd(blocks)));
        assert_eq!(missing(0, 8), Ok(odd(8)));
        assert_eq!(missing(2, 3), Ok(vec![]));
        assert_eq!(missing(3, 4), Ok(vec![(3, 4)]));
        assert_eq!(missing(blocks, blocks + 1), Ok(vec![(blocks, blocks + 1)]));
    }
}
