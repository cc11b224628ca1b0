# Layers that are not judged are still the inputs of those that are: their faults are not found again.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay run $model -p "Count from 6 to 10:" -n 2 --capture "$scratch/a.h5" --plant file-order:layer=1 -q >/dev/null
assay diagnose "$scratch/a.h5" --model $model --layers 0-1 | norm | head -2
assay diagnose "$scratch/a.h5" --model $model --layers 2-3 | norm | head -1
assay diagnose "$scratch/a.h5" --model $model --layers 7-9 2>&1 | head -1
