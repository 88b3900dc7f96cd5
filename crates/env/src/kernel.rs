//! The kernel interface of the ring's thread. It has few calls, so that tests can substitute
//! another kernel.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, squeue, types::Fd};

use crate::memory::IoMemory;
use crate::registered::Table;
use crate::ring::DEPTH;

const POLLIN: u32 = 1;

/// The kernel operations that the ring's thread uses.
pub(crate) trait Kernel {
    /// Puts an operation in the submission queue. Returns false if the queue is full.
    ///
    /// # Safety
    /// The operation's memory must stay in place, and its file open, until its completion has been
    /// taken. Meanwhile nobody else may write the memory, or read it if the kernel writes it.
    unsafe fn push(&mut self, operation: &Operation) -> bool;

    /// Submits the pushed operations, and waits until `completions` completions are available. With
    /// 0 it does not wait; finished operations then still become available.
    fn enter(&mut self, completions: usize) -> io::Result<()>;

    /// Takes the completions: each has the operation's number and its result.
    fn completions(&mut self) -> Vec<(u64, i32)>;

    /// See [`Table::add`].
    fn register(&mut self, table: &mut Table, memory: IoMemory) -> io::Result<()>;

    /// See [`Table::clear`].
    fn unregister(&mut self, table: &mut Table);
}

/// An operation in the kernel's terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Identifies the completion.
    pub(crate) number: u64,
    pub(crate) fd: RawFd,
    pub(crate) kind: OperationKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum OperationKind {
    /// Completes when the descriptor is readable.
    Poll,
    /// Reads into the memory, or writes from it, `len` bytes at `offset` of the file. `buffer` is
    /// the registered buffer that contains the memory, if any.
    Transfer { write: bool, memory: *mut u8, len: u32, offset: u64, buffer: Option<u16> },
}

impl Operation {
    pub(crate) fn entry(&self) -> squeue::Entry {
        let fd = Fd(self.fd);
        let entry = match self.kind {
            OperationKind::Poll => opcode::PollAdd::new(fd, POLLIN).build(),
            OperationKind::Transfer { write: false, memory, len, offset, buffer: None } => {
                opcode::Read::new(fd, memory, len).offset(offset).build()
            }
            OperationKind::Transfer { write: false, memory, len, offset, buffer: Some(buffer) } => {
                opcode::ReadFixed::new(fd, memory, len, buffer).offset(offset).build()
            }
            OperationKind::Transfer { write: true, memory, len, offset, buffer: None } => {
                opcode::Write::new(fd, memory, len).offset(offset).build()
            }
            OperationKind::Transfer { write: true, memory, len, offset, buffer: Some(buffer) } => {
                opcode::WriteFixed::new(fd, memory, len, buffer).offset(offset).build()
            }
        };
        entry.user_data(self.number)
    }
}

impl Kernel for IoUring {
    unsafe fn push(&mut self, operation: &Operation) -> bool {
        // SAFETY: the caller ensures it.
        unsafe { self.submission().push(&operation.entry()) }.is_ok()
    }

    fn enter(&mut self, completions: usize) -> io::Result<()> {
        self.submit_and_wait(completions).map(drop)
    }

    fn completions(&mut self) -> Vec<(u64, i32)> {
        self.completion().map(|entry| (entry.user_data(), entry.result())).collect()
    }

    fn register(&mut self, table: &mut Table, memory: IoMemory) -> io::Result<()> {
        table.add(self, memory)
    }

    fn unregister(&mut self, table: &mut Table) {
        table.clear(self);
    }
}

/// Creates a ring. The error says why the kernel refuses.
pub(crate) fn make_ring() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork();
    // Since Linux 6.1; an older kernel refuses these flags.
    let mut deferring = builder.clone();
    // Without the flag, `submit_and_wait(0)` does not deliver finished requests (invariant 5).
    deferring.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let ring = match deferring.build(DEPTH as u32 * 2) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            builder.build(DEPTH as u32 * 2)?
        }
        other => other?,
    };
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
    if !needed.into_iter().all(|code| probe.is_supported(code)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel's io_uring does not support read, write or poll",
        ));
    }
    Ok(ring)
}
