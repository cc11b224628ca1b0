# A checklist of one's own: a finding that is accepted opens the gate until its day, and at its places alone.
model=suites/data/glm5-tiny-Q4_K_M.gguf
list() {
    cat >"$scratch/ours.yaml" <<END
checklist: ours
checks: [file, ops]
accept:
  - class: FUSED-ORDER
    point: $1
    reason: known, ticket 4711
    owner: J. Doe
    expires: $2
END
}
try() {
    list "$1" "$2"
    assay check $model --list "$scratch/ours.yaml" --plant file-order:layer=3 --report "$scratch/report" >"$scratch/out"
    echo "$1 until $2: $?"
    head -1 "$scratch/out" | cut -d';' -f1,2
    grep -A1 -E "^(ops|accept) " "$scratch/out" | norm | tr -s " "
    grep -oE '<testcase [^>]*name="(ops|accept)"[^>]*>(<(skipped|failure))?' "$scratch/report/junit.xml" | sed 's/ time="[^"]*"//'
}
try 'blk.3.attn.*' 2999-01-31
try 'blk.3.attn.q_a' 2999-01-31
try 'blk.3.attn.*' 2020-01-31
