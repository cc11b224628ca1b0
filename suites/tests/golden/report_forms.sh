# A saved result in the forms that are asked for and no other; what a fault of two ranks carries for pictures.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay run $model -p "Count from 6 to 10:" -n 2 --ranks 2 --plant rank-slice:layer=2 --capture "$scratch/run.h5" -q >/dev/null || exit
assay diagnose "$scratch"/run.rank0of2.h5 "$scratch"/run.rank1of2.h5 --model $model --json >"$scratch/result.json"
echo "diagnose: $?"
grep -oE '"title": "[^"]*rank and part[^"]*"|"class": "[A-Z-]*"|"assay (show|explain|diagnose)[^"]*--repro DIR"' "$scratch/result.json" | norm | sort -u
assay report "$scratch/result.json" --html "$scratch/page"
echo "html: $?, $(ls "$scratch/page")"
assay report "$scratch/result.json" --report "$scratch/all"
echo "report: $?," $(ls "$scratch/all")
assay report "$scratch/result.json" --format junit --html "$scratch/page" | head -1
assay report $model 2>&1
assay report suites/data/glm5-tiny-bf16.two.h5 2>&1
assay check "$scratch/absent.gguf" 2>&1 | norm
