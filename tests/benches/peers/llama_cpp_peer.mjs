// Times llama.cpp (node-llama-cpp, prebuilt, CPU) on a GGUF file: prefill of P tokens, decode of D. Prints one JSON object.
//
// Run by the bench with node. Prefill ends with the first generated token; decode counts the D tokens after it. The
// prompt's ids are arbitrary: speed does not depend on them.

import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { pathToFileURL } from "node:url";

const installed = new URL("../../../.toolchain/bench/js/package.json", import.meta.url);
const { getLlama } = await import(pathToFileURL(createRequire(installed).resolve("node-llama-cpp")));

const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        prefill: { type: "string", default: "256" },
        decode: { type: "string", default: "128" },
        repeats: { type: "string", default: "3" },
        threads: { type: "string", default: String(availableParallelism()) },
    },
});
const [prefill, decode, repeats, threads] = ["prefill", "decode", "repeats", "threads"].map((name) => Number(values[name]));

const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, logLevel: "error", maxThreads: 0 });
const model = await llama.loadModel({ modelPath: positionals[0] });
const context = await model.createContext({ contextSize: prefill + decode + 1, batchSize: prefill, threads });
const sequence = context.getSequence();

async function timed(prompt, count) {
    await sequence.clearHistory();
    const start = performance.now();
    const tokens = sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true });
    await tokens.next();
    const first = performance.now();
    let produced = 0;
    while (produced < count && !(await tokens.next()).done) produced += 1;
    const end = performance.now();
    await tokens.return();
    return [(1000 * prompt.length) / (first - start), (1000 * produced) / (end - first)];
}

const prompt = Array.from({ length: prefill }, (_, i) => 1000 + ((i * 37) % 30000));
await timed(prompt.slice(0, 4), 2);
const runs = [];
for (let i = 0; i < repeats; i += 1) runs.push(await timed(prompt, decode));
console.log(
    JSON.stringify({
        prefill_tok_s: Math.max(...runs.map(([rate]) => rate)),
        decode_tok_s: Math.max(...runs.map(([, rate]) => rate)),
        peak_rss_bytes: process.resourceUsage().maxRSS * 1024,
    }),
);
await llama.dispose();
