"""Times mlx-lm on a checkpoint directory: prefill of P tokens, decode of D. Prints one JSON object.

Run by the bench with the interpreter of .toolchain/bench/py. Prefill ends with the first generated token; decode counts
the D tokens after it. The prompt's ids are arbitrary: speed does not depend on them.
"""

import argparse
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prefill", type=int, default=256)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()

    model, _ = load_model(arguments.model)
    prompt = [1000 + i * 37 % 30000 for i in range(arguments.prefill)]
    timed(model, prompt[:4], 2)
    runs = [timed(model, prompt, arguments.decode) for _ in range(arguments.repeats)]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = {
        "prefill_tok_s": max(prefill for prefill, _ in runs),
        "decode_tok_s": max(decode for _, decode in runs),
        "peak_rss_bytes": rss if sys.platform == "darwin" else rss * 1024,
    }
    print(json.dumps(report))


main()
