"""Stand-ins for PyTorch, so that tools/python/assay_torch.py is tested where torch is not installed.

    standin.py numbers FULL.h5 SKETCH.h5     its formulas give what the C recorders wrote, bit for bit
    standin.py replay DUMP.h5 PROMPT OUT.h5  a module tree that puts out a transformers dump again, captured
    standin.py cut OUT.h5                    an exception in the block leaves no file
    standin.py force DUMP.h5 PROMPT          replacement reaches the module's caller
    standin.py workers OUT.h5                hooks in workers of serving engines
"""
import os, sys, types
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python"))
import h5py, numpy as np
import assay_torch


class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)

    def remove(self):
        self.hooks.remove(self.hook)


class Module:
    """what nn.Module promises about names and hooks"""

    def __init__(self, name=""):
        self.name, self.children, self.before, self.after = name, [], [], []

    def named_modules(self):
        yield self.name, self
        for c in self.children:
            yield from c.named_modules()

    def register_forward_pre_hook(self, hook, with_kwargs=False):
        return Handle(self.before, hook)

    def register_forward_hook(self, hook):
        return Handle(self.after, hook)

    def __call__(self, *args, **kwargs):
        for hook in list(self.before):
            hook(self, args, kwargs)
        out = self.forward(*args, **kwargs)
        for hook in list(self.after):
            new = hook(self, args, out)
            out = out if new is None else new
        return out


class Leaf(Module):
    def forward(self, x):
        return x


modeling = types.ModuleType("standin_modeling")
sys.modules["standin_modeling"] = modeling


def eager_attention_forward(module, query, key, value, out, probs):
    return out, probs


modeling.eager_attention_forward = eager_attention_forward


class GlmAttention(Leaf):
    pass


GlmAttention.__module__ = "standin_modeling"


class GlmMoeDsaForCausalLM(Module):
    """puts out what a dump holds, step by step, one buffer per shape: later writes must not show"""
    INPUTS = ("query", "key", "value", "probs", "attn_kernel_out")

    def __init__(self, dump, prompt):
        super().__init__()
        self.steps = [dump[prompt][k] for k in sorted(dump[prompt]) if k.startswith("step")]
        self.at, self.buffers = -1, {}
        names = {n for s in self.steps for n in s if "." in n and not n.rpartition(".")[2].startswith("out")}
        names = sorted(n for n in names if n.rpartition(".")[2] not in self.INPUTS)
        self.leaves = {n: (GlmAttention if n.endswith("self_attn") else Leaf)(n) for n in names}
        self.children = list(self.leaves.values())

    def reuse(self, x):
        buffer = self.buffers.setdefault((x.shape, x.dtype.str), np.empty_like(x))
        buffer[...] = x
        return buffer

    def forward(self, input_ids=None, cache_position=None):
        self.at += 1
        g = self.steps[self.at]
        for name, leaf in self.leaves.items():
            if name not in g:
                continue
            if isinstance(leaf, GlmAttention) and name + ".query" in g:
                q, k, v, p, o = (g[f"{name}.{i}"][...] for i in self.INPUTS)
                modeling.eager_attention_forward(leaf, q, k, v, o, p)
            more = [g[f"{name}.out{i}"][...] for i in (1, 2) if f"{name}.out{i}" in g]
            x = self.reuse(g[name][...])
            leaf((x, *more) if more else x)
        return types.SimpleNamespace(logits=g["logits"][...])


def replay(dump, prompt, out):
    with h5py.File(dump) as f:
        model = GlmMoeDsaForCausalLM(f, prompt)
        with assay_torch.capture(model, out, prompt=prompt):
            for s in model.steps:
                ids = s["input_tokens"][...].astype(np.int64)[None]
                model(input_ids=ids, cache_position=np.array([s.attrs["position"]], np.int64))
        assert modeling.eager_attention_forward is eager_attention_forward, "the attention function was not put back"
        assert not any(m.before or m.after for _, m in model.named_modules()), "hooks were left behind"


def numbers(full, sketched):
    with h5py.File(full) as a, h5py.File(sketched) as b:
        n = 0
        for name, prompt in a["prompts"].items():
            rows = {(p.decode(), int(s)): i for i, (p, s) in
                    enumerate(zip(b[f"prompts/{name}/stats/point"], b[f"prompts/{name}/stats/step"]))}
            values, sums = b[f"prompts/{name}/stats/values"][...], b[f"prompts/{name}/stats/word_sum"][...]
            where, sketches = b[f"prompts/{name}/sketch/row"][...], b[f"prompts/{name}/sketch/values"][...]
            for step, group in prompt["steps"].items():
                for point, data in group.items():
                    if point in ("tokens", "sequences", "positions"):
                        continue
                    i = rows[(point, int(step))]
                    words, origin = data[...], data.attrs["origin"]
                    origin = origin.decode() if isinstance(origin, bytes) else origin
                    row, checksum = assay_torch.statistics(words, origin)
                    assert checksum == int(sums[i]), f"{point}: checksum"
                    assert np.array_equal(row, values[i]), f"{point}: {row} {values[i]}"
                    mine = assay_torch.sketch(assay_torch.widen(words, origin))
                    theirs = sketches[where[:, 0] == i]
                    assert np.array_equal(mine, theirs), f"{point}: sketch differs by {np.abs(mine - theirs).max()}"
                    n += 1
        assert n >= 4, n


def cut(out):
    class Broken(Leaf):
        def forward(self, input_ids=None):
            raise KeyError("planned")
    try:
        with assay_torch.capture(Broken(), out):
            Broken.forward(None)
    except KeyError:
        pass
    assert not os.path.exists(out) and not os.path.exists(out + ".partial")


def force(dump, prompt):
    with h5py.File(dump) as f:
        model = GlmMoeDsaForCausalLM(f, prompt)
        model.reuse = lambda x: np.zeros_like(x)  # a model that computes nothing
        got = {}
        with assay_torch.force(model, dump, points="layers.1.mlp", prompt=prompt) as used:
            leaf = model.leaves["model.layers.1.mlp"]
            call = leaf.__class__.__call__
            leaf.__class__ = type("Spy", (Leaf,), {"__call__": lambda s, x: got.setdefault("y", call(s, x))})
            model(input_ids=model.steps[0]["input_tokens"][...].astype(np.int64)[None])
        assert np.array_equal(got["y"], model.steps[0]["model.layers.1.mlp"][...])
        assert (0, "model.layers.1.mlp") in used and (0, "model.layers.2.mlp") not in used


class Linear(Leaf):
    def forward(self, x):
        return (x + 1, None)  # vLLM's linear layers give (output, bias)


class Attention(Module):
    """module tree of vLLM's and SGLang's deepseek_v2.py, in part"""

    def __init__(self, at):
        super().__init__(at)
        self.q, self.o = Linear(at + ".fused_qkv_a_proj"), Linear(at + ".o_proj")
        self.children = [self.q, self.o]

    def forward(self, x):
        return self.o(self.q(x)[0])[0]


class DeepseekV2ForCausalLM(Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = Attention("model.layers.0.self_attn"), Leaf("logits_processor")
        self.children = [self.attention, self.head]

    def forward(self, input_ids, positions, forward_batch=None):
        return self.attention(np.asarray(input_ids, np.float32)[:, None] * np.ones((1, 4), np.float32))

    def compute_logits(self, hidden):
        return self.head(hidden)


class ModelRunner:
    def __init__(self):
        self.model = DeepseekV2ForCausalLM()

    def get_model(self):
        return self.model


def workers(out):
    """what is installed in a worker sees its model's calls and the head behind them, whichever way positions come"""
    for engine in ("vllm", "sglang"):
        runner = ModelRunner()
        if engine == "sglang":
            runner = type("ModelRunner", (), {"__module__": "sglang.srt.model_executor"})()
            runner.model = DeepseekV2ForCausalLM()
        worker = types.SimpleNamespace(model_runner=runner)
        assert assay_torch.install_vllm(worker, out) is None, "what a worker returns travels to another process"
        for ids, first in (([5, 6, 7], 0), ([8], 3)):
            ids, positions = np.array(ids, np.int64), np.arange(first, first + len(ids))
            hidden = runner.model(ids, positions) if engine == "sglang" else \
                runner.model(input_ids=ids, positions=positions)
            runner.model.compute_logits(hidden[-1:])
        assay_torch.finish_vllm(worker)
        assert not hasattr(worker, "assay_capture")
        with h5py.File(out) as f:
            assert f.attrs["producer"] == engine and f.attrs["complete"] == 1
            steps = f["prompts/default/steps"]
            assert [steps[s].attrs["first_position"] for s in steps] == [0, 3]
            for s, ids in (("0000", [5, 6, 7]), ("0001", [8])):
                assert list(steps[s]["tokens"]) == ids
                x = np.array(ids, np.float32)
                assert np.array_equal(steps[s]["model.layers.0.self_attn.fused_qkv_a_proj"][:, 0], x + 1)
                assert np.array_equal(steps[s]["model.layers.0.self_attn"][:, 0], x + 2)
                assert np.array_equal(steps[s]["logits_processor"][:, 0], x[-1:] + 2), "the head belongs to its step"
        assert not any(m.before or m.after for _, m in runner.model.named_modules()), "hooks were left behind"


def points():
    p = assay_torch.parse_points("layers.0-1,3 norm")
    assert p("model.layers.0.mlp") and p("model.layers.3") and p("model.norm")
    assert not p("model.layers.2.mlp") and not p("model.layers.13") and not p("model.layers.4.layernorm")
    assert assay_torch.parse_size("2GB") == 2 << 30 and assay_torch.parse_size("512K") == 512 << 10
    for wrong in ("2 parsecs", "GB"):
        try:
            assay_torch.parse_size(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)


if __name__ == "__main__":
    {"numbers": numbers, "replay": replay, "cut": cut, "force": force, "points": points, "workers": workers}[sys.argv[1]](*sys.argv[2:])
