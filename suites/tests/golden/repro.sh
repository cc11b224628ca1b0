# A finding leaves as a small file and is shown again without the model.
model=suites/data/glm5-tiny-Q4_K_M.gguf
bug=$scratch/bug.h5
assay run $model -p "Count from 6 to 10:" -n 2 --plant file-order:layer=3 --capture "$scratch/run.h5" -q >/dev/null || exit
assay diagnose "$scratch/run.h5" --model $model --json >"$scratch/result.json"
echo "diagnose: $?"
assay repro "$scratch/result.json" 1 -o "$bug" | norm
# The first wrong value alone, of a layer that there is.
assay show "$scratch/run.h5" blk.3.attn.q_a --model $model --rows 0-0 | grep -vE "^ +(=  )? +0 " | norm
assay show "$scratch/run.h5" blk.9.attn.q_a --model $model 2>&1 | norm
rm "$scratch/run.h5"
assay repro "$bug" >"$scratch/shown"
echo "repro: $?"
norm <"$scratch/shown" | grep -E "^(FAIL|    | 1\.| - )|where|points|fitted" | grep -v "^     "
[ "$(stat -c %s "$bug")" -lt 2000000 ] || echo "the bundle is large"
assay repro "$scratch/result.json" 1 2>&1 | norm | head -1
assay repro "$scratch/result.json" 99 -o "$bug" 2>&1 | norm | head -1 | sed "s/[0-9]*$/N/"
assay repro "$scratch/result.json" 1 -o "$bug" 2>&1 | norm
ls "$scratch"
