"""What the peers in Python share: the prompt, and the JSON object that the bench reads."""

import json
import resource
import sys


def prompt(length):
    return [1000 + i * 37 % 7000 for i in range(length)]


def report(prefill, decode, prefill_s, decode_s, decode_cpu_s, tokens):
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measured = {
        "prefill_tok_s": prefill / prefill_s,
        "decode_tok_s": decode / decode_s,
        "peak_rss_bytes": rss if sys.platform == "darwin" else rss * 1024,
        "decode_cpu_ms": 1e3 * decode_cpu_s / decode,
        "tokens": tokens,
    }
    print(json.dumps(measured))
