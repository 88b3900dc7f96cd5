//! Optimistic reads of a page that may change concurrently.
//!
//! An optimistic reader holds nothing that excludes a writer, an eviction or the kernel from the
//! bytes. Afterwards it checks that the frame's version is unchanged; otherwise it discards what it
//! has read (`frame`, invariant 5).
//!
//! # Why assembly
//! Writers change a page with plain stores (`PageMut` is a `&mut [u8]`), and the kernel reads from
//! the disk into it. In Rust's memory model, any concurrent load, even an atomic one, is a data
//! race and so undefined, whatever happens to the value. A load instruction in an `asm!` block is
//! not an access in that model: to the model, the block *makes up* a value. So nothing is undefined
//! here, and no reader may rely on the value it gets. That the value is the page's when the version
//! has not changed is a property of the processor, whose loads and stores the fences in `frame`
//! order. On processors without an implementation below, and under Miri, every read takes the
//! latch.
//!
//! # Source
//! Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012; Leis,
//! Haubenschild, Neumann, "Optimistic Lock Coupling", IEEE Data Eng. Bull. 2019.

use crate::core::Core;
use crate::frame::Arena;
use crate::page::PAGE_SIZE;
use clearway_types::{FrameId, Lsn};
use std::marker::PhantomData;
use std::ptr::NonNull;

const WORD: usize = size_of::<u64>();

/// A page as it is at one or several moments. What is read counts only if
/// [`crate::Pool::read_optimistic`] returns it.
pub struct OptimisticPage<'a> {
    bytes: NonNull<u8>,
    pool: PhantomData<&'a Arena>,
}

impl<'a> OptimisticPage<'a> {
    /// Whether this processor has an implementation here.
    pub(crate) const POSSIBLE: bool =
        cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));

    /// If [`OptimisticPage::POSSIBLE`] is false, only the holder of a latch may call this.
    ///
    /// # Safety
    /// The pool has this frame.
    #[inline]
    pub(crate) unsafe fn new<W>(core: &'a Core<W>, frame: FrameId) -> Self {
        // SAFETY: the caller guarantees that the frame exists.
        Self { bytes: unsafe { core.arena.bytes_of(frame) }.cast(), pool: PhantomData }
    }

    /// Fills `into` with the page's bytes from `at` on. Returns `None`, and reads nothing, if they
    /// are not all in the page.
    #[inline]
    pub fn copy(&self, at: usize, into: &mut [u8]) -> Option<()> {
        if into.len() > PAGE_SIZE || at > PAGE_SIZE - into.len() {
            return None;
        }
        let (words, rest) = into.as_chunks_mut::<WORD>();
        let whole = words.len() * WORD;
        for (word, at) in words.iter_mut().zip((at..).step_by(WORD)) {
            *word = self.word(at).to_ne_bytes();
        }
        if !rest.is_empty() {
            // The rest comes from a whole word; at the page's end, from the last word.
            let from = (at + whole).min(PAGE_SIZE - WORD);
            let skip = at + whole - from;
            rest.copy_from_slice(&self.word(from).to_ne_bytes()[skip..skip + rest.len()]);
        }
        Some(())
    }

    /// Returns the `N` bytes from `at` on; `None` if they are not all in the page.
    #[inline]
    pub fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut array = [0; N];
        self.copy(at, &mut array).map(|()| array)
    }

    /// Returns the page's LSN.
    pub fn lsn(&self) -> Lsn {
        Lsn(u64::from_le_bytes(self.word(8).to_ne_bytes()))
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        assert!(at <= PAGE_SIZE - WORD, "outside the page");
        // SAFETY: the word is in the frame, as just checked, and the arena lives as long as the
        // borrowed pool. If POSSIBLE is false, a latch is held.
        unsafe { load(self.bytes.add(at)) }
    }
}

/// # Safety
/// The word is in memory that stays mapped.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn load(from: NonNull<u8>) -> u64 {
    let value: u64;
    // SAFETY: one load of mapped memory, which the caller guarantees; in Rust's model it is no
    // access at all (see the module's header). Without `nomem`, so that the compiler moves no
    // access across it.
    unsafe {
        std::arch::asm!("mov {value}, qword ptr [{from}]", from = in(reg) from.as_ptr(), value = out(reg) value,
            options(nostack, preserves_flags));
    }
    value
}

/// # Safety
/// As above.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
unsafe fn load(from: NonNull<u8>) -> u64 {
    let value: u64;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("ldr {value}, [{from}]", from = in(reg) from.as_ptr(), value = out(reg) value,
            options(nostack, preserves_flags));
    }
    value
}

/// # Safety
/// The word is in memory that stays mapped, and no thread writes it concurrently.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline]
unsafe fn load(from: NonNull<u8>) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { from.cast::<u64>().read_unaligned() }
}
