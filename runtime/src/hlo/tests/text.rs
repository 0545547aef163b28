//! The emitted text, read back.

use super::*;

/// One of each primitive.
fn everything(b: &mut Build) -> Vec<V> {
    let x = b.input(DType::F32, &[2, 3, 4]);
    let i = b.input(DType::I32, &[2, 3]);
    let w = b.input(DType::F32, &[5, 4]);
    let state = b.input(DType::F32, &[2, 8, 4]);
    let u = b.input(DType::U32, &[4]);
    let h = b.input(DType::BF16, &[2, 4]);
    let mut out = vec![b.negate(x), b.abs(x), b.exponential(x), b.log(x), b.sqrt(x), b.rsqrt(x), b.tanh(x)];
    out.extend([b.sine(x), b.cosine(x), b.logistic(x), b.erf(x), b.sine(h)]);
    let half = b.number(0.5, DType::F32);
    let list = b.numbers(&[0.1, 0.2, f64::INFINITY, -0.0], DType::F32);
    out.extend([b.add(x, half), b.subtract(x, list), b.multiply(x, x), b.divide(x, half)]);
    out.extend([b.minimum(x, half), b.maximum(x, list), b.remainder(i, i)]);
    let (two, three) = (b.integer(2, DType::U32), b.integer(3, DType::U32));
    out.extend([b.shift_left(u, two), b.shift_right(u, two), b.and(u, three), b.or(u, three), b.not(u)]);
    let visible = b.compare(Compare::LessEqual, x, half);
    out.extend([b.select(visible, x, half), b.any_along(visible, &[-1]), b.convert(i, DType::F32)]);
    out.extend([b.sum(x, &[0, 2]), b.maximum_along(x, &[-1]), b.iota(7)]);
    out.extend([b.reshape(x, &[6, 4]), b.transpose(x, &[2, 0, 1]), b.broadcast(half, &[2, 2])]);
    let cut = b.slice(x, &[(0, 2), (1, 2), (0, 4)]);
    out.extend([b.concat(&[x, cut], 1), b.dot(x, w)]);
    let turned = b.transpose(x, &[0, 2, 1]);
    out.extend([b.matmul(x, turned), b.dot(h, h)]);
    let wanted = b.slice(i, &[(0, 2), (0, 1)]);
    let wanted = b.reshape(wanted, &[2, 1, 1]);
    out.extend([b.take(w, i, 0), b.take_along(x, wanted, 1), b.top_k_values(x, 2), b.top_k_indices(x, 2)]);
    out.push(b.update(state, x, i, 1));
    out
}

fn read_back(body: impl FnOnce(&mut Build) -> Vec<V>) -> Read {
    let mut build = Build::new(options());
    let outputs = body(&mut build);
    let graph = build.finish(&outputs).unwrap();
    read(&emit::text(&graph).unwrap()).unwrap()
}

#[test]
fn the_text_says_every_primitive() {
    let read = read_back(everything);
    let names: Vec<&str> = read.ops.iter().map(|op| op.name).collect();
    let expected = "negate abs exp log sqrt rsqrt tanh sin cos sigmoid erf sin constant constant_list add subtract multiply \
                    divide min max remainder constant constant shift_left shift_right and or not less_equal select any \
                    convert sum maximum iota reshape transpose slice concat dot transpose matmul dot slice reshape take \
                    take_along top_k_values top_k_indices update";
    assert_eq!(names.join(" "), expected);
    let find = |name: &str| read.ops.iter().find(|op| op.name == name).unwrap();
    assert_eq!(find("sum").numbers, [0.0, 2.0]);
    assert_eq!(find("sum").ty, Type::new(DType::F32, &[1, 3, 1]));
    assert_eq!(find("slice").numbers, [0.0, 2.0, 1.0, 2.0, 0.0, 4.0]);
    assert_eq!(find("constant").numbers, [0.5]);
    let tenth = f64::from(0.1f32);
    assert_eq!(find("constant_list").numbers, [tenth, f64::from(0.2f32), f64::INFINITY, -0.0]);
    assert_eq!(find("take_along").operands[0], Operand::Argument(0));
    let update = find("update");
    assert_eq!(update.operands, [3, 0, 1].map(Operand::Argument));
    assert_eq!((update.numbers.as_slice(), &update.ty.shape[..]), (&[1.0][..], &[2, 8, 4][..]));
    assert_eq!(
        read.ops.iter().filter(|op| op.name == "dot").map(|op| op.ty.dtype).collect::<Vec<_>>(),
        [DType::F32, DType::BF16]
    );
}

/// The pair of the design page: `x * sigmoid(x)` and its quotient form.
#[test]
fn the_quotient_form_reads_differently() {
    let product = read_back(|b| {
        let x = b.input(DType::F32, &[4]);
        let gate = b.logistic(x);
        vec![b.multiply(x, gate)]
    });
    let quotient = read_back(|b| {
        let x = b.input(DType::F32, &[4]);
        let one = b.number(1.0, DType::F32);
        let negative = b.negate(x);
        let e = b.exponential(negative);
        let below = b.add(one, e);
        vec![b.divide(x, below)]
    });
    assert_eq!(product.ops.iter().map(|o| o.name).collect::<Vec<_>>(), ["sigmoid", "multiply"]);
    assert_ne!(product, quotient);
}

/// A group that is almost one of the emitter's is refused, not guessed at.
#[test]
fn altered_groups_are_refused() {
    let mut build = Build::new(options());
    let outputs = everything(&mut build);
    let text = emit::text(&build.finish(&outputs).unwrap()).unwrap();
    assert!(read(&text).is_ok());
    for (from, to) in [
        ("comparison_direction LT", "comparison_direction LE"),
        ("0xFF800000", "0x00000000"),
        ("limit_indices = array<i64: 2, 1>", "limit_indices = array<i64: 1, 1>"),
        ("6.2831853071795862", "6.2831853071795"),
        ("stablehlo.round_nearest_even", "stablehlo.floor"),
        ("collapsed_slice_dims = [1]", "collapsed_slice_dims = [2]"),
        ("lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [1]"),
        ("dense<-0.000000e+00> : tensor<2x3x4xf32>", "dense<1.0> : tensor<2x3x4xf32>"),
        ("mantissa_bits = 7", "mantissa_bits = 8"),
    ] {
        let altered = text.replacen(from, to, 1);
        assert_ne!(altered, text, "{from} is in the text");
        let same = read(&altered).is_ok_and(|r| r == read(&text).unwrap());
        assert!(!same, "{from} -> {to}");
    }
}

/// What keeps roundings apart is no op: both modes read as the same.
#[test]
fn guards_are_no_ops() {
    let texts = [false, true].map(|fused| {
        let mut build = Build::new(BuildOptions { fused, ..options() });
        let mut outputs = everything(&mut build);
        let h = build.input(DType::BF16, &[2, 4]);
        let root = build.sqrt(h);
        let product = build.multiply(root, h);
        outputs.push(build.add(product, h));
        emit::text(&build.finish(&outputs).unwrap()).unwrap()
    });
    let guards = ["math.fma", "arith.extf", "arith.truncf", "stablehlo.reduce_precision"];
    assert_eq!(texts.each_ref().map(|text| guards.map(|guard| text.contains(guard))), [[true; 4], [false; 4]]);
    let [pinned, fused] = texts.each_ref().map(|text| read(text).unwrap());
    assert_eq!(pinned, fused);

    let bare = [
        ("arith.truncf", "stablehlo.convert"),
        ("arith.extf", "stablehlo.convert"),
        ("math.fma", "stablehlo.multiply"),
    ];
    for (from, to) in bare {
        assert!(read(&texts[0].replacen(from, to, 1)).is_err(), "{from} -> {to}");
    }
}

/// Nor is what keeps the compiler from fusing: a large attention has its two barriers, and reads as its ops.
#[test]
fn barriers_are_no_ops() {
    let attention = |size: i64| {
        let mut b = Build::new(options());
        let [q, k, v] = [0; 3].map(|_| b.input(DType::F32, &[2, size, 512]));
        let kt = b.transpose(k, &[1, 0]);
        let scores = b.matmul(q, kt);
        let e = b.exponential(scores);
        let sum = b.sum(e, &[-1]);
        let p = b.divide(e, sum);
        let seen = b.matmul(p, v);
        let merged = b.transpose(seen, &[1, 0, 2]);
        emit::text(&b.finish(&[merged]).unwrap()).unwrap()
    };
    let names = |text: &str| read(text).unwrap().ops.iter().map(|op| op.name).collect::<Vec<_>>();
    let [small, large] = [attention(64), attention(512)];
    let barriers = |text: &str| text.matches(emit::BARRIER).count();
    assert_eq!([barriers(&small), barriers(&large)], [0, 2]);
    assert_eq!(names(&small), names(&large));
    let at = large.find(emit::BARRIER).unwrap();
    let (before, after) = large.split_at(at);
    let twisted = after.replacen("-> tensor<2x512x512xf32>", "-> tensor<512x2x512xf32>", 1);
    assert!(twisted != after && read(&[before, &twisted].concat()).is_err(), "a barrier is no reshape");
}
