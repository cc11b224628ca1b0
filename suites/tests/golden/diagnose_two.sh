# Another engine's dump with both founding faults. The model it was made with is not shipped: the
# larger data set has it.
data=${ASSAY_DATA:-../shared/data}
[ -f "$data/models/glm5-tiny-bf16.gguf" ] || {
    echo "skip: the larger data set is not here" >&2
    exit 125
}
assay diagnose suites/data/glm5-tiny-bf16.two.h5 --model "$data/models/glm5-tiny-bf16.gguf" | norm | sed "s|$data|DATA|g" | head -8
exit "${PIPESTATUS[0]}"
