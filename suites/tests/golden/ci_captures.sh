# A CI run over ten captures, clean and faulty: exit status, and the counts of each format; every file is
# held against its schema by a validator that is not ours.
data=${ASSAY_DATA:-../shared/data}
[ -r "$data/candidates/none.h5" ] || {
    echo "skip: the larger data is not here" >&2
    exit 125
}
command -v python3 >/dev/null || {
    echo "skip: no python3" >&2
    exit 125
}

python3 -c 'import jsonschema' 2>/dev/null && command -v xmllint >/dev/null || {
    echo "skip: no python3-jsonschema or xmllint" >&2
    exit 125
}

valid() {
    python3 -c '
import json, jsonschema, sys
for i in (1, 3):
    jsonschema.validate(json.load(open(sys.argv[i])), json.load(open(sys.argv[i + 1])))
' "$1/result.json" reports/result.schema.json "$1/report.sarif" "$data/schemas/sarif-schema-2.1.0.json" ||
        echo "JSON or SARIF is not valid"
    xmllint --noout --schema "$data/schemas/JUnit.xsd" "$1/junit.xml" 2>/dev/null || echo "JUnit is not valid"
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
    valid "$scratch/report"
}

for name in none phantom_all fused_swap headswap neox noshared two nan; do
    run "$data/candidates/$name.h5" "$data/references/glm5-tiny-bf16.hf-fp32.h5"
done
for name in dsv3-tiny-bf16 llama-tiny-bf16; do
    run "$data/references/$name.hf-bf16.h5" "$data/references/$name.hf-fp32.h5"
done
