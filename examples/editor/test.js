// Tokenizes .mgraph files with the engine of VS Code: `npm test`, or `node test.js FILE..` to see the scopes of a file.

const fs = require("fs");
const path = require("path");
const { loadWASM, OnigScanner, OnigString } = require("vscode-oniguruma");
const { INITIAL, Registry, parseRawGrammar } = require("vscode-textmate");

const grammarPath = path.join(__dirname, "mgraph.tmLanguage.json");

async function load() {
  const wasm = require.resolve("vscode-oniguruma/release/onig.wasm");
  await loadWASM(fs.readFileSync(wasm).buffer);
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (sources) => new OnigScanner(sources),
      createOnigString: (text) => new OnigString(text),
    }),
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(grammarPath, "utf8"), grammarPath),
  });
  return registry.loadGrammar("source.mgraph");
}

// Every token of a text with its innermost scope.
function tokens(grammar, text) {
  let state = INITIAL;
  return text.split(/\r?\n/).flatMap((line) => {
    const read = grammar.tokenizeLine(line, state);
    state = read.ruleStack;
    return read.tokens.map((token) => ({
      text: line.slice(token.startIndex, token.endIndex).trim(),
      scope: token.scopes[token.scopes.length - 1].replace(/\.mgraph$/, ""),
    }));
  });
}

// A line, and the scopes of some of its tokens.
const CASES = [
  ["family llama for \"llama\"", { family: "keyword.declaration", llama: "entity.name.section", for: "keyword.control" }],
  ["heads: dim = \"num_heads\" else 4", { heads: "variable.parameter", dim: "support.type", else: "keyword.control", 4: "constant.numeric" }],
  ["act: one_of(\"silu\") = \"hidden_act\"", { one_of: "support.type", silu: "string.quoted.double" }],
  ["op rms(x: F[.., N], eps: float) -> F[.., N] // note", { rms: "entity.name.function", F: "support.type", N: "constant.other.dim", "->": "keyword.operator", "// note": "comment.line.double-slash" }],
  ["fused mlx fast::rms_norm(x) within 4 ulp", { mlx: "entity.name.namespace", "fast::rms_norm": "entity.name.function", within: "keyword.control", ulp: "keyword.other.unit" }],
  ["block Layer(i: int) {", { Layer: "entity.name.type", i: "variable.parameter", int: "support.type" }],
  ["fn logits(x: Hidden) -> Hidden", { logits: "entity.name.function", Hidden: "entity.name.type" }],
  ["let y = sum(f32(x), axis = -1);", { let: "keyword.declaration", sum: "support.function", f32: "support.type", axis: "variable.parameter", 1: "constant.numeric" }],
  ["x @ \"layer.{i}.attn\"", { "@": "keyword.operator.probe", "layer.": "string.quoted.double", i: "variable.other", ".attn": "string.quoted.double" }],
  ["layers: [Layer(i) for i in 0..depth] as \"model.layers\"", { in: "keyword.control", "..": "keyword.operator", as: "keyword.declaration", depth: "variable.other" }],
  ["1e-5 0.5 1_000", { "1e-5": "constant.numeric", "0.5": "constant.numeric", "1_000": "constant.numeric" }],
  ["/* a /* b */ c */ true", { c: "comment.block", true: "constant.language" }],
  ["/// Doc.", { "/// Doc.": "comment.line.documentation" }],
  ["for layer in layers { x = layer(x); }", { x: "variable.parameter", layer: "variable.other" }],
];

function files(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const at = path.join(folder, entry.name);
    return entry.isDirectory() ? files(at) : at.endsWith(".mgraph") ? [at] : [];
  });
}

async function main() {
  const grammar = await load();
  if (process.argv.length > 2) {
    for (const file of process.argv.slice(2)) {
      for (const token of tokens(grammar, fs.readFileSync(file, "utf8"))) {
        if (token.text) console.log(`${token.scope.padEnd(32)} ${token.text}`);
      }
    }
    return;
  }
  const wrong = [];
  for (const [line, expected] of CASES) {
    const read = tokens(grammar, line);
    for (const [text, scope] of Object.entries(expected)) {
      const found = read.find((token) => token.text === text)?.scope;
      if (found !== scope) wrong.push(`${line}: ${text} is ${found}, not ${scope}`);
    }
  }
  // In real files every word has a scope, nothing is illegal, and no string or comment runs away.
  let words = 0;
  const repository = path.join(__dirname, "..", "..");
  for (const file of [...files(path.join(repository, "models", "families")), path.join(repository, "dsl", "src", "prelude.mgraph")]) {
    const text = fs.readFileSync(file, "utf8");
    for (const token of tokens(grammar, text)) {
      words += 1;
      const bare = /\w/.test(token.text) && token.scope === "source";
      if (bare || token.scope.startsWith("invalid")) wrong.push(`${file}: ${token.text} is ${token.scope}`);
    }
    const last = tokens(grammar, `${text}\nfn`).pop();
    if (last.scope !== "keyword.declaration") wrong.push(`${file}: its end is in ${last.scope}`);
  }
  console.log(wrong.length ? wrong.join("\n") : `${CASES.length} lines and ${words} tokens of real files are as expected`);
  process.exitCode = wrong.length ? 1 : 0;
}

main();
