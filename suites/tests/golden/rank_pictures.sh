# What the page draws by rank: whose slice each rank holds, where the finding says it, and nothing where no copy is right.
command -v python3 >/dev/null || {
    echo "skip: no python3" >&2
    exit 125
}
model=suites/data/glm5-tiny-Q4_K_M.gguf
try() {
    rm -f "$scratch"/run.*
    assay run $model -p "Count from 6 to 10:" -n 1 --ranks 4 --plant "$1" --capture "$scratch/run.h5" -q >/dev/null || exit
    assay diagnose "$scratch"/run.rank?of4.h5 --model $model --json >"$scratch/result.json"
    echo "$1: $?"
    python3 - "$scratch/result.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
for m in result["series"]["maps"]:
    if m["y"] != "rank":
        continue
    print(m["title"])
    for row in m["values"]:
        print("  " + ("".join(f"{v:.0f}" for v in row) if m["unit"] == "what it holds" else
                      " ".join(f"{v:.1f}" for v in row)))
PY
}
try rank-slice:layer=1
try rank-shifted:rank=1
try rank-short:rank=3
try rank-columns-shifted:rank=2,value=8,layer=1
try rank-other-axis:rank=1,layer=1
try rank-norm-late:rank=1,layer=1
try gate-up-order:rank=1
try reduce-missing:layer=1
