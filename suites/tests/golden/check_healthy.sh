# Every row of a healthy model passes. What rows say of small errors differs between machines: it is
# cut away, but for the text of the smoke row.
assay check suites/data/glm5-tiny-Q4_K_M.gguf --reference suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5 \
    --twin suites/data/glm5-tiny-Q4_K_M.hf-bf16.h5 >"$scratch/o"
status=$?
head -1 "$scratch/o" | cut -d: -f1
awk '/^check +verdict/ { rows = 1; next } /^$/ { rows = 0 } rows && /^[a-z]/ { print $1, $2 }' "$scratch/o"
grep -o '"Count.*' "$scratch/o"
exit $status
