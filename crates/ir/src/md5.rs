//! MD5 (RFC 1321), for the SQL function md5(). Not for security.

/// Returns the digest in hexadecimal.
pub(crate) fn md5_hex(data: &[u8]) -> String {
    let mut message = data.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend_from_slice(&(data.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in message.chunks_exact(64) {
        round(&mut state, block);
    }
    state.iter().flat_map(|w| w.to_le_bytes()).map(|b| format!("{b:02x}")).collect()
}

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

fn round(state: &mut [u32; 4], block: &[u8]) {
    let word = |g: usize| {
        u32::from_le_bytes([block[g * 4], block[g * 4 + 1], block[g * 4 + 2], block[g * 4 + 3]])
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for i in 0..64 {
        let (f, g) = match i / 16 {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
            2 => (b ^ c ^ d, (3 * i + 5) % 16),
            _ => (c ^ (b | !d), (7 * i) % 16),
        };
        let k = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let mixed = a
            .wrapping_add(f)
            .wrapping_add(k)
            .wrapping_add(word(g))
            .rotate_left(SHIFTS[i / 16][i % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(mixed));
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.wrapping_add(v);
    }
}
