"""Times keras-hub on JAX (XLA on CPU) on a checkpoint directory: prefill of P tokens, decode of D. Prints one JSON object.

Both calls are compiled before they are timed, and the cache is donated, so that a step writes into it instead of copying it.
"""

import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
from keras import StatelessScope
from keras_hub.models import Qwen3Backbone, Qwen3CausalLM
from report import prompt, report

directory, prefill, decode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
backbone = Qwen3Backbone.from_preset(directory, dtype="float32")
model = Qwen3CausalLM(backbone=backbone, preprocessor=None)
variables = model.variables
capacity = prefill + decode
values = [variable.value for variable in variables]


def step(values, tokens, cache, at):
    with StatelessScope(state_mapping=list(zip(variables, values))):
        logits, _, cache = model.call_with_cache(tokens, cache, at)
    return jnp.argmax(logits[0, -1]), cache


step = jax.jit(step, donate_argnums=2)


def timed(prompt, decode):
    shape = (1, backbone.num_layers, 2, capacity, backbone.num_key_value_heads, backbone.head_dim)
    cache = jnp.zeros(shape, "float32")
    start = time.perf_counter()
    token, cache = step(values, jnp.array([prompt]), cache, jnp.int32(0))
    decoded = [int(token)]
    first, cpu = time.perf_counter(), time.process_time()
    for at in range(len(prompt), len(prompt) + decode):
        token, cache = step(values, jnp.array([[decoded[-1]]]), cache, jnp.int32(at))
        decoded.append(int(token))
    end = time.perf_counter()
    return first - start, end - first, time.process_time() - cpu, decoded


timed(prompt(prefill), 2)
report(prefill, decode, *timed(prompt(prefill), decode))
