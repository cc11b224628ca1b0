"""The metrics of `assay compare` in plain numpy, over values that are mapped: what a script would do.

    compare_numpy.py A.h5 B.h5      prints seconds of the clock and of the processor

Places of the values come from h5dump, so that numpy is all it needs. No checksums, no KL."""
import re
import subprocess
import sys
import time

import numpy as np

HEAD = re.compile(
    r'DATASET "([^"]+)" \{\s+DATATYPE\s+H5T_IEEE_F32LE\s+DATASPACE\s+SIMPLE \{ \( ([0-9, ]+) \)'
    r".*?CONTIGUOUS\s+SIZE (\d+)\s+OFFSET (\d+)",
    re.S,
)


def places(path):
    text = subprocess.run(["h5dump", "-p", "-H", path], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"(?=DATASET \")", text)
    for number, part in enumerate(parts):
        found = HEAD.match(part)
        if found:
            yield number, [int(n) for n in found[2].split(",")], int(found[4])


def rows_of(path):
    bytes_ = np.memmap(path, np.uint8, "r")
    for number, dims, at in places(path):
        count = int(np.prod(dims))
        yield number, bytes_[at : at + 4 * count].view(np.float32).reshape(dims)


def compare(got, ref):
    if got.ndim == 3 and got.shape[1] == got.shape[2]:  # heads in front of the tokens
        got, ref = got.transpose(1, 0, 2), ref.transpose(1, 0, 2)
    tokens = got.shape[0]
    g, r = got.astype(np.float64), ref.astype(np.float64)
    finite = np.isfinite(g) & np.isfinite(r)
    masks = int((np.isfinite(g) != np.isfinite(r)).sum() + np.isnan(g).sum() + np.isnan(r).sum())
    g, r = np.where(finite, g, 0), np.where(finite, r, 0)
    d = g - r
    sums = [np.einsum("...i,...i->...", x, y) for x, y in ((g, g), (r, r), (d, d), (d, r))]
    gg, rr, dd, dr = sums
    with np.errstate(all="ignore"):
        error, gain = np.sqrt(dd / rr), 1 + dr / rr
        energy = rr.reshape(tokens, -1).sum(1)
        weight = np.where(energy > 0, 1 / energy, 0).reshape([tokens] + [1] * (d.ndim - 1))
        channel = 1 + (weight * d * r).sum(0) / (weight * r * r).sum(0)
    return (masks, np.median(error), np.nanmax(error), np.nanmedian(gain), np.nanmedian(channel), np.abs(d).max(),
            1 - (rr.sum() + dr.sum()) / np.sqrt(gg.sum() * rr.sum()))


def main():
    sides = [dict(rows_of(path)) for path in sys.argv[1:3]]
    for side in sides:  # pages come in
        for x in side.values():
            x.max()
    began, cpu = time.perf_counter(), time.process_time()
    for number, got in sides[0].items():
        ref = sides[1].get(number)
        if ref is not None and ref.shape == got.shape and got.ndim > 1:
            compare(got, ref)
    print(f"{time.perf_counter() - began:.3f} {time.process_time() - cpu:.3f}")


main()
