//! One row of codes times one input. Written so that compilers make vectors of it; compiled once more for each set of vector
//! instructions, of which the machine's best is chosen when it runs.

/// Codes are read 16 bytes at a time.
const LANES: usize = 16;

/// An input as the codes lie: for each 16 bytes of a row, the numbers that their low halves meet and then those of the high
/// halves (4 bits), or the numbers in order (8 bits).
pub(crate) struct Input {
    values: Vec<f32>,
    /// Sum of each group.
    sums: Vec<f32>,
    bits: usize,
    /// Bytes of codes in a group.
    bytes: usize,
}

impl Input {
    pub fn new(x: &[f32], bits: usize, group: usize) -> Input {
        let values = match bits {
            4 => {
                let halves = |pairs: &[f32]| {
                    let (low, high) = (pairs.iter().step_by(2), pairs.iter().skip(1).step_by(2));
                    low.chain(high).copied().collect::<Vec<_>>()
                };
                x.chunks(2 * LANES).flat_map(halves).collect()
            }
            _ => x.to_vec(),
        };
        Input { values, sums: x.chunks(group).map(|g| g.iter().sum()).collect(), bits, bytes: group * bits / 8 }
    }
}

/// `codes`: the bytes of a row; one scale and bias for each group.
pub(crate) fn dot(x: &Input, codes: &[u8], scales: &[f32], biases: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has what the function was compiled for.
            return unsafe { avx512(x, codes, scales, biases) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return unsafe { avx2(x, codes, scales, biases) };
        }
    }
    sum::<false>(x, codes, scales, biases)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,fma")]
fn avx512(x: &Input, codes: &[u8], scales: &[f32], biases: &[f32]) -> f32 {
    sum::<true>(x, codes, scales, biases)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(x: &Input, codes: &[u8], scales: &[f32], biases: &[f32]) -> f32 {
    sum::<true>(x, codes, scales, biases)
}

/// `a * b + c`; fused where the processor can, for without it `mul_add` is a call.
#[inline(always)]
fn add_product<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn sum<const FUSED: bool>(x: &Input, codes: &[u8], scales: &[f32], biases: &[f32]) -> f32 {
    let mut total = [0.0f32; LANES];
    let mut offset = 0.0f32;
    let per_byte = 8 / x.bits;
    let groups = codes.chunks_exact(x.bytes).zip(x.values.chunks_exact(x.bytes * per_byte));
    for (((codes, values), (scale, bias)), of_group) in groups.zip(scales.iter().zip(biases)).zip(&x.sums) {
        let mut part = [0.0f32; LANES];
        let vectors = codes.as_chunks::<LANES>().0;
        if x.bits == 4 {
            for (codes, values) in vectors.iter().zip(values.as_chunks::<{ 2 * LANES }>().0) {
                for lane in 0..LANES {
                    part[lane] = add_product::<FUSED>(f32::from(codes[lane] & 15), values[lane], part[lane]);
                }
                for lane in 0..LANES {
                    part[lane] = add_product::<FUSED>(f32::from(codes[lane] >> 4), values[LANES + lane], part[lane]);
                }
            }
        } else {
            for (codes, values) in vectors.iter().zip(values.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    part[lane] = add_product::<FUSED>(f32::from(codes[lane]), values[lane], part[lane]);
                }
            }
        }
        for lane in 0..LANES {
            total[lane] = add_product::<FUSED>(part[lane], *scale, total[lane]);
        }
        offset = add_product::<FUSED>(*bias, *of_group, offset);
    }
    total.iter().sum::<f32>() + offset
}
