# What a byte budget left out is said by whoever reads the capture.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay run $model -p "Count from" -n 1 --capture "$scratch/b.h5" --budget 100K >/dev/null
assay reference $model -p "Count from" -n 1 --no-floor -o "$scratch/r.h5" -q >/dev/null
for words in "inspect $scratch/b.h5" "compare $scratch/b.h5 $scratch/r.h5" \
    "diagnose $scratch/b.h5 --model $model"; do
    assay $words >"$scratch/o"
    echo "${words%% *} $?"
    tr -s '\n ' ' ' <"$scratch/o" | grep -o "its budget of [^:]*: of these it has the statistics alone"
done
assay run $model -p "Count from" -n 1 --tier sketch --capture "$scratch/s.h5" --budget 100K >/dev/null
assay inspect "$scratch/s.h5" | grep -o "its budget of [^:]*"
