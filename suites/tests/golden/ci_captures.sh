# A CI run over ten captures, clean and faulty: exit status, and the counts of each format.
data=${ASSAY_DATA:-../shared/data}
[ -r "$data/candidates/none.h5" ] || {
    echo "skip: the larger data is not here" >&2
    exit 125
}
command -v python3 >/dev/null || {
    echo "skip: no python3" >&2
    exit 125
}

count() {
    python3 -c '
import json, re, sys
folder = sys.argv[1]
result = json.load(open(folder + "/result.json"))
sarif = json.load(open(folder + "/report.sarif"))
junit = open(folder + "/junit.xml").read()
page = open(folder + "/index.html").read()
first = result["findings"][0]["point"] if result["findings"] else "-"
print(result["verdict"], "findings", len(result["findings"]), "sarif", len(sarif["runs"][0]["results"]),
      "junit", re.search("failures=\"(\\d+)\"", junit).group(1), "cards", page.count("<article"), "first", first)
' "$1"
}

run() {
    assay compare "$1" "$2" --report "$scratch/report" >/dev/null 2>&1
    status=$?
    echo "$(basename "$1"): status $status, $(count "$scratch/report")"
}

for name in none phantom_all fused_swap headswap neox noshared two nan; do
    run "$data/candidates/$name.h5" "$data/references/glm5-tiny-bf16.hf-fp32.h5"
done
for name in dsv3-tiny-bf16 llama-tiny-bf16; do
    run "$data/references/$name.hf-bf16.h5" "$data/references/$name.hf-fp32.h5"
done
