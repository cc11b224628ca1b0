"""Captures of real models under transformers, healthy and with faults put in by hooks, for judge.py to judge.

    live.py CHECKPOINT OUT [--device cuda] [--dtype float32] [--what clean,compiled,faults,cost,statistics]

CHECKPOINT is a folder with config.json and safetensors (checkpoint.py makes one of a GGUF file). Writes OUT/<what>.h5
and, last, OUT/live.json: versions, what was done, seconds. Faults act on the live model: on what modules are given, put
out or hold, never on what a probe shows.
"""
import argparse, contextlib, json, os, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tools", "python"))
import h5py, numpy as np, torch, transformers
import assay_torch

TOKENS = [40, 345, 82, 270, 83, 541, 11, 290, 262, 82, 610, 13, 198, 40, 82, 334, 270, 256, 83, 13, 198, 77, 290, 68]


def load(folder, device, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager")
    return model.eval().to(device)


def generate(model, ids, n_new, device):
    """prefill and n_new greedy steps with the model's own cache"""
    x = torch.tensor([ids], device=device)
    out = model(input_ids=x, use_cache=True)
    for _ in range(n_new):
        x = out.logits[:, -1:].argmax(-1)
        out = model(input_ids=x, past_key_values=out.past_key_values, use_cache=True)
    return out


# ---- faults: name -> (classes that name it rightly, point, layer or None for all, how) -----------------------------

def layer(model, i):
    return model.model.layers[i]


def replace(module, function):
    """the module's output through function"""
    return module.register_forward_hook(lambda m, args, out: function(out))


def first_of(output, function):
    return (function(output[0]),) + tuple(output[1:]) if isinstance(output, tuple) else function(output)


@contextlib.contextmanager
def attribute(thing, name, value):
    old = getattr(thing, name)
    setattr(thing, name, value)
    yield
    setattr(thing, name, old)


@contextlib.contextmanager
def weight(module, function):
    old = module.weight.data
    module.weight.data = function(old).contiguous()
    yield
    module.weight.data = old


@contextlib.contextmanager
def hooked(*handles):
    yield
    for h in handles:
        h.remove()


def lost_projection(model):
    """the block hands on a buffer that the projection did not write"""
    return hooked(replace(layer(model, 1).self_attn, lambda out: first_of(out, torch.zeros_like)))


def fused_swap(model):
    """one merged q_a + kv_a projection whose parts lie in the other order"""
    a = layer(model, 2).self_attn
    n, kept = a.q_a_proj.out_features, {}

    def on_q(m, args, out):
        both = torch.cat([torch.nn.functional.linear(args[0], a.kv_a_proj_with_mqa.weight), out], -1)
        kept["rest"] = both[..., n:]
        return both[..., :n].contiguous()
    return hooked(a.q_a_proj.register_forward_hook(on_q), replace(a.kv_a_proj_with_mqa, lambda out: kept["rest"].contiguous()))


def heads_exchanged(model):
    """two halves of the heads exchanged on their way to the output projection"""
    return hooked(layer(model, 0).self_attn.o_proj.register_forward_pre_hook(
        lambda m, args: (torch.cat(args[0].chunk(2, -1)[::-1], -1),)))


def rope_half_split(model):
    """rotary pairs half-split where the weights have them adjacent"""
    module = sys.modules[type(layer(model, 0).self_attn).__module__]

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def apply(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
        cos, sin = (t[..., :t.shape[-1] // 2].unsqueeze(unsqueeze_dim) for t in (cos, sin))
        # as the healthy function stores them: half-split after the rotation, of whatever pairs it turned
        stored = lambda y: torch.cat([y[..., 0::2], y[..., 1::2]], -1)
        return stored(rotate(q, cos, sin)), stored(rotate(k, cos, sin))
    return attribute(module, "apply_rotary_pos_emb_interleave", apply)


def shared_lost(model):
    return hooked(*(replace(l.mlp.shared_experts, torch.zeros_like) for l in model.model.layers if hasattr(l.mlp, "shared_experts")))


def one_nan(model):
    def spoil(out):
        out = out.clone()
        if out.shape[1] > 3:
            out[0, 3, 17] = float("nan")
        return out
    return hooked(replace(layer(model, 1).mlp, spoil))


def norm_epsilon(model):
    return attribute(layer(model, 1).input_layernorm, "variance_epsilon", 1e-2)


def routed_scale(model):
    return attribute(layer(model, 2).mlp.gate, "routed_scaling_factor", 1.0)


def softmax_scale(model):
    a = layer(model, 1).self_attn
    return attribute(a, "scaling", (a.kv_lora_rank + a.qk_rope_head_dim) ** -0.5)


def expert_shift(model):
    n = model.config.n_routed_experts
    return hooked(layer(model, 1).mlp.experts.register_forward_pre_hook(
        lambda m, args: (args[0], (args[1] + 1) % n) + tuple(args[2:])))


def other_layer(model):
    """the output projection of layer 2 with layer 1's weight"""
    return weight(layer(model, 2).self_attn.o_proj, lambda w: layer(model, 1).self_attn.o_proj.weight.data)


def kv_b_halves(model):
    """value rows before key rows in every head of kv_b"""
    a = layer(model, 1).self_attn
    n, v = a.qk_nope_head_dim, a.v_head_dim

    def turn(w):
        w = w.reshape(a.num_heads, n + v, -1)
        return torch.cat([w[:, n:], w[:, :n]], 1).reshape(-1, w.shape[-1])
    return weight(a.kv_b_proj, turn)


def rope_positions(model):
    """positions off by one"""
    return hooked(model.model.rotary_emb.register_forward_pre_hook(
        lambda m, args, kwargs: ((args[0], args[1] + 1), kwargs) if len(args) > 1
        else (args, kwargs | {"position_ids": kwargs["position_ids"] + 1}), with_kwargs=True))


FAULTS = {"lost_projection": ("UNWRITTEN|BUFFER", "attn.proj", 1, lost_projection),
          "fused_swap": ("FUSED-ORDER", "attn.q_a", 2, fused_swap),
          "heads_exchanged": ("RANK-SLICE|FUSED-ORDER", "attn.proj", 0, heads_exchanged),
          "rope_half_split": ("ROPE-PAIR", "attn.q_rope", None, rope_half_split),
          "shared_lost": ("BUFFER|UNWRITTEN", "moe.shared", None, shared_lost),
          "one_nan": ("RANGE", "moe.out", 1, one_nan),
          "norm_epsilon": ("CONST", "attn.in_norm", 1, norm_epsilon),
          "routed_scale": ("ROUTE", "moe.weights", 2, routed_scale),
          "softmax_scale": ("LOGIT-SHAPE", "attn.probs", 1, softmax_scale),
          "expert_shift": ("EXPERT-MAP", "moe.routed", 1, expert_shift),
          "other_layer": ("WEIGHT-SOURCE", "attn.proj", 2, other_layer),
          "kv_b_halves": ("FUSED-ORDER", "attn.kv_b", 1, kv_b_halves),
          "rope_positions": ("ROPE-PHASE", "attn.q_rope", None, rope_positions)}


# ---- what is done --------------------------------------------------------------------------------------------------

def captured(model, path, device, fault=None, **options):
    with (fault(model) if fault else contextlib.nullcontext()):
        with assay_torch.capture(model, path, prompt="live", **options):
            generate(model, TOKENS, 2, device)


def seconds(step, device, n):
    """mean of n steps, each waited for: what is done for some steps at once counts"""
    t = time.perf_counter()
    for _ in range(n):
        step()
        if device == "cuda":
            torch.cuda.synchronize()
    return (time.perf_counter() - t) / n


def cost(model, out, device):
    """one decode step after the prompt, without and with statistics of every module; the same tensors, in turns"""
    cache = model(input_ids=torch.tensor([TOKENS], device=device), use_cache=True).past_key_values
    x = torch.tensor([[TOKENS[0]]], device=device)
    rows = {}
    for what, ids, step in (
            ("decode", 1, lambda: (model(input_ids=x, past_key_values=cache, use_cache=True), cache.crop(-1))),
            ("prefill", len(TOKENS), lambda: model(input_ids=torch.tensor([TOKENS], device=device), use_cache=False))):
        seconds(step, device, 20)
        plain, probed = [], []
        for turn in range(3):
            plain.append(seconds(step, device, 32))
            with assay_torch.capture(model, os.path.join(out, "cost.h5"), tier="stats", prompt="cost"):
                seconds(step, device, 16)
                probed.append(seconds(step, device, 64))
        os.unlink(os.path.join(out, "cost.h5"))
        rows[what] = {"tokens": ids, "plain_ms": 1e3 * min(plain), "stats_ms": 1e3 * min(probed),
                      "ratio": min(probed) / min(plain), "ratios": [b / a for a, b in zip(plain, probed)]}
    return rows


def statistics(device):
    """what is computed on the device against the formulas in numpy"""
    torch.manual_seed(1)
    xs = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32):
        some = [(torch.randn(n) * 100).to(dtype).to(device) for n in (1, 5, 1000, 4097)]
        if dtype.is_floating_point:
            some[2][7], some[2][8], some[2][9], some[2][10] = float("nan"), float("inf"), float("-inf"), 0
        xs += some
    rows, sums = assay_torch.device_statistics(xs)
    for x, row, checksum in zip(xs, rows.cpu().numpy(), sums.cpu().numpy()):
        want, bits = assay_torch.statistics(*assay_torch._words(x))
        assert int(checksum) & assay_torch.MASK == bits, (x.dtype, x.shape, "checksum")
        assert np.array_equal(row[:8], want[:8]), (x.dtype, row, want)
        assert np.allclose(row[8:], want[8:], rtol=1e-12, atol=1e-12 * (1 + want[9])), (x.dtype, row, want)
    return "equal"


def written_in_place(out, device):
    """a value that is written to after it was seen: kept as it was seen, or left out and listed; never as it became"""
    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.from_step, self.step = torch.nn.Identity(), 0, -1

        def forward(self, input_ids):
            self.step += 1
            y = self.inner(torch.full((4,), float(self.step + 1), device=input_ids.device))
            if self.step >= self.from_step:
                y.mul_(1000)
            return y
    path = os.path.join(out, "written.h5")
    for mode in (torch.no_grad, torch.inference_mode):
        for first in (0, 2):
            model = Writes()
            model.from_step = first
            with mode(), assay_torch.capture(model, path, tier="stats") as writer:
                for _ in range(4):
                    model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=device))
                    writer.taps.flush()
            with h5py.File(path) as f:
                stats = f["prompts/default/stats"]
                seen = {int(step): row[7] for step, row in zip(stats["step"], stats["values"])}
                left_out = [t.decode() for t in f["dropped"]] if "dropped" in f else []
            assert all(value == step + 1 for step, value in seen.items()), seen
            assert len(seen) + len(left_out) == 4 and len(left_out) == (1 if mode is torch.no_grad and first else 0), (seen, left_out)
    os.unlink(path)
    return "kept"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("out")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--backend", default="inductor", help="of torch.compile")
    p.add_argument("--what", default="clean,compiled,faults,cost,statistics")
    p.add_argument("--tokens", type=int, default=len(TOKENS), help="of the prompt")
    p.add_argument("--faults", default=",".join(FAULTS))
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    del TOKENS[a.tokens:]
    os.makedirs(a.out, exist_ok=True)
    name = os.path.basename(a.checkpoint.rstrip("/"))
    about = {"model": name, "torch": torch.__version__, "transformers": transformers.__version__, "device": a.device,
             "gpu": torch.cuda.get_device_name() if a.device == "cuda" else "", "dtype": a.dtype, "captures": {}}
    model = load(a.checkpoint, a.device, a.dtype)
    path = lambda what: os.path.join(a.out, f"{name}.{a.dtype}.{what}.h5")
    if "cost" in a.what.split(","):
        about["cost"] = {}
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                about["cost"] |= {f"{what}, {mode.__name__}": row for what, row in cost(model, a.out, a.device).items()}
    if "statistics" in a.what.split(","):
        about["statistics"] = statistics(a.device), written_in_place(a.out, a.device)
    with torch.inference_mode():
        for what in a.what.split(","):
            t = time.perf_counter()
            if what == "clean":
                captured(model, path("clean"), a.device)
                about["captures"]["clean"] = {"expect": None}
            elif what == "compiled":
                with torch.no_grad():
                    captured(torch.compile(model, backend=a.backend), path("compiled"), a.device)
                about["captures"]["compiled"] = {"expect": None}
            elif what == "faults":
                for fault in a.faults.split(","):
                    classes, point, at, how = FAULTS[fault]
                    captured(model, path(fault), a.device, how)
                    about["captures"][fault] = {"expect": classes, "point": point, "layer": at}
            print(f"{name} {a.dtype} {what}: {time.perf_counter() - t:.1f} s", flush=True)
    with open(os.path.join(a.out, f"{name}.{a.dtype}.json"), "w") as f:
        json.dump(about, f, indent=1)
    print(json.dumps(about.get("cost", {})))


if __name__ == "__main__":
    main()
