"""Judges what live.py captured.

    judge.py OUT MODEL... [--assay build/host/assay] [--least 0.9]

MODEL: the GGUF file or the folder of the checkpoint, by the name that live.py wrote down (glm5-tiny -> glm5-tiny*).
Clean captures must show nothing; of the faults, at least that share must be named: class, point and layer, and nothing
else beside them. Exit status 0: so it is.
"""
import argparse, glob, json, os, subprocess, sys


def diagnose(assay, capture, model):
    run = subprocess.run([assay, "diagnose", capture, "--model", model, "--json"], capture_output=True, text=True,
                         env=dict(os.environ, OMP_NUM_THREADS="1"))
    if run.returncode not in (0, 1):
        return None, run.stderr.strip()
    return json.loads(run.stdout), ""


def named(found, want):
    """the one finding is what was put in"""
    if len(found) != 1:
        return False
    f = found[0]
    at = [p for p in f["points"] + [f["point"]] if p.endswith("." + want["point"])]
    return f["class"] in want["expect"].split("|") and bool(at) and (want["layer"] is None or f["layers"] == [want["layer"]])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("models", nargs="+")
    p.add_argument("--assay", default="build/host/assay")
    p.add_argument("--least", type=float, default=0.9)
    a = p.parse_args()
    bad, right, faults = 0, 0, 0
    for about in sorted(glob.glob(os.path.join(a.out, "*.json"))):
        with open(about) as f:
            live = json.load(f)
        model = next(m for m in a.models if os.path.basename(m.rstrip("/")).startswith(live["model"]))
        print(f"{live['model']} {live['dtype']}: torch {live['torch']}, transformers {live['transformers']}, "
              f"{live['gpu'] or live['device']}")
        for what, want in live["captures"].items():
            result, error = diagnose(a.assay, about[:-len("json")] + what + ".h5", model)
            found = result["findings"] if result else []
            text = error or "; ".join(f"{f['class']} at {f['point']} ({f['kind']}), layers {f['layers']}" for f in found) or "nothing found"
            if want["expect"] is None:
                ok = result is not None and not found and result["coverage"]["judged"] > 0
                bad += not ok
            else:
                ok = result is not None and named(found, want)
                right, faults = right + ok, faults + 1
            judged = f"{result['coverage']['judged']}/{result['coverage']['points']}" if result else "-"
            print(f"  {'ok   ' if ok else 'WRONG'} {what:16} {judged:>9}  {text}")
        for what, row in live.get("cost", {}).items():
            print(f"  statistics of every module, {what} of {row['tokens']} tokens: {row['stats_ms']:.2f} ms for "
                  f"{row['plain_ms']:.2f} ms, x {row['ratio']:.3f}")
    print(f"faults named: {right} of {faults}; clean captures with findings: {bad}")
    sys.exit(bool(bad) or right < a.least * faults)


if __name__ == "__main__":
    main()
