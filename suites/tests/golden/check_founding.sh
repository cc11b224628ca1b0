# Both founding faults in one run, the second behind the first.
assay check suites/data/glm5-tiny-Q4_K_M.gguf --reference suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5 \
    --plant phantom-output:layer=1 --plant file-order:layer=3 >"$scratch/o"
status=$?
grep -E '^ [12]\. [A-Z-]+ at ' "$scratch/o"
awk '/^check +verdict/ { rows = 1; next } /^$/ { rows = 0 } rows && /^[a-z]/ { print $1, $2 }' "$scratch/o"
exit $status
