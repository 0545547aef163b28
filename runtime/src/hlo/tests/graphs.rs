//! Arguments, states and probes of a graph; what is shared, dropped and refused.

use super::*;
use crate::generated::Cut;

/// A packed matrix beside its expansion, by the prelude's own formula.
#[test]
fn packed_matrices() {
    let (n, k, bits, group) = (5, 64, 4, 32);
    let ty = WeightType::Packed { shape: vec![n, k], bits, group, scales: DType::F16 };
    let mut build = Build::new(BuildOptions { weights: weights(&[("w", ty)]), ..options() });
    let x = build.input(DType::F32, &[2, k]);
    let w = build.matrix("w");
    assert!(w.packed() && w.bits() == 4 && w.group() == 32 && w.shape() == [5, 64]);
    let lanes = build.integers(&[0, 4, 8, 12, 16, 20, 24, 28], DType::U32);
    let codes = build.codes(&w);
    let words = build.reshape(codes, &[n, 2, 4, 1]);
    let shifted = build.shift_right(words, lanes);
    let ones = build.integer(15, DType::U32);
    let code = build.and(shifted, ones);
    let code = build.convert(code, DType::F32);
    let (scales, biases) = (build.scales(&w), build.biases(&w));
    let (scales, biases) = (build.reshape(scales, &[n, 2, 1, 1]), build.reshape(biases, &[n, 2, 1, 1]));
    let scaled = build.multiply(code, scales);
    let dense = build.add(scaled, biases);
    let dense = build.reshape(dense, &[n, k]);
    let y = build.dot(x, dense);
    let ids = build.integers(&[4, 0], DType::I32);
    let rows = build.rows(&w, ids);
    assert_eq!(rows.shape(), [2, 64]);
    let row_codes = build.codes(&rows);
    let graph = build.finish(&[y, row_codes]).unwrap();
    let kinds: Vec<&ArgumentKind> = graph.arguments.iter().map(|a| &a.kind).collect();
    let part = |part| ArgumentKind::Packed("w".into(), part);
    assert_eq!(kinds, [&ArgumentKind::Input(0), &part(Part::Codes), &part(Part::Scales), &part(Part::Biases)]);

    let code = |i: usize| (i * 7 + i / 5) % 16;
    let words = (0..5 * 8).map(|w| (0..8).map(|lane| (code(w * 8 + lane) as u32) << (4 * lane)).sum::<u32>());
    let codes = t(DType::U32, &[5, 8], &words.map(f64::from).collect::<Vec<_>>());
    let (scales, biases) = (noise(&[5, 2], 1).to_float(DType::F16), noise(&[5, 2], 2).to_float(DType::F16));
    let x = noise(&[2, 64], 3);
    let expanded: Vec<f64> =
        (0..5 * 64).map(|i| code(i) as f64 * scales.to_f64()[i / 32] + biases.to_f64()[i / 32]).collect();
    let runtime = Runtime::new().unwrap();
    let program = load(&runtime, &graph);
    let arguments = [&x, &codes, &scales, &biases].map(|t| runtime.upload(t).unwrap()).to_vec();
    let results = program.call(arguments).unwrap();
    close(&runtime.download(&results[0]).unwrap(), &product(&x, &swapped(&f(&[5, 64], &expanded))), 1e-4);
    let first: Vec<f64> = codes.to_f64()[32..].iter().chain(&codes.to_f64()[..8]).copied().collect();
    same(&runtime.download(&results[1]).unwrap(), &t(DType::U32, &[2, 8], &first));
}

/// Calls that take a state over and hand it back; a read before and one after the write; a probe of the new value.
#[test]
fn states_pass_from_call_to_call() {
    let states = Arc::new(BTreeMap::from([("cache.k".to_owned(), Type::new(DType::F32, &[2, 4, 2]))]));
    let mut build = Build::new(BuildOptions { states, probes: Probes::Reported, ..options() });
    let x = build.input(DType::F32, &[2, 1, 2]);
    let positions = build.input(DType::I32, &[2, 1]);
    let old = build.state("cache.k");
    let before = build.sum(old, &[1, 2]);
    let new = build.update(old, x, positions, 1);
    build.set_state("cache.k", new);
    let read = build.state("cache.k");
    let after = build.sum(read, &[1, 2]);
    build.probe("whole", read);
    let graph = build.finish(&[before, after]).unwrap();
    assert_eq!((graph.alias(0), graph.alias(1), graph.alias(2)), (None, None, Some(2)));
    let names: Vec<&ResultKind> = graph.results.iter().map(|r| &r.kind).collect();
    let (state, probe) = (ResultKind::State("cache.k".into()), ResultKind::Probe("whole".into()));
    assert_eq!(names, [&ResultKind::Output(0), &ResultKind::Output(1), &state, &probe]);

    let runtime = Runtime::new().unwrap();
    let program = load(&runtime, &graph);
    let mut state = runtime.zeros(&graph.arguments[2].ty).unwrap();
    let mut whole = [0.0; 16];
    for step in 0..4 {
        let v = f64::from(step) + 1.0;
        let x = f(&[2, 1, 2], &[v, -v, 10.0 * v, v]);
        let at = t(DType::I32, &[2, 1], &[f64::from(step), 3.0 - f64::from(step)]);
        let arguments = vec![runtime.upload(&x).unwrap(), runtime.upload(&at).unwrap(), state];
        let results = program.call(arguments).unwrap();
        let sums = |whole: &[f64; 16]| f(&[2, 1, 1], &[whole[..8].iter().sum(), whole[8..].iter().sum()]);
        same(&runtime.download(&results[0]).unwrap(), &sums(&whole));
        let (first, second) = (step as usize * 2, 8 + (3 - step as usize) * 2);
        whole[first..first + 2].copy_from_slice(&[v, -v]);
        whole[second..second + 2].copy_from_slice(&[10.0 * v, v]);
        same(&runtime.download(&results[1]).unwrap(), &sums(&whole));
        same(&runtime.download(&results[3]).unwrap(), &f(&[2, 4, 2], &whole));
        state = results[2].clone();
    }
    same(&runtime.download(&state).unwrap(), &f(&[2, 4, 2], &whole));
}

/// A state is written where it lies, while it is read elsewhere: positions that move down, by index and as a piece. Large enough for
/// several threads to share it, of which one would read what another has written.
#[test]
fn a_state_moves_within_its_memory() {
    const SIZE: i64 = 832;
    let ty = Type::new(DType::F32, &[1, 2, SIZE, 64]);
    let by_index = |build: &mut Build, state: V, by: V| {
        let places = build.iota(SIZE);
        let places = build.add(places, by);
        build.take(state, places, 2)
    };
    let as_piece = |build: &mut Build, state: V, _: V| {
        let later = build.cut(state, &[Cut::Whole, Cut::Whole, Cut::Range(64, SIZE), Cut::Whole]);
        let first = build.cut(state, &[Cut::Whole, Cut::Whole, Cut::Range(0, 64), Cut::Whole]);
        build.concat(&[later, first], 2)
    };
    let runtime = Runtime::new().unwrap();
    for moved in [&by_index as &dyn Fn(&mut Build, V, V) -> V, &as_piece] {
        let states = Arc::new(BTreeMap::from([("cache.k".to_owned(), ty.clone())]));
        let mut build = Build::new(BuildOptions { states, ..options() });
        let by = build.input(DType::I32, &[1]);
        let state = build.state("cache.k");
        let moved = moved(&mut build, state, by);
        build.set_state("cache.k", moved);
        let program = load(&runtime, &build.finish(&[]).unwrap());
        let numbers = noise(&ty.sizes(), 5).to_f64();
        let expected: Vec<f64> = (0..numbers.len())
            .map(|i| {
                let (head, place, lane) = (i / 64 / SIZE as usize, i / 64 % SIZE as usize, i % 64);
                let from = place + 64;
                numbers[(head * SIZE as usize + from % SIZE as usize) * 64 + lane]
            })
            .collect();
        for _ in 0..10 {
            let state = runtime.upload(&f(&ty.sizes(), &numbers)).unwrap();
            let by = runtime.upload(&t(DType::I32, &[1], &[64.0])).unwrap();
            program.call(vec![by, state.clone()]).unwrap();
            let found = runtime.download(&state).unwrap().to_f64();
            let kept = (0..numbers.len()).filter(|i| (i / 64 % SIZE as usize) < SIZE as usize - 64);
            let wrong = kept.filter(|i| found[*i] != expected[*i]).count();
            assert_eq!(wrong, 0, "of {} numbers", numbers.len());
        }
    }
}

/// What a call goes on from at a probe is an argument; the probe reports what was computed.
#[test]
fn an_isolated_probe_gives_an_argument() {
    let stages = Stages::new([("a".to_owned(), Ok(f(&[2], &[5.0, 7.0])))]);
    let mut build = Build::new(BuildOptions { probes: Probes::Isolated(stages.into()), ..options() });
    let x = build.input(DType::F32, &[2]);
    let doubled = build.add(x, x);
    let a = build.probe("a", doubled);
    let sum = build.add(a, x);
    let b = build.probe("b", sum);
    assert_eq!(b, sum, "no value stands for it");
    let graph = build.finish(&[b]).unwrap();
    let kinds: Vec<_> = graph.arguments.iter().map(|a| &a.kind).collect();
    assert_eq!(kinds, [&ArgumentKind::Input(0), &ArgumentKind::Probe("a".into())]);
    let results: Vec<_> = graph.results.iter().map(|r| &r.kind).collect();
    assert_eq!(results, [&ResultKind::Output(0), &ResultKind::Probe("a".into()), &ResultKind::Probe("b".into())]);
    let runtime = Runtime::new().unwrap();
    let arguments = [f(&[2], &[1.0, 2.0]), f(&[2], &[5.0, 7.0])].map(|t| runtime.upload(&t).unwrap()).to_vec();
    let found = load(&runtime, &graph).call(arguments).unwrap();
    for (found, expected) in found.iter().zip([[6.0, 9.0], [2.0, 4.0], [6.0, 9.0]]) {
        same(&runtime.download(found).unwrap(), &f(&[2], &expected));
    }
}

#[test]
fn the_first_impossible_type_is_reported() {
    let mut build = Build::new(options());
    let x = build.input(DType::F32, &[2, 3]);
    let y = build.input(DType::F32, &[4]);
    let sum = build.add(x, y);
    let cut = build.slice(sum, &[(0, 9)]);
    let message = build.finish(&[cut]).unwrap_err().to_string();
    assert!(message.ends_with("stablehlo.add: f32[2, 3] and f32[4] do not broadcast"), "{message}");

    let mut build = Build::new(BuildOptions { probes: Probes::Reported, ..options() });
    let x = build.input(DType::F32, &[2]);
    build.probe("a", x);
    build.probe("a", x);
    assert!(build.finish(&[x]).unwrap_err().to_string().contains("probe a occurs twice"));

    for fault in [
        (|b: &mut Build| b.weight("no.such")) as fn(&mut Build) -> V,
        |b| b.state("no.such"),
        |b| b.integer(-1, DType::U32),
        |b| {
            let x = b.number(1.0, DType::BF16);
            b.sum(x, &[])
        },
        |b| {
            let (x, y) = (b.number(1.0, DType::F32), b.number(1.0, DType::F64));
            b.multiply(x, y)
        },
    ] {
        let mut build = Build::new(options());
        let v = fault(&mut build);
        assert!(build.finish(&[v]).is_err());
    }
}

/// Equal ops on equal operands are one; what nobody reads is none; a parameter stays.
#[test]
fn sharing_and_dropping() {
    let mut build = Build::new(options());
    let x = build.input(DType::F32, &[2]);
    let unread = build.input(DType::F32, &[3]);
    let (a, b) = (build.exponential(x), build.exponential(x));
    assert_eq!(a, b);
    build.negate(unread);
    let y = build.add(a, b);
    let graph = build.finish(&[y]).unwrap();
    assert_eq!((graph.arguments.len(), graph.nodes.len()), (2, 4));
}
