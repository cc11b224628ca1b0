"""Capture what a PyTorch model computes, and put reference values in its place, for assay.

    import assay_torch
    with assay_torch.capture(model, "cap.h5", points="layers.0-3", tier="full", budget="2GB", prompt="count"):
        model(input_ids=ids)                    # prefill: step 0
        model(input_ids=next_id, ...)           # decode: step 1 ...
    # then:  assay diagnose cap.h5 --model MODEL.gguf (or the folder of the checkpoint)

    with assay_torch.force(model, "ref.h5", points="layers.2.mlp"):
        model(input_ids=ids)                    # the module's output is taken from the file

Needs torch (or anything with nn.Module's hooks), h5py and numpy; no build.

The file is assay's capture format 1 (probes/capture.h) with attribute naming = "modules": datasets are named by
module path (model.layers.0.mlp; .out1, .out2 further members of a tuple), and assay's name maps say which point that
is and how it lies. Tensors are cloned when they are seen, so later writes in place do not change what was kept; the
statistics are computed from the clone, and their checksum is in the file.

Under torch.compile what a module puts out goes through an opaque operator (assay::show) that the compiled graph calls:
the graph is not cut, but a value that is shown must be stored. The model is compiled anew when the block begins and
again when it ends. Replay of CUDA graphs (mode "reduce-overhead") calls no Python and is not seen.
"""
import contextlib, datetime, itertools, os, re, sys
import h5py, numpy as np
try:
    import torch
except ImportError:  # anything that has nn.Module's hooks will do
    torch = None

_TENSOR = torch.Tensor if torch else None

__all__ = ["capture", "force", "sketch", "statistics", "device_statistics", "install_vllm", "finish_vllm"]

GOLDEN, SEED = 0x9E3779B97F4A7C15, 0x61737361795F3031
MASK = (1 << 64) - 1
ROWS, NUMBERS = 32, 256
COLUMNS = ("n", "nan", "+inf", "-inf", "zero", "poison", "min", "max", "mean", "l2")


# ---- numbers: the formulas of probes/recorder.h -------------------------------------------------------------------

def mix(z):
    """splitmix64's output function on an array of uint64"""
    with np.errstate(over="ignore"):
        z = np.asarray(z, np.uint64).copy()
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def widen(words, origin):
    """stored words -> numbers"""
    if origin == "bf16" and words.dtype == np.uint16:
        return (words.astype(np.uint32) << 16).view(np.float32)
    if origin == "f16" and words.dtype == np.uint16:
        return words.view(np.float16).astype(np.float32)
    return words


def sketch(x):
    """[groups of 32 rows, 256] float32: a fixed random projection, linear in x"""
    x = np.asarray(x)
    rows = x.reshape(x.shape[0] if x.ndim else 1, -1).astype(np.float64)
    rows = np.where(np.isfinite(rows), rows, 0.0)
    out = []
    for first in range(0, rows.shape[0], ROWS):
        part = rows[first:first + ROWS].reshape(-1)
        sums = np.zeros(NUMBERS)
        for at in range(0, part.size, 4096):  # signs of 4096 elements at a time: 8 MiB
            values = part[at:at + 4096]
            element = np.arange(at, at + values.size, dtype=np.uint64)
            for word in range(NUMBERS // 64):
                with np.errstate(over="ignore"):
                    bits = mix(np.uint64(SEED) + (np.uint64(4) * element + np.uint64(word + 1)) * np.uint64(GOLDEN))
                minus = (bits[:, None] >> np.arange(64, dtype=np.uint64)[None, :]) & np.uint64(1)
                signed = np.where(minus == 1, -values[:, None], values[:, None])
                # in the order of the elements, one after the other, as the C recorder adds
                lane = slice(64 * word, 64 * word + 64)
                sums[lane] = np.add.accumulate(np.vstack([sums[lane][None], signed]), axis=0)[-1]
        with np.errstate(over="ignore"):
            out.append((sums / 16).astype(np.float32))
    return np.array(out, np.float32).reshape(-1, NUMBERS)


def statistics(words, origin):
    """(row of COLUMNS as float64, checksum) of stored words"""
    words = np.ascontiguousarray(words)
    x = widen(words, origin).astype(np.float64).reshape(-1)
    bits = words.reshape(-1).view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[words.dtype.itemsize])
    pairs = bits.astype(np.uint64)
    if words.dtype.itemsize < 8:  # two elements to a word
        pairs = np.append(pairs, np.zeros(x.size % 2, np.uint64))
        pairs = pairs[0::2] | pairs[1::2] << np.uint64(32)
    with np.errstate(over="ignore"):
        z = pairs + (np.arange(pairs.size, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        checksum = int((z * (z >> np.uint64(32) | np.uint64(1))).sum(dtype=np.uint64)) if x.size else 0
    poison = 0
    if words.dtype == np.float32:
        poison = int(((bits & np.uint32(0xFFF00000)) == np.uint32(0x7FE00000)).sum())
    finite = x[np.isfinite(x)]
    some = finite.size > 0
    with np.errstate(over="ignore"):
        l2 = np.sqrt(np.add.accumulate(finite * finite)[-1]) if some else 0
    row = [x.size, np.isnan(x).sum(), np.isposinf(x).sum(), np.isneginf(x).sum(), (x == 0).sum(), poison,
           finite.min() if some else 0, finite.max() if some else 0,
           np.add.accumulate(finite)[-1] / finite.size if some else 0,
           l2]
    return np.array(row, np.float64), checksum


_G = GOLDEN - (1 << 64)  # as a signed 64-bit number
_LAYOUTS = {}  # (number formats and lengths in order, device) -> what does not depend on values


def _terms(z):
    """what words add to a checksum, of int64 tensors: products wrap, shifts bring in zeros"""
    return z * ((z >> 32) & ((1 << 32) - 1) | 1)


def _layout(shapes, device):
    """lengths, ends, whether an element begins a word of the checksum, that word's (i + 1) * G, whether another element
    of its tensor follows, whether it is float32"""
    key = (shapes, device)
    if key not in _LAYOUTS:
        if len(_LAYOUTS) >= 16:
            _LAYOUTS.clear()
        lengths = [n for _, n in shapes]
        spread = lambda values: torch.repeat_interleave(values.to(device), n, output_size=sum(lengths))
        n = torch.tensor(lengths, dtype=torch.int64, device=device)
        ends = torch.cumsum(n, 0)
        place = torch.arange(sum(lengths), dtype=torch.int64, device=device) - spread(ends - n)
        wide = spread(torch.tensor([dtype.itemsize == 8 for dtype, _ in shapes]))
        begins = (wide | (place % 2 == 0)).to(torch.int64)
        order = (torch.where(wide, place, place // 2) + 1) * _G
        single = spread(torch.tensor([dtype == torch.float32 for dtype, _ in shapes]))
        _LAYOUTS[key] = n, ends, begins, order, place + 1 < spread(n), single
    return _LAYOUTS[key]


def device_statistics(tensors):
    """([n, 10] float64, [n] int64 with the checksums' bits) of n tensors, not empty, those of one number format behind
    each other, computed where they are, in a few launches for all of them; waits for nothing. Counts, extremes and
    checksums are those of statistics(); sums differ from it by rounding in float64."""
    shapes = tuple((t.dtype, t.numel()) for t in tensors)
    n, ends, begins, order, follows, single = _layout(shapes, tensors[0].device)
    x, bits, at = [], [], 0
    for dtype, group in itertools.groupby(tensors, lambda t: t.dtype):
        flat = torch.cat([t.reshape(-1) for t in group])
        size, after = dtype.itemsize, at + flat.numel()
        word = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]).to(torch.int64)
        if size < 8:  # two elements to a word
            word = word & ((1 << 8 * size) - 1)
            word = word + torch.where(follows[at:after], torch.roll(word, -1) << 32, 0)
        x.append(flat.to(torch.float64))
        bits.append(word)
        at = after
    x, bits = (torch.cat(x), torch.cat(bits)) if len(x) > 1 else (x[0], bits[0])
    finite = torch.isfinite(x)
    flags = torch.stack([torch.isnan(x), x == float("inf"), x == float("-inf"), x == 0,
                         ((bits & 0xFFF00000) == 0x7FE00000) & single, finite]).to(torch.int64)
    counts = torch.cumsum(torch.cat([flags, (_terms(bits + order) * begins)[None]]), 1)[:, ends - 1]
    counts[:, 1:] = counts[:, 1:] - counts[:, :-1]
    x = torch.where(finite, x, 0.0)
    reduce = lambda what, v: torch.segment_reduce(v, what, lengths=n, unsafe=True)
    some = counts[5] > 0
    least = reduce("min", torch.where(finite, x, float("inf")))
    most = reduce("max", torch.where(finite, x, float("-inf")))
    row = torch.stack([n.double(), *counts[:5].double(), torch.where(some, least, 0.0), torch.where(some, most, 0.0),
                       reduce("sum", x) / torch.clamp(counts[5], min=1), torch.sqrt(reduce("sum", x * x))], 1)
    return row, counts[6]


# ---- tensors ------------------------------------------------------------------------------------------------------

def _is_tensor(x):
    return isinstance(x, np.ndarray) or (torch and isinstance(x, torch.Tensor))


def _clone(x):
    """A tensor's values as they are now, where they are"""
    if isinstance(x, np.ndarray):
        return np.array(x, copy=True)
    x = x.detach()
    if hasattr(x, "full_tensor"):  # DTensor of tensor-parallel runs: what this rank holds
        x = x.to_local()
    return x.clone(memory_format=torch.contiguous_format)


def _words(x):
    """(numpy words, origin) of a tensor"""
    if isinstance(x, np.ndarray):
        words = x
    else:
        x = x.detach()
        if hasattr(x, "full_tensor"):
            x = x.to_local()
        kind = str(x.dtype)
        x = x.to("cpu").contiguous()
        if kind == "torch.bfloat16":
            return x.view(torch.int16).numpy().view(np.uint16), "bf16"
        if "float8" in kind:
            x = x.float()
        words = x.numpy()
    if words.dtype == np.float16:
        return words.view(np.uint16), "f16"
    if words.dtype == np.bool_:
        words = words.astype(np.int8)
    if np.iscomplexobj(words):
        return None, None
    names = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32",
             np.dtype(np.int64): "i64", np.dtype(np.int8): "i8"}
    if words.dtype not in names:
        words = words.astype(np.int64 if words.dtype.kind in "iu" else np.float32)
    return words, names[words.dtype]


def _members(output):
    """(place, tensor) of a module's output"""
    if _is_tensor(output):
        return [(0, output)]
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    if isinstance(output, (tuple, list)):
        return [(i, x) for i, x in enumerate(output) if _is_tensor(x)]
    return []


def parse_size(text):
    """"2GB", "512M", 1000 -> bytes; None: no bound"""
    if text is None or isinstance(text, int):
        return text
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", text.upper())
    if not m:
        raise ValueError(f"budget {text!r}: expected a size such as 2GB or 512M")
    return int(float(m[1]) * 1024 ** " KMGT".index(m[2] or " "))


def parse_points(text):
    """"layers.0-3", "layers.0,2 norm", "layers.*.mlp" -> predicate over module paths. Words are alternatives; a word
    matches a path that contains it as a run of whole components, or the path's end."""
    if not text:
        return lambda path: True
    patterns = []
    for word in re.split(r"[\s;]+", text.strip()):
        parts = []
        for part in word.split("."):
            if re.fullmatch(r"[\d,\-]*\d[\d,\-]*", part):
                numbers = set()
                for one in part.split(","):
                    m = re.fullmatch(r"(\d+)(?:-(\d+))?", one)
                    if not m or (m[2] and int(m[2]) < int(m[1])):
                        raise ValueError(f"points {text!r}: {one!r} is not a number or a range a-b")
                    numbers |= set(range(int(m[1]), int(m[2] or m[1]) + 1))
                parts.append("(?:" + "|".join(map(str, sorted(numbers))) + ")")
            else:
                parts.append(re.escape(part).replace(r"\*", r"[^.]*"))
        patterns.append(re.compile(r"(?:^|.*\.)" + r"\.".join(parts) + r"(?:\..*)?$"))
    return lambda path: any(p.match(path) for p in patterns)


# ---- the file -----------------------------------------------------------------------------------------------------

class _Writer:
    """capture format 1: temporary name, flushed after each step, complete = 1 last, then renamed"""

    def __init__(self, path, tier, budget, about):
        if tier not in ("stats", "sketch", "rows", "full"):
            raise ValueError(f"tier {tier!r}: expected stats, sketch, rows or full")
        self.path, self.temporary, self.tier, self.budget, self.used = path, path + ".partial", tier, budget, 0
        self.file = h5py.File(self.temporary, "w")
        self.dropped, self.step, self.prompt, self.rows, self.sketches = [], -1, None, [], []
        self.waiting, self.on_device = [], []
        a = self.file.attrs
        a["assay_capture"], a["complete"], a["naming"] = np.int32(1), np.int32(0), "modules"
        a["created"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name, value in about.items():
            a[name] = value
        self.file.create_group("prompts")

    def begin_prompt(self, name, tokens, text=None):
        self.end_prompt()
        self.prompt = self.file["prompts"].create_group(name)
        if text is not None:
            self.prompt.attrs["text"] = text
        self.prompt["tokens"] = np.asarray(tokens, np.int32)
        self.prompt.create_group("steps")
        self.step = -1

    def begin_step(self, tokens, first_position):
        self.step += 1
        self.waiting.append((self.step, np.asarray(tokens, np.int32), first_position))
        if self.tier in ("rows", "full") or len(self.waiting) >= 64:
            self.settle()

    def settle(self):
        """steps that began, and rows that lie on a device, into the file"""
        for step, tokens, first_position in self.waiting:
            self.group = self.prompt["steps"].create_group(f"{step:04d}")
            self.group.attrs["phase"] = "prefill" if step == 0 or len(tokens) > 1 else "decode"
            self.group.attrs["first_position"] = np.int64(first_position)
            self.group.attrs["n_tokens"] = np.int64(len(tokens))
            self.group["tokens"] = tokens
            self.n_tokens = len(tokens)
        self.waiting = []
        for names, steps, row, checksum in self.on_device:
            self.rows += zip(names, steps, row.cpu().numpy(), (int(c) & MASK for c in checksum.cpu().numpy()))
        self.on_device = []
        self.file.flush()

    def statistics_of(self, values):
        """rows of (name, step, tensor), computed where they are; not waited for"""
        devices = {}
        for name, step, x in values:
            if x.numel():
                devices.setdefault(x.device, []).append((name, step, x))
            else:
                self.value(name, step, *_words(x), 0)
        for members in devices.values():
            members.sort(key=lambda m: str(m[2].dtype))
            with torch.no_grad():
                row, checksum = device_statistics([x for _, _, x in members])
            self.on_device.append(([m[0] for m in members], [m[1] for m in members], row, checksum))

    def value(self, name, step, words, origin, address):
        if words is None:
            return
        row, checksum = statistics(words, origin)
        if self.tier == "sketch":
            for group, numbers in enumerate(sketch(widen(words, origin))):
                self.sketches.append((len(self.rows), group, numbers))
        self.rows.append((name, step, row, checksum))
        if self.tier not in ("rows", "full") or name in self.group:
            return
        kept = None
        n = self.n_tokens
        if self.tier == "rows" and n > 4 and n in words.shape:
            axis = words.shape.index(n)
            kept = np.array([0, 1, n - 2, n - 1], np.int32)
            words = np.take(words, kept, axis)
        if self.budget is not None and self.used + words.nbytes > self.budget:
            self.dropped.append(f"{self.group.name}/{name}: {words.nbytes} bytes are over the budget of {self.budget}")
            return
        self.used += words.nbytes
        data = self.group.create_dataset(name, data=words)
        data.attrs["origin"] = origin
        data.attrs["counts"] = np.array([row[1], row[2], row[3], row[4], row[5]], np.int64)
        data.attrs["buffer"] = np.array([address, 0, 0, address, 0, 0], np.uint64)
        data.attrs["word_sum"] = np.uint64(checksum)
        if kept is not None:
            data.attrs["rows"] = kept

    def end_prompt(self):
        if self.prompt is None:
            return
        self.settle()
        if not self.rows:
            return
        g = self.prompt.create_group("stats")
        g.attrs["columns"] = " ".join(COLUMNS)
        names = [r[0].encode() for r in self.rows]
        g["point"] = np.array(names, "S64" if max(map(len, names)) < 64 else None)
        g["step"] = np.array([r[1] for r in self.rows], np.int32)
        g["values"] = np.array([r[2] for r in self.rows], np.float64)
        g["word_sum"] = np.array([r[3] for r in self.rows], np.uint64)
        if self.sketches:
            g = self.prompt.create_group("sketch")
            g["row"] = np.array([s[:2] for s in self.sketches], np.int32)
            g["values"] = np.array([s[2] for s in self.sketches], np.float32)
        self.rows, self.sketches = [], []

    def finish(self):
        self.end_prompt()
        if self.dropped:
            self.file.create_dataset("dropped", data=self.dropped, dtype=h5py.string_dtype())
        self._close()
        with h5py.File(self.temporary, "r+") as f:
            f.attrs["complete"] = np.int32(1)
        self._sync()
        os.replace(self.temporary, self.path)

    def abandon(self):
        self.file.close()
        os.unlink(self.temporary)

    def _close(self):
        self.file.close()
        self._sync()

    def _sync(self):
        with open(self.temporary, "rb") as f:
            os.fsync(f.fileno())


# ---- hooks --------------------------------------------------------------------------------------------------------

PENDING = 32 << 20  # bytes of clones that wait for the end of a step


class _Taps:
    """What is shown, kept at once, in the file when the step is over.

    Kept means cloned. Where only statistics are asked for and tensors count their writes (they do not in inference mode),
    a value that nobody wrote to until its statistics were computed is referred to from then on; if its count has moved
    before the next ones are, they are left out, listed under /dropped, and it is cloned from then on."""

    def __init__(self, writer):
        self.writer, self.active, self.pending, self.bytes = writer, False, [], 0
        self.counts, self.steady = False, set()

    def begin(self):
        self.active = True
        self.counts = (torch is not None and self.writer.tier == "stats" and hasattr(torch, "is_inference_mode_enabled")
                       and not torch.is_inference_mode_enabled())

    def take(self, name, x):
        if not self.active:
            return
        if type(x) is not _TENSOR:
            self.keep(name, _clone(x), None, 0, x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr())
        elif self.counts and not x.is_inference():
            self.keep(name, x if name in self.steady else _clone(x), x, x._version, x.data_ptr())
        elif x.is_contiguous() and not x.requires_grad:
            self.keep(name, x.clone(), None, 0, x.data_ptr())
        else:
            self.keep(name, _clone(x), None, 0, x.data_ptr())

    def keep(self, name, kept, original, version, address):
        self.pending.append((name, self.writer.step, kept, original, version, address))
        self.bytes += kept.nbytes
        if self.bytes > PENDING:
            self.flush()

    def end_step(self):
        """statistics are computed for some steps at once"""
        if self.writer.tier != "stats" or len(self.pending) > 2048:
            self.flush()

    def is_whole(self, name, step, kept, original, version):
        """learns whether a value is left alone; whether this one is what was seen"""
        if original is None or original._version == version:
            if original is not None:
                self.steady.add(name)
            return True
        self.steady.discard(name)
        if kept is original:
            self.writer.dropped.append(f"{name}, step {step}: written to after it was seen")
        return kept is not original

    def flush(self):
        pending, self.pending, self.bytes = [p for p in self.pending if self.is_whole(*p[:5])], [], 0
        if self.writer.tier == "stats":
            on_host = [isinstance(p[2], np.ndarray) or p[2].device.type == "cpu" for p in pending]
            self.writer.statistics_of([p[:3] for p, host in zip(pending, on_host) if not host and not p[2].is_complex()])
            pending = [p for p, host in zip(pending, on_host) if host]
        for name, step, kept, _, _, address in pending:
            self.writer.value(name, step, *_words(kept), address)


_OPEN = {}  # session -> (taps, names), for the operator of compiled graphs

if torch and hasattr(torch, "library") and hasattr(torch.library, "custom_op"):
    @torch.library.custom_op("assay::show", mutates_args=("token",))
    def _show(x: torch.Tensor, token: torch.Tensor, session: int, slot: int) -> None:
        """token is said to be written, so that no compiler drops the call"""
        if session in _OPEN:
            taps, names = _OPEN[session]
            taps.take(names[slot], x)

    @_show.register_fake
    def _(x, token, session, slot):
        return None


def _outside_graphs(function):
    """runs as Python also where its caller is compiled"""
    return torch.compiler.disable(function) if torch and hasattr(torch, "compiler") else function


class _Session:
    """show(name) gives the function that shows tensors of that name"""
    n = 0

    def __init__(self, taps, device, compiled):
        self.compiled = compiled
        _Session.n += 1
        self.number, self.taps, self.names = _Session.n, taps, []
        self.token = torch.zeros(1, device=device) if torch else None
        _OPEN[self.number] = (taps, self.names)

    def show(self, name):
        slot, number, token, take = len(self.names), self.number, self.token, self.taps.take
        self.names.append(name)
        if not self.compiled:
            return lambda x: take(name, x)

        def show(x):
            if torch.compiler.is_compiling():
                _show(x.detach(), token, number, slot)
            else:
                take(name, x)
        return show

    def close(self):
        del _OPEN[self.number]


def _is_compiled(model):
    return torch is not None and (hasattr(model, "_orig_mod") or
                                  getattr(model, "_compiled_call_impl", None) is not None)


def _modules(model):
    """(path, module) without the model itself and without what torch.compile puts in front"""
    for name, module in model.named_modules():
        name = name.removeprefix("_orig_mod").removeprefix(".")
        if name:
            yield name, module


def _first_ids(args, kwargs):
    """token ids of a call of the whole model: int array [n]"""
    candidates = [kwargs.get("input_ids")] + list(args) + list(kwargs.values())
    for x in candidates:
        if not _is_tensor(x):
            continue
        words, origin = _words(x)
        if origin in ("i32", "i64") and words.ndim in (1, 2):
            if words.ndim == 2 and words.shape[0] != 1:
                raise ValueError(f"a batch of {words.shape[0]} sequences: capture one sequence at a time")
            return words.reshape(-1)
    return None


def _first_position(args, kwargs, default):
    """by name, or behind the ids, as SGLang's models take it"""
    for x in [kwargs.get(n) for n in ("cache_position", "position_ids", "positions")] + list(args[1:2]):
        words, origin = _words(x) if _is_tensor(x) else (None, None)
        if origin in ("i32", "i64") and words.ndim in (1, 2) and words.size:
            return int(words.reshape(-1)[0])
    return default


class _AttentionTap:
    """Shows what attention functions of transformers' modeling files are given and give back:
    self_attn.query, key, value, attn_kernel_out, probs. Modules that are watched carry assay_taps."""
    NAMES = ("query", "key", "value", "attn_kernel_out", "probs")

    def __init__(self, model, session, wanted):
        self.undo, self.marked = [], []
        files = {}
        for path, m in _modules(model):
            module = sys.modules.get(type(m).__module__)
            if module is None or not type(m).__name__.endswith("Attention"):
                continue
            m.assay_taps = tuple(session.show(f"{path}.{n}") if wanted(f"{path}.{n}") else None for n in self.NAMES)
            self.marked.append(m)
            files[id(module)] = module
        for module in files.values():
            for name in ("eager_attention_forward", "ALL_ATTENTION_FUNCTIONS"):
                if hasattr(module, name):
                    old = getattr(module, name)
                    setattr(module, name, self.wrap(old) if name.startswith("eager") else _Table(old, self.wrap))
                    self.undo.append((module, name, old))

    @staticmethod
    def wrap(function):
        def attention(module, query, key, value, *args, **kwargs):
            taps = getattr(module, "assay_taps", None) or (None,) * 5
            for show, x in zip(taps, (query, key, value)):
                if show is not None:
                    show(x)
            out = function(module, query, key, value, *args, **kwargs)
            outs = out if isinstance(out, tuple) else (out,)
            for show, x in zip(taps[3:], outs):
                if show is not None and x is not None:
                    show(x)
            return out
        attention.assay_wrapped = True
        return attention

    def close(self):
        for module, name, old in reversed(self.undo):
            setattr(module, name, old)
        for m in self.marked:
            del m.assay_taps


class _Table:
    """transformers' table of attention functions, each wrapped when it is looked up"""

    def __init__(self, table, wrap):
        self._table, self._wrap = table, wrap

    def _one(self, function):
        return function if function is None or getattr(function, "assay_wrapped", False) else self._wrap(function)

    def __getitem__(self, key):
        return self._one(self._table[key])

    def get(self, key, default=None):
        return self._one(self._table.get(key, default))

    def get_interface(self, *args, **kwargs):
        return self._one(self._table.get_interface(*args, **kwargs))

    def __getattr__(self, name):
        return getattr(self._table, name)

    def __contains__(self, key):
        return key in self._table


def _ranks():
    try:
        import torch.distributed as dist
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
    except ImportError:
        pass
    return 0, 1


def _dtype_of(model):
    for p in getattr(model, "parameters", lambda: [])():
        return {"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float64": "f64"}.get(str(p.dtype), "f32")
    return "f32"


def _device_of(model):
    for p in getattr(model, "parameters", lambda: [])():
        return p.device
    return "cpu"


@contextlib.contextmanager
def capture(model, path, points=None, tier="full", budget=None, prompt="default", text=None, producer="transformers",
            rank=None, ranks=None, model_sha256=None, attention=True, trailing=False):
    """Captures every module whose path `points` selects while the block runs. Each call of the model is a step.
    Several ranks write one file each: '.rank<r>of<n>' is put in front of the ending. trailing: modules that run behind
    the model's call (an engine's output head) belong to its step."""
    here, n = _ranks()
    rank, ranks = here if rank is None else rank, n if ranks is None else ranks
    if ranks > 1:
        stem, dot, end = path.rpartition(".")
        path = f"{stem if dot else path}.rank{rank}of{ranks}{dot}{end if dot else ''}"
    about = {"producer": producer, "model_class": type(getattr(model, "_orig_mod", model)).__name__, "dtype": _dtype_of(model),
             "rank": np.int32(rank), "ranks": np.int32(ranks), "backend": "torch",
             "mode": "compiled" if _is_compiled(model) else "eager"}
    if model_sha256:
        about["model_sha256"] = model_sha256
    wanted = parse_points(points)
    writer = _Writer(path, tier, parse_size(budget), about)
    taps = writer.taps = _Taps(writer)
    session = _Session(taps, _device_of(model), _is_compiled(model))
    state = {"position": 0, "began": False}

    @_outside_graphs
    def before(module, args, kwargs):
        taps.end_step()
        ids = _first_ids(args, kwargs)
        taps.active = False
        if ids is None:
            return
        taps.begin()
        if not state["began"]:
            writer.begin_prompt(prompt, ids, text)
            state["began"] = True
        first = _first_position(args, kwargs, state["position"])
        writer.begin_step(ids, first)
        state["position"] = first + len(ids)

    def after(name):
        shows = [session.show(name + suffix) for suffix in ("", ".out1", ".out2", ".out3")]
        first = shows[0]

        def hook(module, args, output):
            if type(output) is _TENSOR:
                first(output)
                return
            for i, x in _members(output):
                if i < len(shows):
                    shows[i](x)
        return hook

    @_outside_graphs
    def finish(module, args, output):
        logits = getattr(output, "logits", getattr(output, "next_token_logits", None))
        if _is_tensor(logits):
            taps.take("logits", logits)
        if not trailing:
            taps.end_step()
            taps.active = False

    if _is_compiled(model):
        torch._dynamo.reset()
    handles = [model.register_forward_pre_hook(before, with_kwargs=True)]
    for name, module in _modules(model):
        if wanted(name):
            handles.append(module.register_forward_hook(after(name)))
    handles.append(model.register_forward_hook(finish))
    tap = _AttentionTap(model, session, wanted) if attention else None
    try:
        yield writer
        taps.flush()
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    finally:
        for h in handles:
            h.remove()
        if tap:
            tap.close()
        session.close()
        if _is_compiled(model):
            torch._dynamo.reset()


# ---- replacement --------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def force(model, path, points=None, prompt=None):
    """Feeds tensors of a file (a capture of this module, or a dump with /<prompt>/step0000/<module path>) in place of
    the outputs of the modules that `points` selects, step by step. A module that the file lacks is left alone."""
    wanted = parse_points(points)
    f = h5py.File(path, "r")
    base = f["prompts"] if "prompts" in f else f
    names = [k for k in base if isinstance(base[k], h5py.Group) and ("steps" in base[k] or "step0000" in base[k])]
    name = prompt or names[0]
    steps = base[name]["steps"] if "steps" in base[name] else base[name]
    keys = sorted(k for k in steps if isinstance(steps[k], h5py.Group))
    state, used = {"step": -1}, []

    def before(module, args, kwargs):
        if _first_ids(args, kwargs) is not None:
            state["step"] += 1

    def like(x, data):
        origin = data.attrs.get("origin", "")
        origin = origin.decode() if isinstance(origin, bytes) else origin
        values = widen(data[...], origin)
        if isinstance(x, np.ndarray):
            return values.astype(x.dtype).reshape(x.shape)
        return torch.from_numpy(np.ascontiguousarray(values)).to(device=x.device, dtype=x.dtype).reshape(x.shape)

    def after(path_of):
        def hook(module, args, output):
            if not 0 <= state["step"] < len(keys):
                return None
            group = steps[keys[state["step"]]]
            if path_of not in group:
                return None
            used.append((state["step"], path_of))
            if _is_tensor(output):
                return like(output, group[path_of])
            if isinstance(output, (tuple, list)) and output and _is_tensor(output[0]):
                return type(output)([like(output[0], group[path_of])] + list(output[1:]))
            return None
        return hook

    handles = [model.register_forward_pre_hook(before, with_kwargs=True)]
    for n, module in _modules(model):
        if wanted(n):
            handles.append(module.register_forward_hook(after(n)))
    try:
        yield used
    finally:
        for h in handles:
            h.remove()
        f.close()


# ---- workers of serving engines -----------------------------------------------------------------------------------

def install_vllm(worker, path, **options):
    """For workers of vLLM and SGLang, found by public attributes (model_runner.get_model() or .model); eager mode.

        llm = vllm.LLM(MODEL, enforce_eager=True)
        llm.collective_rpc(assay_torch.install_vllm, args=("cap.h5",))
        llm.generate(PROMPT, ...)                                # one request at a time
        llm.collective_rpc(assay_torch.finish_vllm)

    The output head runs behind the model's call, and its logits belong to the step before."""
    runner = getattr(worker, "model_runner", worker)
    model = runner.get_model() if hasattr(runner, "get_model") else runner.model
    options = {"producer": "sglang" if type(runner).__module__.startswith("sglang") else "vllm",
               "attention": False, "trailing": True} | options
    stack = contextlib.ExitStack()
    stack.enter_context(capture(model, path, **options))
    worker.assay_capture = stack


def finish_vllm(worker):
    """writes the file"""
    worker.assay_capture.close()
    del worker.assay_capture
