"""Times transformers (PyTorch on CPU) on a checkpoint directory: prefill of P tokens, decode of D. Prints one JSON object.

`model.generate` would add the time of its own bookkeeping: this calls the model as generation does, with its cache.
"""

import sys
import time

import torch
from report import prompt, report
from transformers import AutoModelForCausalLM


@torch.inference_mode()
def timed(model, prompt, decode):
    start = time.perf_counter()
    out = model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
    decoded = [int(out.logits[0, -1].argmax())]
    first, cpu = time.perf_counter(), time.process_time()
    for _ in range(decode):
        out = model(torch.tensor([[decoded[-1]]]), cache=out.cache, use_cache=True)
        decoded.append(int(out.logits[0, -1].argmax()))
    end = time.perf_counter()
    return first - start, end - first, time.process_time() - cpu, decoded


directory, prefill, decode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
timed(model, prompt(prefill), 2)
report(prefill, decode, *timed(model, prompt(prefill), decode))
