"""Makes the files of this folder: a tiny seeded SmolLM3 checkpoint and what transformers computes on it.

    pip install torch==2.10.0 transformers==5.23.0 safetensors && python make.py
"""
import json, sys
from pathlib import Path
import torch, transformers
from safetensors.torch import save_file
from transformers import SmolLM3Config, SmolLM3ForCausalLM

HERE = Path(__file__).parent
SEED, LENGTH, SHORT, STEPS = 303, 13, 7, 8
# Keys of the released config.json. The pattern is not the default one, so that a reader that ignores it is caught.
CONFIG = {
    "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0, "hidden_act": "silu", "hidden_size": 48,
    "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": 256, "max_window_layers": 28,
    "mlp_bias": False, "no_rope_layer_interval": 3, "no_rope_layers": [1, 1, 0, 1], "num_attention_heads": 6,
    "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0,
    "sliding_window": None, "use_sliding_window": False, "torch_dtype": "float32", "use_cache": True, "vocab_size": 101,
}


def build(changes={}, wide=False):
    torch.manual_seed(SEED)
    config = {**CONFIG, **changes}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    model = SmolLM3ForCausalLM(SmolLM3Config(**config, attn_implementation="eager")).eval()
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if name.endswith("norm.weight"):
                p.copy_(1 + 0.1 * torch.randn(p.shape))
            else:
                p.copy_(torch.randn(p.shape) * (0.5 if "embed" in name else 1.2 * p.shape[1] ** -0.5))
    if wide:
        model = model.double()
        model.model.rotary_emb = WideRotary(config)
    return model


class WideRotary(torch.nn.Module):
    """The rotary tables in float64; the model's own are float32 whatever the weights are."""
    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"] // config["num_attention_heads"]
        self.frequencies = config["rope_parameters"]["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.int64).double() / width)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()


@torch.no_grad()
def run(model, ids):
    """Stages of a prefill, its caches, and greedy steps."""
    out, handles = {}, []
    def watch(module, name):
        def keep(_module, _inputs, output):
            out[name] = (output[0] if isinstance(output, tuple) else output).clone()
        handles.append(module.register_forward_hook(keep))
    watch(model.model.embed_tokens, "embed")
    for i, layer in enumerate(model.model.layers):
        watch(layer.self_attn, f"layer.{i}.attn")
        watch(layer.mlp, f"layer.{i}.mlp")
        watch(layer, f"layer.{i}")
    watch(model.model.norm, "norm")
    result = model(input_ids=ids, use_cache=True)
    for handle in handles:
        handle.remove()
    out["logits"] = result.logits[0]
    cache = result.past_key_values
    for i, layer in enumerate(cache.layers):
        out[f"cache.layer.{i}.k"], out[f"cache.layer.{i}.v"] = layer.keys.clone(), layer.values.clone()
    fed, logits, token = [], [], int(out["logits"][-1].argmax())
    for _ in range(STEPS):
        fed.append(token)
        row = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits[0, -1]
        logits.append(row)
        token = int(row.argmax())
    out["decode.logits"] = torch.stack(logits)
    return out, fed


@torch.no_grad()
def padded(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    return logits * mask[..., None]


draw = torch.Generator().manual_seed(SEED)
ids = torch.randint(2, CONFIG["vocab_size"], (1, LENGTH), generator=draw)
short = torch.randint(2, CONFIG["vocab_size"], (SHORT,), generator=draw)
batch = torch.cat([ids, torch.cat([torch.zeros(LENGTH - SHORT, dtype=ids.dtype), short])[None]])
mask = torch.cat([torch.ones_like(ids), (torch.arange(LENGTH) >= LENGTH - SHORT).to(ids.dtype)[None]])

model = build()
stages, fed = run(model, ids)
stages["batch.logits"] = padded(model, batch, mask)
# Norms and softmax ask for torch.float32 by name: for the judge of the noise that name means float64.
narrow, torch.float32 = torch.float32, torch.float64
exact, fed_exact = run(build(wide=True), ids)
exact["batch.logits"] = padded(build(wide=True), batch, mask)
torch.float32 = narrow
assert fed == fed_exact, (fed, fed_exact)

def noise(name):
    error = stages[name].double() - exact[name]
    return {"max_abs": error.abs().max().item(), "scale_rms": exact[name].pow(2).mean().sqrt().item()}

def sensitivity(changes):
    return (run(build(changes), ids)[0]["logits"] - stages["logits"]).abs().max().item()

order = [n for n in stages if not n.startswith(("cache.", "decode.", "batch."))]
order.sort(key=lambda n: list(stages).index(n))
top = torch.cat([stages["logits"][-1:], stages["decode.logits"]]).topk(2).values
ints = lambda t: torch.as_tensor(t, dtype=torch.int32)
output = [int(row.argmax()) for row in stages["decode.logits"]]
golden = {name: value.contiguous() for name, value in stages.items()} | {
    "input.input_ids": ints(ids), "decode.input_tokens": ints(fed), "decode.output_tokens": ints(output),
    "batch.input_ids": ints(batch), "batch.attention_mask": ints(mask),
}
save_file(golden, HERE / "golden.safetensors")
state = {n: p.detach().contiguous() for n, p in model.named_parameters()}
save_file(state, HERE / "model.safetensors", metadata={"format": "pt"})
(HERE / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
(HERE / "golden.json").write_text(json.dumps({
    "family": "smollm3", "seed": SEED,
    "oracle": {"name": "transformers", "version": transformers.__version__, "class": "SmolLM3ForCausalLM",
               "attn_implementation": "eager", "dtype": "float32", "device": "cpu", "torch": torch.__version__,
               "python": sys.version.split()[0]},
    "stages": order,
    "greedy": {"input_tokens": fed, "output_tokens": output, "min_top1_top2_margin": (top[:, 0] - top[:, 1]).min().item()},
    "sensitivity_logits_max_abs": {
        "rope everywhere": sensitivity({"no_rope_layers": [1, 1, 1, 1]}),
        "every fourth layer without": sensitivity({"no_rope_layers": [1, 1, 1, 0]}),
        "rope nowhere": sensitivity({"no_rope_layers": [0, 0, 0, 0]}),
        "rms_norm_eps 1e-5": sensitivity({"rms_norm_eps": 1e-5}),
    },
    "noise": {name: noise(name) for name in stages},
}, indent=1) + "\n")
