//! Pinned random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), which any element can be asked of by itself.

/// The `at`-th number of the stream `seed`.
fn bits(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Evenly from -1 to 1, 24 bits of it.
pub fn even(seed: u64, at: u64) -> f32 {
    (bits(seed, at) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// The stream of a name.
pub fn seed(of: u64, name: &str) -> u64 {
    name.bytes().fold(of, |seed, byte| bits(seed, u64::from(byte)))
}
