// Times llama.cpp (node-llama-cpp, prebuilt, CPU) on a GGUF file: prefill of P tokens, decode of D. Prints one JSON object.
//
// Prefill ends with the first generated token; decode counts the D tokens after it. The prompt's ids are arbitrary (the
// same in every peer): speed does not depend on them.

import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { pathToFileURL } from "node:url";

const installed = new URL("../../../.toolchain/bench/js/package.json", import.meta.url);
const { getLlama } = await import(pathToFileURL(createRequire(installed).resolve("node-llama-cpp")));

const [modelPath, prefill, decode] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, logLevel: "error", maxThreads: 0 });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
    contextSize: prefill + decode + 1,
    batchSize: prefill,
    threads: availableParallelism(),
});
const sequence = context.getSequence();

async function timed(prompt, count) {
    await sequence.clearHistory();
    const start = performance.now();
    const tokens = sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true });
    const decoded = [(await tokens.next()).value];
    const [first, cpu] = [performance.now(), process.cpuUsage()];
    while (decoded.length <= count) {
        const { value, done } = await tokens.next();
        if (done) break;
        decoded.push(value);
    }
    const [end, { user, system }] = [performance.now(), process.cpuUsage(cpu)];
    const produced = decoded.length - 1;
    await tokens.return();
    return {
        prefill_tok_s: (1000 * prompt.length) / (first - start),
        decode_tok_s: (1000 * produced) / (end - first),
        decode_cpu_ms: (user + system) / 1000 / produced,
        tokens: decoded,
    };
}

const prompt = Array.from({ length: prefill }, (_, i) => 1000 + ((i * 37) % 7000));
await timed(prompt.slice(0, 4), 2);
const measured = await timed(prompt, decode);
console.log(JSON.stringify({ ...measured, peak_rss_bytes: process.resourceUsage().maxRSS * 1024 }));
await llama.dispose();
