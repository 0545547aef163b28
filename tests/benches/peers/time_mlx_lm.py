"""Times mlx-lm on a checkpoint directory: prefill of P tokens, decode of D. Prints one JSON object.

Prefill ends with the first generated token; decode counts the D tokens after it. The prompt's ids are arbitrary (the same
in every peer): speed does not depend on them.
"""

import json
import resource
import sys
import time
from itertools import islice
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model


def timed(model, prompt, decode):
    start = time.perf_counter()
    tokens = generate_step(mx.array(prompt), model, max_tokens=decode + 1)
    next(tokens)
    first = time.perf_counter()
    produced = sum(1 for _ in islice(tokens, decode))
    end = time.perf_counter()
    return len(prompt) / (first - start), produced / (end - first)


directory, prefill, decode = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
model, _ = load_model(directory)
prompt = [1000 + i * 37 % 20000 for i in range(prefill)]
timed(model, prompt[:4], 2)
prefill_rate, decode_rate = timed(model, prompt, decode)
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = {
    "prefill_tok_s": prefill_rate,
    "decode_tok_s": decode_rate,
    "peak_rss_bytes": rss if sys.platform == "darwin" else rss * 1024,
}
print(json.dumps(report))
