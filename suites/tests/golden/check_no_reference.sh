# Without a reference: its rows are skipped with the reason, the others are judged on seeded ids.
assay check suites/data/glm5-tiny-Q4_K_M.gguf --path latent >"$scratch/o"
status=$?
awk '/^check +verdict/ { rows = 1; next } /^$/ { rows = 0 } rows && /^[a-z]/ { print $1, $2 }' "$scratch/o"
grep -oE '(no reference|no expected text).*' "$scratch/o"
exit $status
