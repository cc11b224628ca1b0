"""A GGUF file as the checkpoint it came from: config.json and model.safetensors as the model authors publish them.

    checkpoint.py MODEL.gguf DIR [--merged] [--shards N] [--dtype bf16|f16|f32|fp8]

kv_b is put together from its halves, stacked experts are taken apart (--merged: one tensor each, as transformers
keeps them in memory), rows of llama's q and k go back to half-split order, float8 matrices get a scale for each
128 x 128 block. Needs numpy, gguf and safetensors; no torch.
"""
import argparse, json, os, struct
import numpy as np
from gguf import GGUFReader

MLA = {"glm-dsa": ("glm_moe_dsa", "GlmMoeDsaForCausalLM"), "deepseek2": ("deepseek_v3", "DeepseekV3ForCausalLM")}
PLAIN = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q_a": "self_attn.q_a_proj",
         "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj", "attn_q": "self_attn.q_proj",
         "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "ffn_gate_inp": "mlp.gate", "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
         "ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
         "indexer.attn_q_b": "self_attn.indexer.wq_b", "indexer.attn_k": "self_attn.indexer.wk",
         "indexer.k_norm": "self_attn.indexer.k_norm", "indexer.proj": "self_attn.indexer.weights_proj"}


def read(path):
    """(keys without the architecture's prefix, tensors as float32, row-major)"""
    reader = GGUFReader(path)
    keys = {}
    for name, field in reader.fields.items():
        if "tokenizer" not in name:
            value = field.contents()
            keys[name.split(".", 1)[1] if not name.startswith("general.") else name] = value
    tensors = {}
    for t in reader.tensors:
        kind = t.tensor_type.name
        shape = tuple(int(n) for n in reversed(t.shape))
        raw = np.asarray(t.data)
        if kind == "BF16":
            x = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif kind in ("F16", "F32"):
            x = raw.astype(np.float32)
        else:
            raise SystemExit(f"{t.name}: {kind} is not a format of checkpoints")
        tensors[t.name] = x.reshape(shape)
    return keys, tensors


def config(keys, tensors):
    arch = keys["general.architecture"]
    g = lambda name, default=None: keys.get(name, default)
    c = {"vocab_size": int(tensors["token_embd.weight"].shape[0]), "hidden_size": g("embedding_length"),
         "intermediate_size": g("feed_forward_length"), "num_hidden_layers": g("block_count"),
         "num_attention_heads": g("attention.head_count"), "max_position_embeddings": g("context_length"),
         "rms_norm_eps": round(g("attention.layer_norm_rms_epsilon"), 9), "rope_theta": g("rope.freq_base"),
         "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": "output.weight" not in tensors,
         "torch_dtype": "bfloat16"}
    if arch == "llama":
        return c | {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                    "num_key_value_heads": g("attention.head_count_kv"), "head_dim": g("attention.key_length")}
    rope = g("rope.dimension_count")
    kind, model = MLA[arch]
    q_rank = g("attention.q_lora_rank")
    if arch == "deepseek2" and g("expert_gating_func", 1) == 1:
        kind, model = "deepseek_v2", "DeepseekV2ForCausalLM"
        c["topk_method"] = "greedy" if g("expert_group_count", 1) <= 1 else "group_limited_greedy"
    c |= {"model_type": kind, "architectures": [model], "num_key_value_heads": g("attention.head_count"),
          "q_lora_rank": q_rank, "kv_lora_rank": g("attention.kv_lora_rank"), "qk_rope_head_dim": rope,
          "qk_nope_head_dim": g("attention.key_length_mla") - rope, "v_head_dim": g("attention.value_length_mla"),
          "first_k_dense_replace": g("leading_dense_block_count"), "n_routed_experts": g("expert_count"),
          "num_experts_per_tok": g("expert_used_count"), "n_shared_experts": g("expert_shared_count"),
          "moe_intermediate_size": g("expert_feed_forward_length"),
          "routed_scaling_factor": round(g("expert_weights_scale", 1.0), 6),
          "norm_topk_prob": bool(g("expert_weights_norm", False)), "n_group": g("expert_group_count", 1),
          "topk_group": g("expert_group_used_count", 1), "moe_layer_freq": 1,
          "scoring_func": "softmax" if kind == "deepseek_v2" else "sigmoid"}
    if kind == "deepseek_v3":
        c |= {"rope_interleave": True, "topk_method": "noaux_tc", "num_nextn_predict_layers": 0}
    if g("rope.scaling.type") == "yarn":
        all_dim = round(10 * g("rope.scaling.yarn_log_multiplier"), 6)
        c["rope_scaling"] = {"type": "yarn", "factor": g("rope.scaling.factor"), "mscale": all_dim, "mscale_all_dim": all_dim,
                             "original_max_position_embeddings": g("rope.scaling.original_context_length"),
                             "beta_fast": g("rope.scaling.yarn_beta_fast", 32.0),
                             "beta_slow": g("rope.scaling.yarn_beta_slow", 1.0)}
    if g("attention.indexer.head_count"):
        types = g("attention.indexer.types")
        c |= {"index_n_heads": g("attention.indexer.head_count"), "index_head_dim": g("attention.indexer.key_length"),
              "index_topk": g("attention.indexer.top_k"), "rope_interleave": True, "indexer_rope_interleave": True,
              "indexer_types": ["full" if t else "shared" for t in types] if types is not None else None}
    return c


def half_split(x, n_head):
    """rows of a GGUF file (adjacent pairs) in the checkpoint's order"""
    rows, cols = x.shape
    return x.reshape(n_head, rows // n_head // 2, 2, cols).transpose(0, 2, 1, 3).reshape(rows, cols)


def weights(keys, tensors, merged):
    out = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    if "output.weight" in tensors:
        out["lm_head.weight"] = tensors["output.weight"]
    plain = keys["general.architecture"] == "llama"
    for i in range(keys["block_count"]):
        at = f"model.layers.{i}."
        t = {n[len(f"blk.{i}."):]: x for n, x in tensors.items() if n.startswith(f"blk.{i}.")}
        for name, x in t.items():
            stem, _, end = name.rpartition(".")
            if stem == "exp_probs_b":
                out[at + "mlp.gate.e_score_correction_bias"] = x
            elif stem in PLAIN:
                if plain and stem in ("attn_q", "attn_k"):
                    x = half_split(x, keys["attention.head_count" if stem == "attn_q" else "attention.head_count_kv"])
                out[at + PLAIN[stem] + "." + end] = x
        if "attn_k_b.weight" in t:  # [H, L, N] and [H, V, L] -> per head N rows of keys, then V of values
            k, v = t["attn_k_b.weight"].transpose(0, 2, 1), t["attn_v_b.weight"]
            both = np.concatenate([k, v], 1)
            out[at + "self_attn.kv_b_proj.weight"] = both.reshape(-1, both.shape[2])
        if "ffn_gate_exps.weight" in t:
            gate, up, down = (t[f"ffn_{p}_exps.weight"] for p in ("gate", "up", "down"))
            if merged:
                out[at + "mlp.experts.gate_up_proj"] = np.concatenate([gate, up], 1)
                out[at + "mlp.experts.down_proj"] = down
            else:
                for e in range(gate.shape[0]):
                    for part, x in (("gate", gate), ("up", up), ("down", down)):
                        out[f"{at}mlp.experts.{e}.{part}_proj.weight"] = x[e]
    return out


def f8e4m3(x):
    """nearest code, ties to even; |x| at most 448"""
    table = np.array([((c >> 3 & 15) and (8 + (c & 7)) * 2.0 ** ((c >> 3 & 15) - 10)) or (c & 7) * 2.0 ** -9
                      for c in range(127)], np.float64)
    a = np.abs(x.astype(np.float64))
    high = np.clip(np.searchsorted(table, a), 1, 126)
    low = high - 1
    up = (a - table[low] > table[high] - a) | ((a - table[low] == table[high] - a) & (high % 2 == 0))
    return (np.where(up, high, low) | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def encoded(name, x, dtype):
    """[(name, dtype in the file, shape, bytes)]"""
    if x.ndim == 1 or "norm" in name or dtype == "f32" or ".gate." in name:
        return [(name, "F32", x.shape, x.astype("<f4").tobytes())]
    if dtype == "f16":
        return [(name, "F16", x.shape, x.astype("<f2").tobytes())]
    if dtype == "fp8" and x.ndim == 2 and "_proj.weight" in name and "indexer" not in name:
        rows, cols = -(-x.shape[0] // 128), -(-x.shape[1] // 128)
        scales = np.zeros((rows, cols), np.float32)
        codes = np.zeros(x.shape, np.uint8)
        for r in range(rows):
            for c in range(cols):
                block = np.s_[128 * r:128 * (r + 1), 128 * c:128 * (c + 1)]
                scales[r, c] = max(np.abs(x[block]).max(), 1e-12) / np.float32(448)
                codes[block] = f8e4m3(x[block] / scales[r, c])
        return [(name, "F8_E4M3", x.shape, codes.tobytes()),
                (name + "_scale_inv", "F32", scales.shape, scales.tobytes())]
    bits = x.astype(np.float32).view(np.uint32)
    words = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return [(name, "BF16", x.shape, words.tobytes())]


def write_shard(path, entries):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, shape, data in entries:
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(e[3] for e in entries))


def write(folder, settings, tensors, dtype="bf16", shards=1):
    os.makedirs(folder, exist_ok=True)
    if dtype == "fp8":
        settings = settings | {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                                       "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(settings, f, indent=2)
    entries = [e for name, x in tensors.items() for e in encoded(name, x, dtype)]
    if shards == 1:
        return write_shard(os.path.join(folder, "model.safetensors"), entries)
    names = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    where = {}
    for i, name in enumerate(names):
        write_shard(os.path.join(folder, name), entries[i::shards])
        where |= {e[0]: name for e in entries[i::shards]}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(len(e[3]) for e in entries)}, "weight_map": where}, f)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("folder")
    p.add_argument("--merged", action="store_true")
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--dtype", choices=("bf16", "f16", "f32", "fp8"), default="bf16")
    a = p.parse_args()
    model_keys, model_tensors = read(a.model)
    write(a.folder, config(model_keys, model_tensors), weights(model_keys, model_tensors, a.merged), a.dtype, a.shards)
