//! The world that the engine runs in: files, clock, entropy, I/O threads.
