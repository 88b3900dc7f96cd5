//! The buffer pool: frames, page table, pins, replacement policies, write-back.
