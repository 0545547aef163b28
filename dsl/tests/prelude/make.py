"""Numbers that judge the prelude: what torch and transformers compute in float64 where the prelude has an op.

    pip install torch==2.10.0 transformers==5.24.0 && python make.py

writes cases.json beside this file. Inputs are multiples of 1/256, so that float32 holds them.
"""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
import transformers
from transformers import DeepseekV3Config, LlamaConfig, Phi3Config, Qwen2VLTextConfig, Qwen3VLTextConfig
from transformers.activations import ACT2FN
from transformers.masking_utils import causal_mask_function, sliding_window_overlay
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.glm import modeling_glm as glm
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.llama import modeling_llama as llama
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as minimax_m3
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_moe import modeling_qwen3_moe as qwen3_moe
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl
from transformers.models.smolvlm import modeling_smolvlm as smolvlm
from transformers.models.step3p7 import modeling_step3p7 as step3p7

single = torch.float32
# The references widen to float32 by name; here they widen to float64.
torch.set_default_dtype(torch.float64)
torch.Tensor.float = torch.Tensor.double
torch.float = torch.float32 = torch.float64

LOWEST = -3.4028234663852886e38
numbers = torch.Generator().manual_seed(11)
cases = []


def grid(*shape, size=2.0):
    """Random multiples of 1/256 within -size..size."""
    return torch.randint(int(-256 * size), int(256 * size) + 1, shape, generator=numbers).double() / 256


def held(x):
    """The nearest numbers that float32 holds."""
    return x.to(single).to(torch.float64)


def ints(*shape, below):
    return torch.randint(0, below, shape, generator=numbers, dtype=torch.int32)


def plain(x):
    """A tensor as JSON: its dtype in the language, its shape, its elements."""
    dtype = {torch.float64: "float", torch.int32: "i32", torch.int64: "i32", torch.bool: "bool"}[x.dtype]
    return {"dtype": dtype, "shape": list(x.shape), "elements": x.reshape(-1).tolist()}


def case(op, judge, arguments, *results, note=""):
    arguments = [plain(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    cases.append({"op": op, "judge": judge, "note": note, "arguments": arguments, "results": [plain(r) for r in results]})


def load_case(call, judge, result):
    result = result.tolist() if isinstance(result, torch.Tensor) else result
    cases.append({"call": call, "judge": judge, "result": result})


def activations():
    edges = torch.tensor([0.0, -0.0, 2.0**-20, -(2.0**-20), 0.5, -0.5, 1.0, -1.0, 3.25, -3.25, 6.0, -6.0, 40.0, -40.0, 1e4, -1e4])
    x = torch.cat([edges, grid(16, size=8.0)])
    names = {"silu": "silu", "relu": "relu", "relu_squared": "relu2", "gelu_tanh": "gelu_pytorch_tanh", "gelu": "gelu", "gelu_quick": "quick_gelu"}
    for op, name in names.items():
        case(op, f"transformers ACT2FN[{name!r}]", [x], ACT2FN[name](x))
    capped = torch.tanh(x / 1.5) * 1.5
    case("softcap", "the final_logit_softcapping of Gemma2ForCausalLM", [x, 1.5], capped)
    gate, up = grid(2, 12, size=4.0), grid(2, 12, size=4.0)
    both = torch.cat([gate, up], dim=-1)
    limited = SimpleNamespace(limit=0.625, act_fn=ACT2FN["silu"])
    case("swiglu_clamped", "transformers Step3p7Experts._apply_gate", [gate, up, 0.625], step3p7.Step3p7Experts._apply_gate(limited, both))
    oai = SimpleNamespace(swiglu_limit=1.375, swiglu_alpha=1.702)
    case("swiglu_oai", "transformers MiniMaxM3VLExperts._apply_gate", [gate, up, 1.702, 1.375], minimax_m3.MiniMaxM3VLExperts._apply_gate(oai, both))


def norms():
    eps = 1e-5
    for x in [grid(3, 9), torch.zeros(1, 9), grid(1, 9) * 256, torch.full((1, 9), 2.0**-12)]:
        weight, bias = grid(9), grid(9)
        case("rms_norm", "torch rms_norm", [x, weight, eps], F.rms_norm(x, (9,), weight, eps))
        norm = step3p7.Step3p7RMSNorm(9, eps)
        norm.weight.data = weight
        case("rms_norm_offset", "transformers Step3p7RMSNorm", [x, weight, eps], norm(x))
        case("layer_norm", "torch layer_norm", [x, weight, bias, eps], F.layer_norm(x, (9,), weight, bias, eps))
        case("mean", "torch mean", [x], x.mean(-1, keepdim=True))
        case("softmax", "torch softmax", [x], torch.softmax(x, -1))
    case("softmax", "torch softmax", [torch.tensor([[LOWEST, 0.0, LOWEST, 88.5], [LOWEST] * 4])],
         torch.softmax(torch.tensor([[LOWEST, 0.0, LOWEST, 88.5], [LOWEST] * 4]), -1), note="hidden keys; a row that is all hidden")


def rotary():
    def config(cls=LlamaConfig, head=8, longest=64, **scaling):
        scaling = {"rope_type": "default", "rope_theta": 10000.0, **scaling}
        return cls(hidden_size=2 * head, num_attention_heads=2, num_key_value_heads=2, head_dim=head, max_position_embeddings=longest,
                   rope_parameters=scaling, pad_token_id=0)

    frequencies = llama.LlamaRotaryEmbedding(config()).inv_freq
    load_case("rope_frequencies(8, 10000.0)", "transformers LlamaRotaryEmbedding.inv_freq", frequencies)
    bent, _ = ROPE_INIT_FUNCTIONS["llama3"](config(head=32, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))
    load_case("rope_llama3(rope_frequencies(32, 10000.0), 8.0, 1.0, 4.0, 64.0)", "transformers ROPE_INIT_FUNCTIONS['llama3']", bent)
    for factor, context in [(4.0, 64), (40.0, 4096)]:
        bent, scale = ROPE_INIT_FUNCTIONS["yarn"](config(head=32, longest=int(factor) * context, rope_type="yarn", factor=factor, beta_fast=32, beta_slow=1, original_max_position_embeddings=context))
        load_case(f"rope_yarn(rope_frequencies(32, 10000.0), 10000.0, {factor}, 32.0, 1.0, {context}.0)", "transformers ROPE_INIT_FUNCTIONS['yarn']", bent)
        load_case(f"rope_yarn_scale({factor}, 1.0)", "the same", scale)
    short, long = [1.0, 1.25, 1.5, 2.5], [1.0, 3.0, 17.5, 60.25]
    phi3 = config(Phi3Config, longest=131072, rope_type="longrope", short_factor=short, long_factor=long, original_max_position_embeddings=4096)
    for factors, length in [(short, None), (long, 5000)]:
        bent, scale = ROPE_INIT_FUNCTIONS["longrope"](phi3, None, length)
        load_case(f"rope_longrope(rope_frequencies(8, 10000.0), {factors})", "transformers ROPE_INIT_FUNCTIONS['longrope']", bent)
    load_case("rope_longrope_scale(131072.0 / 4096.0, 4096.0)", "the same", scale)
    load_case("rope_longrope_scale(1.0, 4096.0)", "transformers: a factor of at most 1 scales nothing", 1.0)

    positions = torch.tensor([[0, 1, 2, 3], [7, 8, 9, 40]], dtype=torch.int32)
    cos, sin = llama.LlamaRotaryEmbedding(config())(torch.zeros(1), positions)
    half = lambda table: table[..., : table.shape[-1] // 2][:, None]
    listed = frequencies.tolist()
    case("rope_table", "transformers LlamaRotaryEmbedding", [positions, listed], half(cos), half(sin))
    cos, sin = held(cos), held(sin)
    x = grid(2, 3, 4, 8)
    tables = [half(cos), half(sin)]
    case("rope", "transformers llama apply_rotary_pos_emb", [x, *tables], llama.apply_rotary_pos_emb(x, x, cos, sin)[0])
    case("rope_by_halves", "transformers llama apply_rotary_pos_emb", [x, *tables], llama.apply_rotary_pos_emb(x, x, cos, sin)[0])
    case("rope_interleaved", "transformers glm apply_rotary_pos_emb", [x, *tables], glm.apply_rotary_pos_emb(x, x, cos, sin)[0])
    wide = grid(2, 3, 4, 12)
    for y in [x, wide]:
        case("rope_partial", "transformers step3p7 apply_rotary_pos_emb", [y, *tables], step3p7.apply_rotary_pos_emb(y, y, cos, sin)[0])

    axes = torch.stack([positions, positions + 2, 3 * positions])
    sections = [4, 3, 1]
    frequencies = llama.LlamaRotaryEmbedding(config(head=16)).inv_freq.tolist()
    for cls, module, follow in [
        (Qwen2VLTextConfig, qwen2_vl.Qwen2VLRotaryEmbedding, [0, 0, 0, 0, 1, 1, 1, 2]),
        (Qwen3VLTextConfig, qwen3_vl.Qwen3VLTextRotaryEmbedding, [0, 1, 2, 0, 1, 0, 0, 1]),
    ]:
        table = module(config(cls, head=16, mrope_section=sections))
        cos, sin = table(torch.zeros(1), axes)
        case("rope_table_axes", f"transformers {module.__name__}", [axes, follow, frequencies], half(cos), half(sin))
    load_case("rope_axes_interleaved([4, 3, 1], 16)", "transformers Qwen3VLTextRotaryEmbedding.recomposition_frequencies", follow)


def attention():
    rows, heads, groups, queries, keys, width = 2, 6, 2, 3, 5, 4
    q, k, v = grid(rows, heads, queries, width), grid(rows, groups, keys, width), grid(rows, groups, keys, width)
    positions = torch.tensor([[2, 3, 4], [0, 1, 2]], dtype=torch.int32)
    at, key = positions[:, :, None], torch.arange(keys)
    visible = causal_mask_function(0, 0, at, key)
    case("causal", "transformers causal_mask_function", [positions, keys], visible)
    case("recent", "transformers sliding_window_overlay", [positions, keys, 2], sliding_window_overlay(2)(0, 0, at, key))
    spans = torch.tensor([[0, 0, 1, 1, 2], [1, 1, 0, 2, 2]], dtype=torch.int32)
    seen = (spans[:, :3, None] == spans[:, None]) & (spans[:, :3, None] > 0)
    case("same_span", "torch comparisons", [spans[:, :3], spans], seen)
    blind = visible.clone()
    blind[0, 1] = False
    scale = 0.5
    module = SimpleNamespace(num_key_value_groups=heads // groups, training=False, head_dim=width)
    hidden = lambda seen: torch.where(seen, 0.0, LOWEST)[:, None]
    sdpa = F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)
    case("attention", "torch scaled_dot_product_attention", [q, k, v, scale], sdpa)
    sdpa = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None], scale=scale, enable_gqa=True)
    case("masked_attention", "torch scaled_dot_product_attention", [q, k, v, visible, scale], sdpa)
    eager = llama.eager_attention_forward(module, q, k, v, hidden(blind), scale)[0].transpose(1, 2)
    case("masked_attention", "transformers llama eager_attention_forward", [q, k, v, blind, scale], eager, note="a query that sees nothing")
    for cap in [0.75, 50.0]:
        capped = gemma2.eager_attention_forward(module, q, k, v, hidden(visible), scaling=scale, softcap=cap)[0].transpose(1, 2)
        case("softcapped_attention", "transformers gemma2 eager_attention_forward", [q, k, v, visible, scale, cap], capped)
    for sinks in [grid(heads), torch.tensor([-100.0, 100.0, 0.0, -1.0, 1.0, 20.0])]:
        module.sinks = sinks
        sunk = gpt_oss.eager_attention_forward(module, q, k, v, hidden(blind), scale)[0].transpose(1, 2)
        case("sink_attention", "transformers gpt_oss eager_attention_forward", [q, k, v, blind, sinks, scale], sunk)
    scores = grid(rows, heads, queries, keys, size=30.0)
    joined = torch.cat([scores, sinks.reshape(1, -1, 1, 1).expand(rows, -1, queries, 1)], -1)
    case("softmax_with_sink", "torch softmax", [scores, sinks], torch.softmax(joined, -1)[..., :-1])
    repeated = k.repeat_interleave(heads // groups, 1)
    scores = (q @ repeated.transpose(-1, -2)) * scale
    case("attention_scores", "torch matmul over repeated keys", [q, k, scale], scores)
    case("attention_values", "torch matmul over repeated values", [scores, v], torch.softmax(scores, -1) @ v.repeat_interleave(heads // groups, 1))
    case("hide", "torch where", [scores, blind], torch.where(blind[:, None], scores, LOWEST))
    x = grid(2, 3, 24)
    case("split_heads", "torch view and transpose", [x, 6, 4], x.view(2, 3, 6, 4).transpose(1, 2))
    case("merge_heads", "torch transpose and reshape", [q], q.transpose(1, 2).reshape(rows, queries, -1))
    grouped = q.reshape(rows, groups, -1, width)
    case("group_heads", "torch reshape", [q, groups], grouped)
    case("ungroup_heads", "torch reshape", [grouped, heads], q)
    gate = grid(rows, queries, heads, size=4.0)
    gated = (q.transpose(1, 2) * gate.unsqueeze(-1).sigmoid()).transpose(1, 2)
    case("gate_heads", "the gate of transformers Step3p7Attention", [q, gate], gated)


def experts():
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

    scores = torch.rand(5, 8, generator=numbers)
    scores = (scores * 256).round() / 256 + torch.arange(8) / 4096
    groups, kept = 4, 2
    grouped = scores.view(-1, groups, 2).topk(2, dim=-1)[0].sum(-1)
    mask = torch.zeros_like(grouped).scatter_(1, grouped.topk(kept, dim=-1)[1], 1).unsqueeze(-1).expand(-1, groups, 2).reshape(-1, 8)
    case("keep_best_groups", "the group choice of transformers DeepseekV3TopkRouter", [scores, groups, kept], scores.masked_fill(~mask.bool(), 0.0))
    router = deepseek.DeepseekV3TopkRouter(DeepseekV3Config(hidden_size=4, n_routed_experts=8, n_group=groups, topk_group=kept, num_experts_per_tok=2))
    router.weight.data, router.e_score_correction_bias.data = torch.zeros(8, 4), scores[0] - 0.5
    chosen = router(torch.zeros(1, 4))[2]
    assert set(chosen[0].tolist()) == set(scores.masked_fill(~mask.bool(), 0.0)[0].topk(2)[1].tolist())


def pictures():
    pixels = grid(2, 3, 4, 6)
    case("patchify", "torch unfold", [pixels, 2], F.unfold(pixels, 2, stride=2).transpose(1, 2))
    for rows, columns, window in [(4, 4, 2), (2, 6, 2), (3, 3, 3), (2, 3, 1)]:
        x = grid(2, rows * columns, 3)
        pooled = F.avg_pool2d(x.transpose(1, 2).reshape(2, 3, rows, columns), window).flatten(2).transpose(1, 2)
        case("mean_pool", "torch avg_pool2d", [x, rows, columns, window], pooled)
        space = F.pixel_unshuffle(x.transpose(1, 2).reshape(2, 3, rows, columns), window).reshape(2, 3, window * window, -1)
        shuffled = space.permute(0, 3, 2, 1).reshape(2, -1, window * window * 3)
        if rows == columns:
            assert torch.equal(shuffled, smolvlm.SmolVLMConnector.pixel_shuffle(None, x, window))
        judge = "transformers SmolVLMConnector.pixel_shuffle" if rows == columns else "torch pixel_unshuffle, window before channel"
        case("pixel_shuffle", judge, [x, rows, columns, window], shuffled)
    x = grid(3, 4, 2)
    valid = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    mean = torch.nanmean(torch.where(valid[..., None], x, math.nan), 1, keepdim=True).nan_to_num(0.0)
    case("masked_mean", "torch nanmean", [x, valid], mean)
    x, wanted = grid(2, 4, 3), torch.tensor([[3, 0], [1, 1]], dtype=torch.int32)
    case("rows_at", "torch indexing", [x, wanted], x[torch.arange(2)[:, None], wanted.long()])
    features, rows = grid(5, 3), torch.tensor([[-1, 4, 0], [2, -1, -1]], dtype=torch.int32)
    case("features_at", "torch indexing", [features, rows], features[rows.long().clamp(min=0)])


def blocks():
    """Weights by their stored names, an input, and what the blocks of `blocks.mgraph` give for it."""
    width, inner, count = 4, 6, 3
    x = grid(1, 3, width)
    weights, probes = {}, {}

    def stored(path, *shape):
        weights[path] = grid(*shape)
        return weights[path]

    table = stored("table.weight", 5, width)
    tokens = ints(1, 3, below=5)
    probes["embedding"], probes["logits"] = table[tokens.long()], F.linear(x, table)
    for name, biased in [("linear", True), ("plain", False)]:
        w = stored(f"{name}.weight", inner, width)
        b = stored(f"{name}.bias", inner) if biased else None
        probes[name] = F.linear(x, w, b)
    weight, bias = stored("layer.weight", width), stored("layer.bias", width)
    probes["layer"] = F.layer_norm(x, (width,), weight, bias, 1e-5)
    probes["rms"] = F.rms_norm(x, (width,), stored("rms.weight", width), 1e-5)
    offset = gemma2.Gemma2RMSNorm(width, 1e-5)
    offset.weight.data = stored("offset.weight", width)
    probes["offset"] = offset(x)

    def mlp(path):
        return [stored(f"{path}.{name}_proj.weight", *shape) for name, shape in [("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))]]

    for name, act in [("swiglu", "silu"), ("geglu", "gelu_pytorch_tanh")]:
        gate, up, down = mlp(name)
        module = gemma2.Gemma2MLP(SimpleNamespace(hidden_size=width, intermediate_size=inner, hidden_activation=act))
        module.gate_proj.weight.data, module.up_proj.weight.data, module.down_proj.weight.data = gate, up, down
        probes[name] = module(x)
    parts = [mlp(f"experts.{i}") for i in range(count)]
    config = SimpleNamespace(num_experts=count, hidden_size=width, moe_intermediate_size=inner, hidden_act="silu", _experts_implementation="eager")
    module = qwen3_moe.Qwen3MoeExperts(config)
    module.gate_up_proj.data = torch.stack([torch.cat(part[:2]) for part in parts])
    module.down_proj.data = torch.stack([part[2] for part in parts])
    chosen, share = torch.tensor([[0, 2], [1, 0], [2, 1]]), grid(3, 2).abs()
    probes["experts"] = module(x[0], chosen, share)[None]
    probes = {name: plain(value.detach()) for name, value in probes.items()}
    inputs = {"x": plain(x), "tokens": plain(tokens), "chosen": plain(chosen[None]), "share": plain(share[None])}
    return {"weights": {name: plain(w) for name, w in weights.items()}, "inputs": inputs, "probes": probes}


for section in [activations, norms, rotary, attention, experts, pictures]:
    with torch.no_grad():
        section()
origin = f"make.py, torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, float64 on the CPU"
with torch.no_grad():
    found = {"origin": origin, "cases": cases, "blocks": blocks()}
lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
text = f'{{"origin":{json.dumps(origin)},\n"blocks":{json.dumps(found["blocks"], separators=(",", ":"))},\n"cases":[\n{lines}\n]}}\n'
Path(__file__).with_name("cases.json").write_text(text)
