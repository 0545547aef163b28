"""Times mlx-lm on a checkpoint directory: prefill of P tokens, decode of D. Prints one JSON object.

Prefill ends with the first generated token; decode counts the D tokens after it. The prompt's ids are arbitrary (the same
in every peer): speed does not depend on them.
"""

import sys
import time
from itertools import islice
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model
from report import prompt, report


def timed(model, prompt, decode):
    start = time.perf_counter()
    tokens = generate_step(mx.array(prompt), model, max_tokens=decode + 1)
    decoded = [next(tokens)[0]]
    first, cpu = time.perf_counter(), time.process_time()
    decoded += [token for token, _ in islice(tokens, decode)]
    end = time.perf_counter()
    return first - start, end - first, time.process_time() - cpu, [int(token) for token in decoded]


directory, prefill, decode = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
model, _ = load_model(directory)
timed(model, prompt(4), 2)
report(prefill, decode, *timed(model, prompt(prefill), decode))
