//! Lists of tensors on the interpreter: who fills them, in which order, and what can be done with them.

use mgraph_dsl::{
    compile_text,
    interpret::{Operand, Precision, Tensor, run_op},
    ir::DType,
    load::Val,
};

/// An op named `op`, on operands of f32: its results, or what the run says.
fn run(op: &str, operands: Vec<Operand<Tensor>>) -> Result<Vec<Vec<f32>>, String> {
    let text = format!(
        "family toy for \"toy\"\n\
         config {{ vocab: dim = \"vocab\"  hidden: dim = \"hidden\" }}\n\
         {op}\n\
         model {{\n\
             table: Embedding(vocab, hidden)\n\
             graph embed(tokens: i32[B, S]) -> F[B, S, hidden] {{ table(tokens) }}\n\
             graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {{\n\
                 table.logits(rows_at(x, wanted))\n\
             }}\n\
         }}\n"
    );
    let mut sources = mgraph_dsl::prelude_sources();
    let file = sources.add("toy.mgraph", text.as_str());
    let program = mgraph_dsl::compile_whole_prelude(sources, file).unwrap_or_else(|failed| panic!("{failed}"));
    assert!(compile_text("toy.mgraph", &text).is_ok());
    let results = run_op(&program, "op_", operands, DType::F32, Precision::Single, None);
    let results = results.map_err(|fault| fault.to_string())?;
    Ok(results.iter().map(Tensor::to_f32).collect())
}

fn tensor(elements: &[f32]) -> Operand<Tensor> {
    Operand::Tensor(Tensor::f32(vec![elements.len()], elements.to_vec()).expect("one axis"))
}

fn list(items: &[&[f32]]) -> Operand<Tensor> {
    let item = |elements: &&[f32]| Tensor::f32(vec![elements.len()], elements.to_vec()).expect("one axis");
    Operand::List(items.iter().map(item).collect())
}

fn ints(items: &[i64]) -> Operand<Tensor> {
    Operand::Load(Val::List(items.iter().copied().map(Val::Int).collect()))
}

/// A row: what it shows, the op, its operands, its results.
type Row<'a> = (&'a str, &'a str, Vec<Operand<Tensor>>, Vec<Vec<f32>>);

#[test]
fn lists_mean_what_the_text_says() {
    let x = || tensor(&[1.0, 2.0]);
    let xs = || list(&[&[1.0, 2.0], &[3.0, 4.0], &[5.0, 6.0]]);
    let rows: Vec<Row<'_>> = vec![
        (
            "a push after the assignment takes the new value",
            "op op_(x: F[N]) -> [F[N]; 2] { let mut x = x;  let mut s = [];  for i in 0..2 { x = x * 2.0;  s.push(x); }  s }",
            vec![x()],
            vec![vec![2.0, 4.0], vec![4.0, 8.0]],
        ),
        (
            "a push before it takes the old one",
            "op op_(x: F[N]) -> [F[N]; 2] { let mut x = x;  let mut s = [];  for i in 0..2 { s.push(x);  x = x * 2.0; }  s }",
            vec![x()],
            vec![vec![1.0, 2.0], vec![2.0, 4.0]],
        ),
        (
            "two lists grow in one loop",
            "op op_(x: F[N]) -> F[4 * N] { let mut a = [];  let mut b = [];  for i in 0..2 { a.push(x * i);  b.push(x + i); }
                concat([concat(b, axis = 0), concat(a, axis = 0)], axis = 0) }",
            vec![x()],
            vec![vec![1.0, 2.0, 2.0, 3.0, 0.0, 0.0, 1.0, 2.0]],
        ),
        (
            "a comprehension counts from 0 and takes items in the order of the list",
            "op op_(xs: [F[N]; K], at: [int; M]) -> F[M * N] { concat([xs[t] + n * 10.0 for n, t in at], axis = 0) }",
            vec![xs(), ints(&[2, 0, 2])],
            vec![vec![5.0, 6.0, 11.0, 12.0, 25.0, 26.0]],
        ),
        (
            "a range that does not begin at 0",
            "op op_(x: F[N]) -> [F[N]; 2] { [x * (i + n * 10) for n, i in 3..5] }",
            vec![x()],
            vec![vec![3.0, 6.0], vec![14.0, 28.0]],
        ),
        (
            "a loop over a list, its length as a number and as a dim",
            "op op_(xs: [F[N]; K]) -> F[N] { let mut y = xs[0] * 0.0;  for i, x in xs { y = y + x * i; }  y / (K + len(xs)) }",
            vec![xs()],
            vec![vec![13.0 / 6.0, 16.0 / 6.0]],
        ),
        (
            "a literal list as a value, and one that an `if` chooses",
            "op op_(x: F[N], n: int) -> F[N] { let s = if n > 2 { [x, x * 2.0] } else { [x * 3.0, x * 4.0] };  s[n % 2] }",
            vec![x(), Operand::Load(Val::Int(3))],
            vec![vec![2.0, 4.0]],
        ),
        (
            "items of a literal that is indexed by a literal need not be of one size",
            "op op_(x: F[N]) -> F[N] { let s = [x, x[0..1]];  s[0] + s[0] }",
            vec![x()],
            vec![vec![2.0, 4.0]],
        ),
        (
            "a list of loops inside a loop",
            "op op_(x: F[N]) -> F[4 * N] { let mut s = [];  for i in 0..2 { s.push(concat([x * (i * 2 + j) for j in 0..2], axis = 0)); }
                concat(s, axis = 0) }",
            vec![tensor(&[1.0])],
            vec![vec![0.0, 1.0, 2.0, 3.0]],
        ),
        (
            "along an inner axis items interleave",
            "op op_(xs: [F[N]; K]) -> F[K * N] { reshape(concat([reshape(x, [N, 1]) for x in xs], axis = 1), [K * N]) }",
            vec![xs()],
            vec![vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0]],
        ),
        (
            "a loop of no turns leaves an empty list",
            "op op_(x: F[N], n: int) -> F[N] { let s = [x for i in 0..n];  x * len(s) }",
            vec![x(), Operand::Load(Val::Int(0))],
            vec![vec![0.0, 0.0]],
        ),
    ];
    for (what, op, operands, expected) in rows {
        assert_eq!(run(op, operands), Ok(expected), "{what}");
    }
}

#[test]
fn a_default_is_computed_from_the_arguments_of_the_call() {
    for (op, expected) in [
        // `a` of the callee is 8, `a` of the caller is 1.
        (
            "op helped(x: F[N], a: int, b: int = a) -> F[N] { x * b }\n\
             op op_(x: F[N]) -> F[N] { let a = 1;  helped(x, a + 7) }",
            [8.0, 16.0],
        ),
        (
            "op helped(x: F[N], a: int, b: int = a + 1, c: int = a * b) -> F[N] { x * c }\n\
             op op_(x: F[N]) -> F[N] { helped(x, 2) + helped(x, 2, c = 100) }",
            [106.0, 212.0],
        ),
        (
            "op sum_of(a: int, b: int = [10, 20][a - 1] + a) -> int { a + b }\n\
             op op_(x: F[N]) -> F[N] { x * sum_of(2) }",
            [24.0, 48.0],
        ),
    ] {
        assert_eq!(run(op, vec![tensor(&[1.0, 2.0])]), Ok(vec![expected.to_vec()]), "{op}");
    }
}

#[test]
fn an_index_is_held_against_the_list() {
    let op = "op op_(xs: [F[N]; K], at: int) -> F[N] { xs[at] }";
    let two = || list(&[&[1.0], &[2.0]]);
    assert_eq!(run(op, vec![two(), Operand::Load(Val::Int(1))]), Ok(vec![vec![2.0]]));
    for (at, said) in [(2, "index 2"), (-1, "index -1")] {
        let fault = run(op, vec![two(), Operand::Load(Val::Int(at))]).expect_err("outside the list");
        assert!(fault.contains(said) && fault.contains("2"), "{fault}");
    }
}

#[test]
fn items_and_lengths_are_held_against_the_declaration() {
    let op = "op op_(xs: [F[N]; 2], y: F[N]) -> F[N] { xs[0] + y }";
    let fault = run(op, vec![list(&[&[1.0], &[2.0], &[3.0]]), tensor(&[1.0])]).expect_err("three items");
    assert!(fault.contains("a list of 3 where one of 2 is declared"), "{fault}");
    let fault = run(op, vec![list(&[&[1.0], &[2.0, 3.0]]), tensor(&[1.0])]).expect_err("another shape");
    assert!(fault.contains("f32[2] where f32[1] is declared"), "{fault}");
}
