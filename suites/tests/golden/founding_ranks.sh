# Both founding faults at eight ranks, the one on a single rank: they stand before what eight ranks may do to blocks of weights.
assay check suites/data/glm5-tiny-Q4_K_M.gguf --ranks 8 --plant phantom-output:rank=5 --plant file-order >"$scratch/o"
status=$?
grep -E '^ [1-3]\. [A-Z-]+ at ' "$scratch/o" | cut -d: -f1,2 | cut -c1-80
exit $status
