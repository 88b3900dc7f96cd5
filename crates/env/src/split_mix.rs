//! The arithmetic of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). A generator adds [`GAMMA`] to
//! its state and returns the state's [`mix`], which is uniformly distributed over successive
//! states.

pub use clearway_types::hash::split_mix as mix;

/// What a generator adds to its state for each number.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scales a uniform number to one below `bound`; to 0 if `bound` is 0. The bias is below
/// `bound` / 2^64.
pub const fn scale(number: u64, bound: u64) -> u64 {
    // The high half of the product.
    ((number as u128 * bound as u128) >> 64) as u64
}
