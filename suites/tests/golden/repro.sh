# A finding leaves as a small file and is shown again without the model.
model=suites/data/glm5-tiny-Q4_K_M.gguf
bug=$scratch/bug.h5
assay run $model -p "Count from 6 to 10:" -n 2 --plant file-order:layer=3 --capture "$scratch/run.h5" -q >/dev/null || exit
assay diagnose "$scratch/run.h5" --model $model --json >"$scratch/result.json"
echo "diagnose: $?"
assay repro "$scratch/result.json" 1 -o "$bug" | norm
rm "$scratch/run.h5"
assay repro "$bug" >"$scratch/shown"
echo "repro: $?"
norm <"$scratch/shown" | grep -E "^(FAIL|    | 1\.| - )|where|points|fitted" | grep -v "^     "
[ "$(stat -c %s "$bug")" -lt 2000000 ] || echo "the bundle is large"
assay repro "$scratch/result.json" 99 -o "$bug" 2>&1 | norm | head -1 | sed "s/[0-9]*$/N/"
assay repro "$scratch/result.json" 1 -o "$bug" 2>&1 | norm
ls "$scratch"
