//! Texts and checkpoints that are small and mean something huge: the front end answers at once, and never runs out of stack.

use std::{collections::BTreeMap, fmt::Write, thread, time::Duration, time::Instant};

use mgraph_dsl::{bind::bind, compile_text, config::resolve, print};

/// As tests and language servers have; a main thread has more.
const STACK: usize = 2 << 20;
/// Most take a few milliseconds. What is exponential takes for ever; a busy machine may stall for seconds.
const LIMIT: Duration = Duration::from_secs(30);

const CONFIG: &str =
    "vocab: dim = \"vocab\" hidden: dim = \"hidden\" flag: bool = \"flag\" else true b0: bool = \"b\" else true";

fn family(config: &str, items: &str, members: &str) -> String {
    format!(
        "family toy for \"toy\" config {{ {CONFIG} {config} }} {items}\nmodel {{ table: Embedding(vocab, hidden)\n{members}\n\
         graph embed(tokens: i32[B, S]) -> F[B, S, hidden] {{ table(tokens) }}\n\
         graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {{ table.logits(rows_at(x, wanted)) }} }}"
    )
}

/// `first`, then `n` times `step` with its own number for `@` and the one before for `#`.
fn chain(first: &str, step: &str, n: usize) -> String {
    let mut text = first.to_string();
    for i in 1..=n {
        let _ = write!(text, " {}", step.replace('@', &i.to_string()).replace('#', &(i - 1).to_string()));
    }
    text
}

fn cases() -> Vec<(&'static str, String)> {
    let hidden = "F[B, S, hidden]";
    vec![
        ("sums of floats double", family(&chain("let f0 = 1.5", "let f@ = f# + f#", 60), "", "")),
        ("sums of sizes double", family(&chain("let n0 = len([1])", "let n@ = n# % 7 + n# % 5", 60), "op a(x: F[n60]) -> F[n60] { x }", "")),
        ("powers double", family(&chain("let p0 = hidden", "let p@ = p# * p#", 60), "op a(x: F[p60]) -> F[p60] { x }", "")),
        ("powers of a free dim", family("", &format!("op a(x: F[N]) -> F[N] {{ {} x }}", chain("let p0 = N;", "let p@ = p# * p#;", 40)), "")),
        ("facts double", family(&chain("", "let b@ = b# & b#", 60), "op a(x: F[N]) -> F[N] { if b60 { x } else { -x } }", "    w: F[hidden] if b60\n")),
        ("or doubles", family(&chain("", "let b@ = !(b# | b#)", 60), "op a(x: F[N]) -> F[N] { if b60 { x } else { -x } }", "")),
        ("members double", family("", &format!("block M(i: int) {{ {} inner: RmsNorm(m60, 1e-6) w: F[m60] fn (x: F[N]) -> F[N] {{ x }} }}", chain("let m0 = i", "let m@ = m# + m#", 60)), "m: M(3)\nfn f(x: F[hidden]) -> F[hidden] { m.inner(x) }")),
        ("members of no polynomial double", family("", &format!("block M(i: int) {{ {} inner: RmsNorm(m60, 1e-6) fn (x: F[N]) -> F[N] {{ x }} }}", chain("let m0 = i", "let m@ = max(m#, m#)", 60)), "m: M(3)\nfn f(x: F[hidden]) -> F[hidden] { m.inner(x) }")),
        ("locals double", family("", &format!("op a(x: F[N], i: int) -> F[N] {{ {} x * m60 }}", chain("let m0 = i;", "let m@ = max(m#, m#);", 60)), "")),
        ("conditions of locals double", family("", &format!("op a(x: F[N], m0: bool) -> F[N] {{ {} if m60 {{ x }} else {{ -x }} }}", chain("", "let m@ = m# & m#;", 60)), "")),
        ("tuples double", family("", &format!("{}\nop a(x: T15) -> T15 {{ x }}", chain("type T0 = F[hidden]", "type T@ = (T#, T#, T#, T#)", 15)), "")),
        ("aliases in a row", family("", &chain("type T0 = F[hidden]", "type T@ = T#", 5000), "w: T5000")),
        ("ops double", family("", &chain("op o0(x: F[..]) -> F[..] { x @ \"p\" }", "op o@(x: F[..]) -> F[..] { o#(o#(x)) }", 60), &format!("fn f(x: {hidden}) -> {hidden} {{ o60(x) }}"))),
        ("called ops double", family("", &chain("op o0(x: F[..]) -> F[..] { x @ \"p\" }", "op o@(x: F[..]) -> F[..] { o#(o#(x)) }", 60), "").replace("{ table(tokens) }", "{ o60(table(tokens)) }")),
        ("called blocks double", family("", &chain(&format!("block L0 {{ norm: RmsNorm(hidden, 1e-6) fn (x: {hidden}) -> {hidden} {{ norm(x) }} }}"), &format!("block L@ {{ a: L# fn (x: {hidden}) -> {hidden} {{ a(a(x)) }} }}"), 60), "l: L60").replace("{ table(tokens) }", "{ l(table(tokens)) }")),
        ("blocks double", family("", &chain("block L0 { w: F[hidden] }", "block L@ { a: L# b: L# }", 60), "l: L60")),
        ("blocks with state double", family("", &chain("block L0 { state s: F[B, hidden] }", "block L@ { a: L# b: L# }", 60), "l: L60")),
        ("blocks in a row", family("", &chain("block L0 { w: F[hidden] }", "block L@ { a: L# }", 3000), "l: L3000")),
        ("ops in a row", family("", &chain("op o0(x: F[..]) -> F[..] { x }", "op o@(x: F[..]) -> F[..] { o#(x) }", 3000), "fn f(x: F[N]) -> F[N] { o3000(x) }").replace("{ table(tokens) }", "{ o3000(table(tokens)) }")),
        ("probed ops in a row", family("", &chain("op o0(x: F[..]) -> F[..] { x @ \"p\" }", "op o@(x: F[..]) -> F[..] { o#(x) }", 3000), "").replace("{ table(tokens) }", "{ o3000(table(tokens)) }")),
        ("load ops in a row", family("let n = l3000(1)", &chain("op l0(k: int) -> int { k }", "op l@(k: int) -> int { l#(k) }", 3000), "w: F[n]")),
        ("load ops double", family("let n = l60(1)", &chain("op l0(k: int) -> int { k }", "op l@(k: int) -> int { l#(k) + l#(k) }", 60), "")),
        ("lists double", family("let n = len(l40([1]))", &chain("op l0(k: [int]) -> [int] { k }", "op l@(k: [int]) -> [int] { [i for i in l#(k) for j in 0..2] }", 40), "")),
        ("lets in a row", family(&chain("let f0 = hidden % 2", "let f@ = f# + 1", 5000), "op a(x: F[f5000]) -> F[f5000] { x }", "")),
        ("bools in a row", family(&chain("", "let b@ = !b#", 5000), "op a(x: F[N]) -> F[N] { if b5000 { x } else { -x } }", "w: F[hidden] if b5000")),
        ("lists of indices", family("let l = [i + j for i in 0..100000 for j in 0..100000]", "", "")),
        ("a million million layers", family("", "block L { norm: RmsNorm(hidden, 1e-6) if hidden < 2 }", "layers: [L for i in 0..1000000000000]").replace("[L for", "[L() for")),
        ("holes of a probe", family("", &format!("op a(x: F[..], n: name) -> F[..] {{ x @ \"{}\" }}\nop b(x: F[..], n: name) -> F[..] {{ x @ \"{}z\" }}", "a{n}".repeat(40), "{n}a".repeat(40)), "").replace("{ table(tokens) }", "{ b(a(table(tokens), act), act) }").replace("flag:", "act: name = \"act\" else \"x\" flag:")),
        ("unknown characters on one line", "#a".repeat(60_000)),
        ("braces on one line", "{}".repeat(60_000)),
        ("items without end", "op a ".repeat(25_000)),
        ("unknown names", family("", &format!("op a(x: F[N]) -> F[N] {{ {} x }}", chain("", "let a@ = z@y;", 6000)), "")),
        ("weights", family("", "", &chain("", "w@: F[hidden]", 6000))),
        ("probes", family("", "", "").replace("{ table(tokens) }", &format!("{{ let x = table(tokens); {} x }}", chain("", "let x = x $ \"p{hidden}.@\";", 3000).replace('$', "@")))),
        ("equations", family(&chain("let n0 = hidden", "a@: dim = \"a\" require a@ == n0 * 2 + @", 500), "op a(x: F[a500]) -> F[a1] { x }", "")),
        ("sums in dims", family(&chain("", "a@: dim = \"a\" else 1", 40), &format!("op a(x: F[{s}]) -> F[{s}] {{ reshape(x, [({s}) * ({s}), 1]) }}", s = chain("a1", "+ a@", 40)), "")),
        ("nested ifs", family("", &format!("op a(x: F[N]) -> F[N] {{ let mut y = x; {} y }}", "if flag { y = y * 2.0; ".repeat(40) + &"}".repeat(40)), "")),
        ("loops in loops", family("", &format!("op a(x: F[N]) -> F[N] {{ let mut y = x; {} y }}", "for i in 0..2 { y = y * 2.0; ".repeat(40) + &"}".repeat(40)), "")),
        ("docs", format!("{}op a", "/// a\n".repeat(18_000))),
        ("escapes", format!("op a(x: F) -> F {{ x @ \"{}\" }}", "\\q".repeat(50_000))),
    ]
}

fn whole(text: &str) -> String {
    let program = match compile_text("bounded.mgraph", text) {
        Ok(program) => program,
        Err(failed) => {
            failed.to_string();
            return format!("{}: {}", failed.diagnostics[0].code, failed.diagnostics[0].message);
        }
    };
    print::program(&program);
    let config = serde_json::json!({ "vocab": 16, "hidden": 8, "depth": 1_000_000_000_000i64 });
    let resolved = match resolve(&program, &config, &[]) {
        Ok(resolved) => resolved,
        Err(faults) => return faults[0].display("config.json").to_string(),
    };
    let bound = bind(&program, &resolved, &BTreeMap::new(), &|_| None);
    bound.map_or_else(|faults| faults[0].to_string(), |_| "fine".into())
}

#[test]
fn small_texts_are_answered_at_once() {
    let only = std::env::var("ONLY").ok();
    let mut slow = Vec::new();
    for (name, text) in cases().into_iter().filter(|(name, _)| only.as_deref().is_none_or(|only| *name == only)) {
        eprint!("{name}");
        let start = Instant::now();
        let thread = thread::Builder::new().stack_size(STACK).spawn(move || whole(&text)).expect("a thread");
        let said = thread.join().expect("no panic");
        let time = start.elapsed();
        eprintln!(": {} ms; {said}", time.as_millis());
        if time > LIMIT {
            slow.push((name, time));
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}
