"""Expands a packed checkpoint directory to f32, exactly: scales and biases become f32 before anything is multiplied."""

import json
import shutil
import sys
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.utils import dequantize_model, load_model, save_model

packed, dense = map(Path, sys.argv[1:])
partial = dense.with_name(dense.name + ".partial")
shutil.rmtree(partial, ignore_errors=True)

model, _ = load_model(packed)
model.update(tree_map(lambda x: x.astype(mx.float32) if mx.issubdtype(x.dtype, mx.floating) else x, model.parameters()))
save_model(partial, dequantize_model(model), donate_model=True)

config = json.loads((packed / "config.json").read_text())
config.pop("quantization", None)
config.pop("quantization_config", None)
config["torch_dtype"] = "float32"
(partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
for file in packed.iterdir():
    if file.name != "config.json" and ".safetensors" not in file.name:
        shutil.copy(file, partial)
partial.rename(dense)
