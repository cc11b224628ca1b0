# A capture of a run, what is in it, and that it agrees with itself.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay run $model -p "Count from 6 to 10:" -n 2 --capture "$scratch/a.h5" --points "layer=0-1 point=attn.*" >/dev/null
assay inspect "$scratch/a.h5" -v --step 1 | norm
assay compare "$scratch/a.h5" "$scratch/a.h5" | norm | head -3
assay diagnose "$scratch/a.h5" --model $model | norm | head -2
