//! What is known of every value of an op list at the positions before a window.

use std::collections::{BTreeMap, BTreeSet};

use super::Windows;
use crate::{
    interpret::{Number, Primitive},
    ir::{Binary, Compare, Reduce, Unary},
    trace::{Node, NodeId, Trace, What},
};

/// A score this low has no share in a softmax beside one that can be seen.
const LOW: f64 = -1e30;

/// One value. `q` is the position of its query, the first of the call is `s`, and `k` counts along `axis`.
#[derive(Debug, Clone)]
struct Value {
    /// The axis of positions, from the front.
    axis: Option<usize>,
    /// States that the element at `k` may depend on, of each only what it holds at `k`.
    of: BTreeSet<NodeId>,
    is: Is,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Anything,
    Number(f64),
    /// `k`
    Key,
    /// `q - n`
    Query(i64),
    /// False at `k <= s - window`, if there is one. `own`: true at `k = q`.
    Mask {
        window: Option<i64>,
        own: bool,
    },
    /// At `k <= s - window` it is so low that its exponential is zero beside what is there at `k = q`.
    Low {
        window: i64,
    },
    /// Zero at `k <= s - window`.
    Zero {
        window: i64,
    },
}

impl Value {
    fn plain(axis: Option<usize>) -> Value {
        Value { axis, of: BTreeSet::new(), is: Is::Anything }
    }
}

struct Flow<'a> {
    nodes: &'a [Node],
    values: Vec<Value>,
    /// By state, how far back a query may look; `None` for any distance.
    reads: BTreeMap<NodeId, Option<i64>>,
    /// The axis of positions was summed over, or became another, where no state tells in which block: then anything may be.
    unknown: bool,
}

/// The op lists differ in the number of positions alone. `within`: the ops that see values cut.
pub(super) fn windows(short: &Trace, long: &Trace, within: &BTreeSet<&str>) -> Option<Windows> {
    if short.nodes.len() != long.nodes.len() {
        return None;
    }
    let mut flow = Flow { nodes: &short.nodes, values: Vec::new(), reads: BTreeMap::new(), unknown: false };
    for (at, (node, other)) in short.nodes.iter().zip(&long.nodes).enumerate() {
        let mut axes =
            node.shape.iter().zip(&other.shape).enumerate().filter(|(_, (a, b))| a != b).map(|(axis, _)| axis);
        let axis = axes.next();
        let value = if axes.next().is_some() || node.operands != other.operands {
            flow.lose(node);
            Value::plain(None)
        } else if same(&node.what, &other.what) {
            if axis.is_some()
                && matches!(&node.what, What::Primitive(Primitive::Iota))
                && within.contains(&node.origin[..])
            {
                return None;
            }
            flow.value(NodeId(at), node, axis)
        } else {
            // A number that is made from the number of positions.
            return None;
        };
        flow.values.push(value);
    }
    for result in &short.results {
        flow.leaks(*result);
    }
    // What a call leaves in a state is what it was, updated; nothing else keeps what was read.
    for (path, node) in &short.writes {
        let own = match &flow.nodes[node.0] {
            Node { what: What::Primitive(Primitive::Update { .. }), operands, .. } => {
                matches!(&flow.nodes[operands[0].0].what, What::State(of) if of == path)
            }
            _ => false,
        };
        if !own {
            flow.leaks(*node);
        }
    }
    if flow.unknown {
        return None;
    }
    let found = flow.reads.iter().filter_map(|(state, window)| match (&short.nodes[state.0].what, window) {
        (What::State(path), Some(window)) => Some((path.clone(), u64::try_from(*window).ok()?)),
        _ => None,
    });
    Some(found.collect())
}

/// Sizes may differ, numbers may not.
fn same(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::Primitive(Primitive::Slice(_)), What::Primitive(Primitive::Slice(_))) => true,
        (a, b) => a == b,
    }
}

impl Flow<'_> {
    fn operand(&self, node: &Node, at: usize) -> Value {
        node.operands.get(at).map_or_else(|| Value::plain(None), |id| self.values[id.0].clone())
    }

    /// A query may look at these states over any distance, or over this one.
    fn read(&mut self, states: &BTreeSet<NodeId>, window: Option<i64>) {
        for state in states {
            let known = self.reads.entry(*state).or_insert(window);
            *known = match (*known, window) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (None, _) | (_, None) => None,
            };
        }
    }

    fn leaks(&mut self, node: NodeId) {
        let states = self.values[node.0].of.clone();
        self.read(&states, None);
    }

    /// Nothing is known of what becomes of the operands.
    fn lose(&mut self, node: &Node) {
        for at in 0..node.operands.len() {
            let value = self.operand(node, at);
            self.read(&value.of, None);
            self.unknown |= value.axis.is_some() && value.of.is_empty();
        }
    }

    /// The axis of positions of an operand is gone.
    fn over(&mut self, value: &Value, protected: Option<i64>) {
        match protected {
            Some(window) => self.read(&value.of, Some(window)),
            None => {
                self.read(&value.of, None);
                self.unknown |= value.of.is_empty();
            }
        }
    }

    fn value(&mut self, id: NodeId, node: &Node, axis: Option<usize>) -> Value {
        let primitive = match &node.what {
            What::Input(name) if name == "positions" => return Value { is: Is::Query(0), ..Value::plain(None) },
            What::Input(_) | What::Weight { .. } => return Value::plain(axis),
            What::State(_) => {
                let of = axis.map(|_| id).into_iter().collect();
                return Value { axis, of, is: Is::Anything };
            }
            // Only definitions are walked.
            What::Kernel { .. } => {
                self.lose(node);
                return Value::plain(None);
            }
            What::Primitive(primitive) => primitive,
        };
        let x = self.operand(node, 0);
        let lost = |flow: &mut Self| {
            flow.lose(node);
            Value::plain(axis)
        };
        match primitive {
            Primitive::Constant(number) => {
                let number = match number {
                    Number::Int(n) => *n as f64,
                    Number::Float(x) => *x,
                    Number::Bool(_) => return Value::plain(None),
                };
                Value { is: Is::Number(number), ..Value::plain(None) }
            }
            Primitive::ConstantList(_) => Value::plain(None),
            Primitive::Iota => {
                Value { axis, of: BTreeSet::new(), is: if axis.is_some() { Is::Key } else { Is::Anything } }
            }
            Primitive::Reshape | Primitive::Transpose(_) | Primitive::Broadcast | Primitive::Convert => {
                // `[T, 4]` as `[4, T]` has an axis of positions too, and other elements along it.
                let before = |shape: &[usize], axis: usize| shape[..axis].iter().product::<usize>();
                let moved = |from: usize, to: usize| {
                    matches!(primitive, Primitive::Reshape)
                        && before(&self.nodes[node.operands[0].0].shape, from) != before(&node.shape, to)
                };
                if x.axis.is_some_and(|from| axis.is_none_or(|to| moved(from, to))) {
                    return lost(self);
                }
                Value { axis, ..x }
            }
            Primitive::Slice(_) => match (x.axis, axis) {
                (Some(_), None) => lost(self),
                (Some(_), Some(_)) | (None, None) => Value { axis, is: Is::Anything, ..x },
                (None, Some(_)) => lost(self),
            },
            Primitive::Unary(op) => {
                let is = match (op, x.is) {
                    (Unary::Exp, Is::Low { window }) => Is::Zero { window },
                    _ => Is::Anything,
                };
                Value { is, ..x }
            }
            Primitive::Binary(op) => {
                let y = self.operand(node, 1);
                self.binary(*op, axis, x, y)
            }
            Primitive::Compare(op) => {
                let y = self.operand(node, 1);
                Value { axis, is: compared(*op, x.is, y.is), of: union(x.of, y.of) }
            }
            Primitive::Select => {
                let (yes, no) = (self.operand(node, 1), self.operand(node, 2));
                let is = match (x.is, no.is) {
                    (Is::Mask { window: Some(window), own: true }, Is::Number(low)) if low <= LOW => Is::Low { window },
                    (Is::Mask { window: Some(window), .. }, Is::Number(0.0)) => Is::Zero { window },
                    _ => Is::Anything,
                };
                Value { axis, is, of: union(x.of, union(yes.of, no.of)) }
            }
            Primitive::Reduce { op, axes } => {
                if x.axis.is_none_or(|axis| !axes.contains(&axis)) {
                    return Value { axis, is: Is::Anything, ..x };
                }
                let protected = match (op, x.is) {
                    (Reduce::Maximum, Is::Low { window }) | (Reduce::Sum, Is::Zero { window }) => Some(window),
                    (Reduce::Any, Is::Mask { window: Some(window), .. }) => Some(window),
                    _ => None,
                };
                self.over(&x, protected);
                Value::plain(None)
            }
            Primitive::Dot | Primitive::Matmul => {
                let y = self.operand(node, 1);
                let rank = |at: usize| self.nodes[node.operands[at].0].shape.len();
                let last = rank(0).saturating_sub(1);
                let other = match primitive {
                    Primitive::Dot => rank(1).saturating_sub(1),
                    _ => rank(1).saturating_sub(2),
                };
                let summed = x.axis == Some(last) || y.axis == Some(other);
                if !summed {
                    return Value { axis, is: Is::Anything, of: union(x.of, y.of) };
                }
                if x.axis != Some(last) || y.axis != Some(other) {
                    return lost(self);
                }
                let window = |value: &Value| match value.is {
                    Is::Zero { window } => Some(window),
                    _ => None,
                };
                let both = Value { of: union(x.of.clone(), y.of.clone()), ..Value::plain(None) };
                self.over(&both, window(&x).or(window(&y)));
                Value::plain(None)
            }
            Primitive::Update { .. } => {
                let (new, positions) = (self.operand(node, 1), self.operand(node, 2));
                if positions.is != Is::Query(0) || axis.is_none() {
                    return lost(self);
                }
                self.read(&new.of, None);
                x
            }
            Primitive::Concat { .. }
            | Primitive::Take { .. }
            | Primitive::TakeAlong { .. }
            | Primitive::TopKValues(_)
            | Primitive::TopKIndices(_) => {
                if (0..node.operands.len()).all(|at| self.operand(node, at).axis.is_none()) {
                    return Value::plain(axis);
                }
                lost(self)
            }
        }
    }

    fn binary(&mut self, op: Binary, axis: Option<usize>, x: Value, y: Value) -> Value {
        let is = match (op, x.is, y.is) {
            (Binary::Subtract, Is::Query(n), Is::Number(m)) if m.fract() == 0.0 => Is::Query(n + m as i64),
            (Binary::Add, Is::Query(n), Is::Number(m)) | (Binary::Add, Is::Number(m), Is::Query(n))
                if m.fract() == 0.0 =>
            {
                Is::Query(n - m as i64)
            }
            (Binary::And, Is::Mask { window: a, own: p }, Is::Mask { window: b, own: q }) => {
                let window = [a, b].into_iter().flatten().min();
                Is::Mask { window, own: p && q }
            }
            (Binary::Or, Is::Mask { window: Some(a), own: p }, Is::Mask { window: Some(b), own: q }) => {
                Is::Mask { window: Some(a.max(b)), own: p || q }
            }
            // What is subtracted is one number per query, and finite.
            (Binary::Subtract | Binary::Add, Is::Low { window }, _) if y.axis.is_none() => Is::Low { window },
            (Binary::Multiply, Is::Zero { window }, _) => Is::Zero { window },
            (Binary::Multiply, _, Is::Zero { window }) => Is::Zero { window },
            (Binary::Divide, Is::Zero { window }, _) if y.axis.is_none() => Is::Zero { window },
            (Binary::And, Is::Mask { window: Some(window), .. }, _)
            | (Binary::And, _, Is::Mask { window: Some(window), .. }) => Is::Mask { window: Some(window), own: false },
            _ => Is::Anything,
        };
        Value { axis, is, of: union(x.of, y.of) }
    }
}

fn union(mut a: BTreeSet<NodeId>, b: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    a.extend(b);
    a
}

fn compared(op: Compare, x: Is, y: Is) -> Is {
    // `k` on the left, `q - n` on the right.
    let (op, n) = match (x, y) {
        (Is::Key, Is::Query(n)) => (op, n),
        (Is::Query(n), Is::Key) => {
            let turned = match op {
                Compare::Less => Compare::Greater,
                Compare::LessEqual => Compare::GreaterEqual,
                Compare::Greater => Compare::Less,
                Compare::GreaterEqual => Compare::LessEqual,
                Compare::Equal | Compare::NotEqual => op,
            };
            (turned, n)
        }
        _ => return Is::Anything,
    };
    match op {
        Compare::Less => Is::Mask { window: None, own: n < 0 },
        Compare::LessEqual => Is::Mask { window: None, own: n <= 0 },
        // False at `k <= q - n`, and `q` is at least `s`.
        Compare::Greater => Is::Mask { window: Some(n), own: n > 0 },
        Compare::GreaterEqual => Is::Mask { window: Some(n + 1), own: n >= 0 },
        Compare::Equal => Is::Mask { window: Some(n + 1), own: n == 0 },
        Compare::NotEqual => Is::Mask { window: None, own: n != 0 },
    }
}
