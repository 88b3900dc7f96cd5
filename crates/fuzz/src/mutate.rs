//! Simple deterministic mutations for the ordinary tests. Finding new paths is left to the fuzzer.

use clearway_testkit::Rng;

const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// Changes `bytes` slightly: flips bits, sets bytes to extremes, truncates, repeats, or appends the
/// end of `other`.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let mut below = |n: usize| rng.below(n as u64) as usize;
    for _ in 0..=below(3) {
        let at = below(bytes.len());
        match below(6) {
            0 => bytes.truncate(at),
            1 => {
                let piece = bytes[at..(at + 1 + below(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            2 => {
                bytes.truncate(at);
                bytes.extend_from_slice(&other[below(other.len())..]);
            }
            kind => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte =
                        if kind == 3 { EDGES[below(EDGES.len())] } else { *byte ^ 1 << below(8) };
                }
            }
        }
    }
}
