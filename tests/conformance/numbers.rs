//! The numbers of operands: edge values of a dtype, and numbers that look random and are the same everywhere.

use half::{bf16, f16};
use mgraph_dsl::{
    interpret::{Data, Matrix, Store, Tensor},
    ir::DType,
};

use super::types::Sizes;

/// How an operand's elements are drawn. Names are of sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw {
    /// Anything that the dtype can hold, edge values too.
    Any,
    /// Evenly within `-x..x`; integers and bools as whole numbers.
    Within(f64),
    /// Evenly within `x..y`.
    Between(f64, f64),
    /// Whole numbers from the first up to the second.
    Whole(i64, i64),
    /// Indices of an axis of this size.
    Index(&'static str),
    /// The same, or -1.
    IndexOrNone(&'static str),
    /// Each row one after the other, within an axis of this size.
    Consecutive(&'static str),
    /// Of a matrix: packed always, and in codes that divide a byte.
    Packed,
    Bytes,
}

pub struct Numbers(u64);

impl Numbers {
    /// The same for the same words.
    pub fn new(seed: &str) -> Numbers {
        // FNV-1a.
        Numbers(seed.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)))
    }

    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.bits()) * n as u64) >> 32) as usize
    }

    /// Within 0..1.
    pub fn share(&mut self) -> f64 {
        (f64::from(self.bits()) + f64::from(self.bits()) / 4_294_967_296.0) / 4_294_967_296.0
    }

    /// With an exponent from the whole of the range given, so that tiny and huge numbers are as frequent as others.
    fn spread(&mut self, low: f64, high: f64) -> f64 {
        let size = (1.0 + self.share()) * (low + (high - low) * self.share()).floor().exp2();
        if self.bits() & 1 == 0 { size } else { -size }
    }
}

/// Digits of the significand and the least exponent of normal numbers.
pub fn format(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::F64 => (53, -1022),
        DType::F16 => (11, -14),
        DType::BF16 => (8, -126),
        DType::F | DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::Bool => (24, -126),
    }
}

pub fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

pub fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F16 => f16::MAX.to_f64(),
        DType::BF16 => bf16::MAX.to_f64(),
        DType::F | DType::F32 => f64::from(f32::MAX),
        DType::I32 => f64::from(i32::MAX),
        DType::U32 => f64::from(u32::MAX),
        DType::U8 => 255.0,
        DType::Bool => 1.0,
    }
}

/// The least normal number.
pub fn normal(dtype: DType) -> f64 {
    f64::from(format(dtype).1).exp2()
}

/// To the nearest of the dtype.
pub fn rounded(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F | DType::F32 => f64::from(x as f32),
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::I32 => f64::from(x as i32),
        DType::U32 => f64::from(x as u32),
        DType::U8 => f64::from(x as u8),
        DType::Bool => f64::from(u8::from(x != 0.0)),
    }
}

/// Numbers at which executors differ, if they do.
pub fn edges(dtype: DType) -> Vec<f64> {
    let both = |positive: &[f64]| positive.iter().flat_map(|x| [*x, -*x]).collect::<Vec<f64>>();
    match dtype {
        DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
            let (digits, least) = format(dtype);
            let epsilon = f64::from(1 - digits).exp2();
            let normal = f64::from(least).exp2();
            let subnormal = normal * epsilon;
            let max = largest(dtype);
            let mut found = both(&[
                0.0,
                subnormal,
                normal - subnormal,
                normal,
                normal * 2.0,
                epsilon,
                0.5,
                1.0 - epsilon / 2.0,
                1.0,
                1.0 + epsilon,
                1.5,
                2.0,
                3.0,
                std::f64::consts::PI,
                10.0,
                88.0,
                100.0,
                1.0 / epsilon,
                max / 2.0,
                max,
                f64::INFINITY,
            ]);
            found.push(f64::NAN);
            found.iter().map(|x| rounded(*x, dtype)).collect()
        }
        DType::I32 => both(&[0.0, 1.0, 2.0, 7.0, 255.0, 65_537.0, 2_147_483_647.0])
            .into_iter()
            .chain([-2_147_483_648.0])
            .map(|x| x + 0.0)
            .collect(),
        DType::U32 => vec![0.0, 1.0, 2.0, 7.0, 31.0, 255.0, 65_537.0, 2_147_483_648.0, 4_294_967_295.0],
        DType::U8 => vec![0.0, 1.0, 2.0, 7.0, 31.0, 127.0, 128.0, 255.0],
        DType::Bool => vec![0.0, 1.0],
    }
}

/// A number of a dtype, small or large.
pub fn any(dtype: DType, numbers: &mut Numbers) -> f64 {
    match dtype {
        DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
            // f64's own range would leave every other dtype.
            let least = f64::from(format(dtype).1.max(-126));
            rounded(numbers.spread(least, largest(dtype).log2().min(127.0)), dtype)
        }
        DType::I32 => f64::from(numbers.bits() as i32 >> numbers.below(32)),
        DType::U32 => f64::from(numbers.bits() >> numbers.below(32)),
        DType::U8 => f64::from(numbers.bits() as u8 >> numbers.below(8)),
        DType::Bool => f64::from(numbers.bits() & 1),
    }
}

/// As the interpreter holds it.
pub fn tensor(dtype: DType, shape: &[usize], elements: &[f64]) -> Tensor {
    let data: Data = match dtype {
        DType::F64 => elements.to_vec().into(),
        DType::F | DType::F32 | DType::F16 | DType::BF16 => {
            elements.iter().map(|x| rounded(*x, dtype) as f32).collect::<Vec<_>>().into()
        }
        DType::I32 => elements.iter().map(|x| *x as i32).collect::<Vec<_>>().into(),
        DType::U32 => elements.iter().map(|x| *x as u32).collect::<Vec<_>>().into(),
        DType::U8 => elements.iter().map(|x| *x as u8).collect::<Vec<_>>().into(),
        DType::Bool => elements.iter().map(|x| *x != 0.0).collect::<Vec<_>>().into(),
    };
    Tensor::new(dtype, shape.to_vec(), data).expect("the elements fill the shape")
}

/// An operand of a call.
pub fn drawn(draw: Draw, dtype: DType, shape: &[usize], sizes: &Sizes, numbers: &mut Numbers) -> Tensor {
    let count: usize = shape.iter().product();
    let whole = !is_float(dtype);
    let mut one = |_: usize| match draw {
        Draw::Any if numbers.below(4) == 0 => {
            let edges = edges(dtype);
            edges[numbers.below(edges.len())]
        }
        Draw::Any => any(dtype, numbers),
        Draw::Within(x) if whole => (numbers.share() * (2.0 * x + 1.0)).floor() - x,
        Draw::Within(x) => x * (2.0 * numbers.share() - 1.0),
        Draw::Between(x, y) => x + (y - x) * numbers.share(),
        Draw::Whole(x, y) => (x + numbers.below((y - x + 1) as usize) as i64) as f64,
        Draw::Index(name) => numbers.below(sizes[name]) as f64,
        Draw::IndexOrNone(name) => numbers.below(sizes[name] + 1) as f64 - 1.0,
        Draw::Consecutive(_) | Draw::Packed | Draw::Bytes => 0.0,
    };
    let elements: Vec<f64> = match draw {
        Draw::Consecutive(name) => {
            let [rows, tokens] = shape else { panic!("positions are [rows, tokens]") };
            let start = |numbers: &mut Numbers| numbers.below(sizes[name] + 1 - tokens);
            (0..*rows)
                .flat_map(|_| {
                    let start = start(numbers);
                    (start..start + tokens).map(|at| at as f64)
                })
                .collect()
        }
        _ => (0..count).map(&mut one).collect(),
    };
    tensor(dtype, shape, &elements)
}

/// Codes without gaps in little-endian words.
fn pack(codes: &[u32], bits: usize) -> Vec<u32> {
    let mut words = vec![0u32; (codes.len() * bits).div_ceil(32)];
    for (i, code) in codes.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            words[at / 32] |= ((code >> bit) & 1) << (at % 32);
        }
    }
    words
}

/// A matrix, dense or packed in codes of so many bits, with a scale and a bias for each group of columns. The numbers are
/// multiples of 1/64 below 4, so that what is exact in a dtype of 8 bits is exact here.
pub fn matrix(shape: &[usize], dtype: DType, packed: Option<(usize, usize)>, numbers: &mut Numbers) -> Matrix<Tensor> {
    let (columns, leading) = shape.split_last().expect("a matrix has axes");
    let rows: usize = leading.iter().product();
    let mut eighths = |count: usize| (0..count).map(|_| (numbers.below(33) as f64 - 16.0) / 8.0).collect::<Vec<_>>();
    let with = |last: usize| [leading, &[last]].concat();
    let store = match packed {
        None => Store::Dense(tensor(dtype, shape, &eighths(rows * columns))),
        Some((bits, group)) => {
            let groups = columns / group;
            let (scales, biases) = (eighths(rows * groups), eighths(rows * groups));
            let codes: Vec<u32> = (0..rows * columns).map(|_| numbers.bits() >> (32 - bits)).collect();
            let words: Vec<u32> = codes.chunks(*columns).flat_map(|row| pack(row, bits)).collect();
            let codes = Tensor::new(DType::U32, with(columns * bits / 32), words).expect("whole words a row");
            Store::Packed {
                bytes: codes.to_bytes().expect("codes are words"),
                codes,
                scales: tensor(dtype, &with(groups), &scales),
                biases: tensor(dtype, &with(groups), &biases),
                bits: bits as u32,
                group: group as u32,
            }
        }
    };
    Matrix { shape: shape.to_vec(), store, weight: None }
}
