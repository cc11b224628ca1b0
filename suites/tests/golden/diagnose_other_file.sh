# A dump of the bfloat16 original, judged by the quantized file: the first finding says what may be the matter.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay diagnose suites/data/glm5-tiny-bf16.two.h5 --model $model >"$scratch/out"
echo "status $?"
grep -A1 "^ 1\. UNKNOWN" "$scratch/out" | head -1
grep -A3 "an embedding is a row" "$scratch/out" | sed 's/^ *//'
