//! One element at a time: arithmetic, comparisons, choice.

use super::{
    round::settle,
    strides::{broadcast_strides, gather, zip},
};
use crate::{
    interpret::{
        domain::Typed,
        tensor::{Data, Tensor},
    },
    ir::{Binary, Compare, DType, Unary},
};

/// Floats in the width they are held in.
trait Real: Copy + PartialOrd {
    fn unary(self, op: Unary) -> Option<Self>;
    fn binary(op: Binary) -> Option<fn(Self, Self) -> Self>;
}

macro_rules! real {
    ($ty:ident, $erf:path) => {
        impl Real for $ty {
            fn unary(self, op: Unary) -> Option<Self> {
                Some(match op {
                    Unary::Negate => -self,
                    Unary::Abs => self.abs(),
                    Unary::Exp => self.exp(),
                    Unary::Log => self.ln(),
                    Unary::Sqrt => self.sqrt(),
                    Unary::Rsqrt => 1.0 / self.sqrt(),
                    Unary::Tanh => self.tanh(),
                    Unary::Sin => self.sin(),
                    Unary::Cos => self.cos(),
                    Unary::Sigmoid => 1.0 / (1.0 + (-self).exp()),
                    Unary::Erf => $erf(self),
                    Unary::Not => return None,
                })
            }
            fn binary(op: Binary) -> Option<fn(Self, Self) -> Self> {
                Some(match op {
                    Binary::Add => |x, y| x + y,
                    Binary::Subtract => |x, y| x - y,
                    Binary::Multiply => |x, y| x * y,
                    Binary::Divide => |x, y| x / y,
                    Binary::Remainder => |x, y| x % y,
                    // A NaN on either side wins.
                    Binary::Min => |x, y| if x.is_nan() || x < y { x } else { y },
                    Binary::Max => |x, y| if x.is_nan() || x > y { x } else { y },
                    Binary::And | Binary::Or | Binary::ShiftLeft | Binary::ShiftRight => return None,
                })
            }
        }
    };
}

real!(f64, libm::erf);
real!(f32, libm::erff);

pub(in crate::interpret) fn unary(op: Unary, x: &Tensor) -> Result<Data, String> {
    fn all<T: Real + crate::interpret::tensor::Element>(v: &[T], op: Unary, dtype: DType) -> Result<Vec<T>, String> {
        v.iter().map(|x| x.unary(op)).collect::<Option<_>>().ok_or_else(|| unfit(format!("{op:?}"), dtype))
    }
    let dtype = x.dtype();
    match (x.data(), op) {
        (Data::F64(v), _) => all(v, op, dtype).map(Data::from),
        (Data::F32(v), _) => all(v, op, dtype).map(|v| settle(v, dtype)),
        (Data::I32(v), Unary::Negate) => Ok(v.iter().map(|x| x.wrapping_neg()).collect::<Vec<_>>().into()),
        (Data::I32(v), Unary::Abs) => Ok(v.iter().map(|x| x.wrapping_abs()).collect::<Vec<_>>().into()),
        (Data::U32(_) | Data::U8(_), Unary::Abs) => Ok(x.data().clone()),
        (Data::Bool(v), Unary::Not) => Ok(v.iter().map(|x| !x).collect::<Vec<_>>().into()),
        (Data::I32(_) | Data::U32(_) | Data::U8(_) | Data::Bool(_), _) => Err(unfit(format!("{op:?}"), dtype)),
    }
}

fn unfit(op: String, dtype: DType) -> String {
    format!("{op} of {dtype:?} has no meaning").to_lowercase()
}

pub(in crate::interpret) fn binary(op: Binary, shape: &[usize], x: &Tensor, y: &Tensor) -> Result<Data, String> {
    let dtype = x.dtype();
    if dtype != y.dtype() {
        return Err(format!("{dtype:?} meets {:?}", y.dtype()).to_lowercase());
    }
    let wrong = || unfit(format!("{op:?}"), dtype);
    match (x.data(), y.data()) {
        (Data::F64(a), Data::F64(b)) => {
            let apply = f64::binary(op).ok_or_else(wrong)?;
            zip(shape, (a, x.shape()), (b, y.shape()), apply).map(Data::from)
        }
        (Data::F32(a), Data::F32(b)) => {
            let (a, b) = ((a.as_slice(), x.shape()), (b.as_slice(), y.shape()));
            // The two most frequent ones without a call through a pointer.
            let out = match op {
                Binary::Add => zip(shape, a, b, |x, y| x + y),
                Binary::Multiply => zip(shape, a, b, |x, y| x * y),
                _ => zip(shape, a, b, f32::binary(op).ok_or_else(wrong)?),
            };
            out.map(|v| settle(v, dtype))
        }
        (Data::I32(a), Data::I32(b)) => {
            if matches!(op, Binary::Divide | Binary::Remainder) && b.contains(&0) {
                return Err("division by zero".into());
            }
            let apply: fn(i32, i32) -> i32 = match op {
                Binary::Add => i32::wrapping_add,
                Binary::Subtract => i32::wrapping_sub,
                Binary::Multiply => i32::wrapping_mul,
                Binary::Divide => i32::wrapping_div,
                Binary::Remainder => i32::wrapping_rem,
                Binary::Min => i32::min,
                Binary::Max => i32::max,
                Binary::And | Binary::Or | Binary::ShiftLeft | Binary::ShiftRight => return Err(wrong()),
            };
            zip(shape, (a, x.shape()), (b, y.shape()), apply).map(Data::from)
        }
        (Data::U32(a), Data::U32(b)) => {
            let shift = matches!(op, Binary::ShiftLeft | Binary::ShiftRight);
            if shift && let Some(by) = b.iter().find(|by| **by >= 32) {
                return Err(format!("a shift of u32 by {by}; it must be below 32"));
            }
            if matches!(op, Binary::Divide | Binary::Remainder) && b.contains(&0) {
                return Err("division by zero".into());
            }
            let apply: fn(u32, u32) -> u32 = match op {
                Binary::Add => u32::wrapping_add,
                Binary::Subtract => u32::wrapping_sub,
                Binary::Multiply => u32::wrapping_mul,
                Binary::Divide => |x, y| x / y,
                Binary::Remainder => |x, y| x % y,
                Binary::Min => u32::min,
                Binary::Max => u32::max,
                Binary::And => |x, y| x & y,
                Binary::Or => |x, y| x | y,
                Binary::ShiftLeft => |x, y| x << y,
                Binary::ShiftRight => |x, y| x >> y,
            };
            zip(shape, (a, x.shape()), (b, y.shape()), apply).map(Data::from)
        }
        (Data::U8(a), Data::U8(b)) => {
            let shift = matches!(op, Binary::ShiftLeft | Binary::ShiftRight);
            if shift && let Some(by) = b.iter().find(|by| **by >= 8) {
                return Err(format!("a shift of u8 by {by}; it must be below 8"));
            }
            if matches!(op, Binary::Divide | Binary::Remainder) && b.contains(&0) {
                return Err("division by zero".into());
            }
            let apply: fn(u8, u8) -> u8 = match op {
                Binary::Add => u8::wrapping_add,
                Binary::Subtract => u8::wrapping_sub,
                Binary::Multiply => u8::wrapping_mul,
                Binary::Divide => |x, y| x / y,
                Binary::Remainder => |x, y| x % y,
                Binary::Min => u8::min,
                Binary::Max => u8::max,
                Binary::And => |x, y| x & y,
                Binary::Or => |x, y| x | y,
                Binary::ShiftLeft => |x, y| x << y,
                Binary::ShiftRight => |x, y| x >> y,
            };
            zip(shape, (a, x.shape()), (b, y.shape()), apply).map(Data::from)
        }
        (Data::Bool(a), Data::Bool(b)) => {
            let apply: fn(bool, bool) -> bool = match op {
                Binary::And => |x, y| x & y,
                Binary::Or => |x, y| x | y,
                _ => return Err(wrong()),
            };
            zip(shape, (a, x.shape()), (b, y.shape()), apply).map(Data::from)
        }
        (_, _) => Err(wrong()),
    }
}

pub(in crate::interpret) fn compare(op: Compare, shape: &[usize], x: &Tensor, y: &Tensor) -> Result<Data, String> {
    fn pairs<T: Copy + PartialOrd>(
        op: Compare,
        shape: &[usize],
        a: (&[T], &[usize]),
        b: (&[T], &[usize]),
    ) -> Result<Data, String> {
        let apply: fn(T, T) -> bool = match op {
            Compare::Equal => |x, y| x == y,
            Compare::NotEqual => |x, y| x != y,
            Compare::Less => |x, y| x < y,
            Compare::LessEqual => |x, y| x <= y,
            Compare::Greater => |x, y| x > y,
            Compare::GreaterEqual => |x, y| x >= y,
        };
        zip(shape, a, b, apply).map(Data::from)
    }
    match (x.data(), y.data()) {
        (Data::F64(a), Data::F64(b)) => pairs(op, shape, (a, x.shape()), (b, y.shape())),
        (Data::F32(a), Data::F32(b)) => pairs(op, shape, (a, x.shape()), (b, y.shape())),
        (Data::I32(a), Data::I32(b)) => pairs(op, shape, (a, x.shape()), (b, y.shape())),
        (Data::U32(a), Data::U32(b)) => pairs(op, shape, (a, x.shape()), (b, y.shape())),
        (Data::U8(a), Data::U8(b)) => pairs(op, shape, (a, x.shape()), (b, y.shape())),
        (Data::Bool(a), Data::Bool(b)) => pairs(op, shape, (a, x.shape()), (b, y.shape())),
        (_, _) => Err(format!("{:?} meets {:?}", x.dtype(), y.dtype()).to_lowercase()),
    }
}

pub(in crate::interpret) fn select(shape: &[usize], c: &Tensor, x: &Tensor, y: &Tensor) -> Result<Data, String> {
    fn choose<T: Copy>(
        shape: &[usize],
        c: (&[bool], &[usize]),
        x: (&[T], &[usize]),
        y: (&[T], &[usize]),
    ) -> Result<Vec<T>, String> {
        let whole = |(v, own): (&[T], &[usize])| {
            let strides =
                broadcast_strides(own, shape).ok_or_else(|| format!("{own:?} does not broadcast to {shape:?}"))?;
            Ok::<_, String>(gather(v, shape, &strides, 0))
        };
        let pairs: Vec<(T, T)> = whole(x)?.into_iter().zip(whole(y)?).collect();
        zip(shape, c, (&pairs, shape), |c, (x, y)| if c { x } else { y })
    }
    let Data::Bool(conditions) = c.data() else { return Err("the condition is not bool".into()) };
    let c = (conditions.as_slice(), c.shape());
    match (x.data(), y.data()) {
        (Data::F64(a), Data::F64(b)) => choose(shape, c, (a, x.shape()), (b, y.shape())).map(Data::from),
        (Data::F32(a), Data::F32(b)) => choose(shape, c, (a, x.shape()), (b, y.shape())).map(Data::from),
        (Data::I32(a), Data::I32(b)) => choose(shape, c, (a, x.shape()), (b, y.shape())).map(Data::from),
        (Data::U32(a), Data::U32(b)) => choose(shape, c, (a, x.shape()), (b, y.shape())).map(Data::from),
        (Data::U8(a), Data::U8(b)) => choose(shape, c, (a, x.shape()), (b, y.shape())).map(Data::from),
        (Data::Bool(a), Data::Bool(b)) => choose(shape, c, (a, x.shape()), (b, y.shape())).map(Data::from),
        (_, _) => Err(format!("{:?} meets {:?}", x.dtype(), y.dtype()).to_lowercase()),
    }
}
