//! MLX: each primitive is the function of [`ops`] that generated code calls. Everything happens on the caller's thread, where the
//! arrays are made and evaluated.

use mgraph_dsl::{
    bind::{StateId, WeightId},
    interpret::{self, Application, Domain, Matrix, Number, Operand, Primitive, Store, Walked},
    ir::{self, Binary, Compare, Program, Reduce, TwinBackend, Unary},
    load::Val,
};

use super::{
    GraphCall, Outcome, Settings, Work,
    around::{self, Around, Backend, exactly},
    twins,
    value::{Value, sizes},
};
use crate::{
    error::{Result, anyhow, bail},
    generated::Cut,
    mlx::{self, Array, kernels, ops},
    tensor::{DType, Tensor},
    weights::concrete,
};

pub(super) fn run(settings: &Settings, work: &Work<'_>) -> Result<Outcome> {
    let program: &Program = match work {
        Work::Op { program, .. } => program,
        Work::Graph(call) => call.program,
    };
    mlx::hold(&program.name, program.numerics.tf32)?;
    mlx::prepare()?;
    let call = if let Work::Graph(call) = work { Some(*call) } else { None };
    let mut domain = Mlx { float: settings.float, call, around: Around::new() };
    let results = around::walk(&mut domain, work, twins(settings, TwinBackend::Mlx))?;
    let results = results.iter().map(|value| mlx::download(&value.held)).collect::<Result<_>>()?;
    let probes = domain.around.probes.iter().map(|(name, value)| Ok((name.clone(), mlx::download(&value.held)?)));
    Ok(Outcome { results, probes: probes.collect::<Result<_>>()? })
}

struct Mlx<'c> {
    float: DType,
    call: Option<&'c GraphCall<'c>>,
    around: Around<Value<Array>>,
}

fn value(array: Array) -> Result<Value<Array>> {
    let (dtype, shape) = (ops::dtype(&array)?, ops::shape(&array));
    Ok(Value::new(array, dtype, &shape))
}

fn said<T>(result: Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{error:#}"))
}

impl Backend for Mlx<'_> {
    fn bring(&mut self, tensor: &Tensor) -> Result<Value<Array>> {
        value(mlx::upload(tensor)?)
    }

    fn around(&mut self) -> &mut Around<Value<Array>> {
        &mut self.around
    }
}

impl Domain for Mlx<'_> {
    type Tensor = Value<Array>;

    fn family_dtype(&self) -> ir::DType {
        around::family(self.float)
    }

    fn apply(&mut self, application: &Application<'_>, operands: &[&Value<Array>]) -> Result<Value<Array>, String> {
        let dtype = concrete(application.dtype, self.float);
        said(primitive(application.primitive, dtype, &sizes(application.shape), operands).and_then(value))
    }

    fn weight(&mut self, _: Walked<'_>, id: WeightId) -> Result<Store<Value<Array>>, String> {
        around::weight(self, self.call, id)
    }

    fn read(&mut self, id: StateId) -> Result<Value<Array>, String> {
        around::read(self, self.call, self.float, id)
    }

    fn write(&mut self, id: StateId, value: Value<Array>) -> Result<(), String> {
        self.around.states.insert(id, value);
        Ok(())
    }

    fn probe(&mut self, name: String, value: &Value<Array>) -> Result<Option<Value<Array>>, String> {
        around::probe(self, name, value)?;
        Ok(None)
    }

    fn kernel(
        &mut self,
        path: &str,
        arguments: &[Option<Operand<Value<Array>>>],
    ) -> Option<Result<Value<Array>, String>> {
        Some(said(kernel(path, arguments).and_then(value)))
    }
}

fn primitive(op: &Primitive, dtype: DType, shape: &[i64], operands: &[&Value<Array>]) -> Result<Array> {
    let one = || exactly(operands).map(|[x]| &x.held).map_err(|m| anyhow!(m));
    let two = || exactly(operands).map(|[x, y]| (&x.held, &y.held)).map_err(|m| anyhow!(m));
    let three = || exactly(operands).map(|[x, y, z]| (&x.held, &y.held, &z.held)).map_err(|m| anyhow!(m));
    match op {
        Primitive::Unary(op) => {
            let x = one()?;
            match op {
                Unary::Negate => ops::negate(x),
                Unary::Abs => ops::abs(x),
                Unary::Exp => ops::exp(x),
                Unary::Log => ops::log(x),
                Unary::Sqrt => ops::sqrt(x),
                Unary::Rsqrt => ops::rsqrt(x),
                Unary::Tanh => ops::tanh(x),
                Unary::Sin => ops::sin(x),
                Unary::Cos => ops::cos(x),
                Unary::Sigmoid => ops::sigmoid(x),
                Unary::Erf => ops::erf(x),
                Unary::Not => ops::not(x),
            }
        }
        Primitive::Binary(op) => {
            let (x, y) = two()?;
            match op {
                Binary::Add => ops::add(x, y),
                Binary::Subtract => ops::subtract(x, y),
                Binary::Multiply => ops::multiply(x, y),
                Binary::Divide => ops::divide(x, y),
                Binary::Remainder => ops::remainder(x, y),
                Binary::Min => ops::minimum(x, y),
                Binary::Max => ops::maximum(x, y),
                Binary::And => ops::and(x, y),
                Binary::Or => ops::or(x, y),
                Binary::ShiftLeft => ops::shift_left(x, y),
                Binary::ShiftRight => ops::shift_right(x, y),
            }
        }
        Primitive::Compare(op) => {
            let (x, y) = two()?;
            match op {
                Compare::Equal => ops::equal(x, y),
                Compare::NotEqual => ops::not_equal(x, y),
                Compare::Less => ops::less(x, y),
                Compare::LessEqual => ops::less_equal(x, y),
                Compare::Greater => ops::greater(x, y),
                Compare::GreaterEqual => ops::greater_equal(x, y),
            }
        }
        Primitive::Select => three().and_then(|(c, x, y)| ops::select(c, x, y)),
        Primitive::Convert => ops::convert(one()?, dtype),
        Primitive::Constant(Number::Float(number)) => ops::number(*number, dtype),
        Primitive::Constant(Number::Int(number)) => ops::integer(*number, dtype),
        Primitive::Constant(Number::Bool(truth)) => ops::integer(i64::from(*truth), dtype),
        Primitive::ConstantList(numbers) => match list(numbers) {
            Numbers::Floats(floats) => ops::numbers(&floats, dtype),
            Numbers::Ints(ints) => ops::integers(&ints, dtype),
        },
        Primitive::Iota => ops::iota(shape.iter().product()),
        Primitive::Reshape => ops::reshape(one()?, shape),
        Primitive::Transpose(permutation) => ops::transpose(one()?, permutation),
        Primitive::Broadcast => ops::broadcast(one()?, shape),
        Primitive::Concat { axis } => {
            let parts: Vec<&Array> = operands.iter().map(|part| &part.held).collect();
            ops::concat(&parts, *axis as i32)
        }
        Primitive::Slice(slots) => ops::cut(one()?, &cuts(slots)),
        Primitive::Reduce { op, axes } => {
            let (x, axes) = (one()?, signed(axes));
            match op {
                Reduce::Sum => ops::sum(x, &axes),
                Reduce::Maximum => ops::maximum_along(x, &axes),
                Reduce::Any => ops::any_along(x, &axes),
            }
        }
        Primitive::Dot => two().and_then(|(x, w)| ops::dot(x, w)),
        Primitive::Matmul => two().and_then(|(x, y)| ops::matmul(x, y)),
        Primitive::Take { axis } => two().and_then(|(x, ids)| ops::take(x, ids, *axis as i32)),
        Primitive::TakeAlong { axis } => two().and_then(|(x, ids)| ops::take_along(x, ids, *axis as i32)),
        Primitive::TopKValues(k) => ops::top_k_values(one()?, *k as i64),
        Primitive::TopKIndices(k) => ops::top_k_indices(one()?, *k as i64),
        Primitive::Update { axis } => {
            three().and_then(|(state, x, positions)| ops::update(state, x, positions, *axis as i32))
        }
    }
}

pub(super) enum Numbers {
    Floats(Vec<f64>),
    Ints(Vec<i64>),
}

/// As generated code writes them: whole numbers where all are.
pub(super) fn list(numbers: &[Number]) -> Numbers {
    let int = |number: &Number| match number {
        Number::Int(n) => Some(*n),
        Number::Bool(truth) => Some(i64::from(*truth)),
        Number::Float(_) => None,
    };
    if let Some(ints) = numbers.iter().map(int).collect() {
        return Numbers::Ints(ints);
    }
    let float = |number: &Number| match number {
        Number::Int(n) => *n as f64,
        Number::Bool(truth) => f64::from(u8::from(*truth)),
        Number::Float(x) => *x,
    };
    Numbers::Floats(numbers.iter().map(float).collect())
}

pub(super) fn cuts(slots: &[interpret::Cut]) -> Vec<Cut> {
    let cut = |cut: &interpret::Cut| match cut.keep {
        true => Cut::Range(cut.start as i64, cut.end as i64),
        false => Cut::At(cut.start as i64),
    };
    slots.iter().map(cut).collect()
}

pub(super) fn signed(axes: &[usize]) -> Vec<i32> {
    axes.iter().map(|axis| *axis as i32).collect()
}

/// The runtime's function for each row of [`mgraph_dsl::kernels`] that is MLX's.
fn kernel(path: &str, arguments: &[Option<Operand<Value<Array>>>]) -> Result<Array> {
    use Operand::{Load, Tensor};
    let wrong = || anyhow!("`{path}` is given other arguments than it takes");
    let tensor = |at: usize| match arguments.get(at) {
        Some(Some(Tensor(value))) => Ok(&value.held),
        Some(_) | None => Err(wrong()),
    };
    let may = |at: usize| match arguments.get(at) {
        Some(None) => Ok(None),
        Some(Some(_)) | None => tensor(at).map(Some),
    };
    let load = |at: usize| match arguments.get(at) {
        Some(Some(Load(value))) => Ok(value),
        Some(_) | None => Err(wrong()),
    };
    let float = |at: usize| load(at)?.as_float().ok_or_else(wrong);
    let matrix = |at: usize| match arguments.get(at) {
        Some(Some(Operand::Matrix(matrix))) => Ok(stored(matrix)),
        Some(_) | None => Err(wrong()),
    };
    match path {
        "softmax" => {
            let axis = load(1)?.as_int().ok_or_else(wrong)?;
            kernels::softmax(tensor(0)?, axis, *load(2)? == Val::Bool(true))
        }
        "fast::rms_norm" => kernels::rms_norm(tensor(0)?, tensor(1)?, float(2)?),
        "fast::layer_norm" => kernels::layer_norm(tensor(0)?, tensor(1)?, tensor(2)?, float(3)?),
        "fast::scaled_dot_product_attention" => {
            kernels::scaled_dot_product_attention(tensor(0)?, tensor(1)?, tensor(2)?, float(3)?, may(4)?, may(5)?)
        }
        "dequantize" => kernels::dequantize(&matrix(0)?),
        "quantized_matmul" => kernels::quantized_matmul(tensor(0)?, &matrix(1)?),
        "gather_qmm" => kernels::gather_qmm(tensor(0)?, &matrix(1)?, tensor(2)?),
        "gather_mm" => kernels::gather_mm(tensor(0)?, &matrix(1)?, tensor(2)?),
        _ => bail!("MLX has no kernel `{path}`"),
    }
}

fn stored(matrix: &Matrix<Value<Array>>) -> mlx::Matrix {
    match &matrix.store {
        Store::Dense(dense) => mlx::Matrix::Dense(dense.held.clone()),
        Store::Packed { codes, bytes: _, scales, biases, bits, group } => mlx::Matrix::Packed {
            codes: codes.held.clone(),
            scales: scales.held.clone(),
            biases: biases.held.clone(),
            bits: *bits as i32,
            group: *group as i32,
        },
    }
}
