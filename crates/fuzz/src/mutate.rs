//! Simple deterministic mutations for the ordinary tests. Finding new paths is left to the fuzzer.

/// A random number generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// Returns a number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n.max(1) as u64) as usize
    }
}

const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// Changes `bytes` slightly: flips bits, sets bytes to extremes, truncates, repeats, or appends the
/// end of `other`.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len());
        match rng.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let piece = bytes[at..(at + 1 + rng.below(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            2 => {
                bytes.truncate(at);
                bytes.extend_from_slice(&other[rng.below(other.len())..]);
            }
            kind => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if kind == 3 {
                        EDGES[rng.below(EDGES.len())]
                    } else {
                        *byte ^ 1 << rng.below(8)
                    };
                }
            }
        }
    }
}
