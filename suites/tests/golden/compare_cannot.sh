# Nothing that cannot be judged passes: other tokens, another prompt, another model, no model hash.
try() {
    assay "$@" >"$scratch/o" 2>"$scratch/e"
    echo "assay $*: $?: $(head -1 "$scratch/o") $(head -1 "$scratch/e")" | norm
}
model=suites/data/glm5-tiny-Q4_K_M.gguf
fp32=suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5
assay run $model -p "Something else" -n 1 --capture "$scratch/else.h5" >/dev/null
try compare "$scratch/else.h5" $fp32
try compare $fp32:nobody $fp32
try compare $fp32:text $fp32:count
try compare $fp32:count $fp32:count
