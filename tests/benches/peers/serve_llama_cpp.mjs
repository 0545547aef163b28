// llama.cpp (node-llama-cpp, prebuilt, CPU) behind as much of OpenAI's interface as the load test uses: streamed chat
// completions. llama.cpp's own server is in no registry as a program; its batching is, and decodes all sequences in one call.
//
// serve_llama_cpp.mjs MODEL.gguf PORT SLOTS POSITIONS: one sequence of POSITIONS for each slot; who finds none waits in line.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { pathToFileURL } from "node:url";

const installed = new URL("../../../.toolchain/bench/js/package.json", import.meta.url);
const { getLlama } = await import(pathToFileURL(createRequire(installed).resolve("node-llama-cpp")));

const [modelPath, port, slots, positions] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, logLevel: "error", maxThreads: 0 });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
    sequences: slots,
    contextSize: positions,
    batchSize: 512,
    threads: availableParallelism(),
});
const idle = Array.from({ length: slots }, () => context.getSequence());
const waiting = [];

// The chat template of SmolLM2.
const SYSTEM = { role: "system", content: "You are a helpful AI assistant named SmolLM, trained by Hugging Face" };
function conversation(messages) {
    const all = messages[0].role === "system" ? messages : [SYSTEM, ...messages];
    const turns = all.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`);
    return model.tokenize(`${turns.join("")}<|im_start|>assistant\n`, true);
}

async function answer({ messages, max_tokens }, response) {
    const event = (value) => response.write(`data: ${JSON.stringify(value)}\n\n`);
    const prompt = conversation(messages);
    const sequence = idle.pop() ?? (await new Promise((resolve) => waiting.push(resolve)));
    try {
        // What the sequence holds of the prompt is kept; its last token is always computed.
        await sequence.adaptStateToTokens(prompt.slice(0, -1));
        const fed = prompt.slice(sequence.nextTokenIndex);
        const told = [];
        for await (const token of sequence.evaluate(fed, { temperature: 0, yieldEogToken: true })) {
            const content = model.detokenize([token], false, told.slice(-4));
            told.push(token);
            event({ choices: [{ index: 0, delta: { content } }] });
            if (told.length >= max_tokens || response.destroyed) break;
        }
        event({ choices: [], usage: { prompt_tokens: prompt.length, completion_tokens: told.length } });
        response.end("data: [DONE]\n\n");
    } finally {
        const next = waiting.shift();
        if (next) next(sequence);
        else idle.push(sequence);
    }
}

createServer(async (request, response) => {
    if (request.method === "GET") return response.end("ok");
    const parts = [];
    for await (const part of request) parts.push(part);
    response.setHeader("content-type", "text/event-stream");
    answer(JSON.parse(Buffer.concat(parts)), response).catch((error) => {
        console.error(error);
        response.destroy();
    });
}).listen(port, "127.0.0.1");
