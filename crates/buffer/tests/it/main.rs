//! Tests of the pool's public interface.

mod common;
mod copy;
mod counted;
mod faulty;
mod hit_path;
mod panics;
mod pool;
mod second_level;
mod space;
mod stress;
mod torn;
mod victims;
