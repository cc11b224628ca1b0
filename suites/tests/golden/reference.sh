# A reference by the oracle: its first line, its continuation, what a diagnosis says of it, refusals.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay reference $model -p "Count from 6 to 10:" -n 4 -o "$scratch/r.h5" | sed 's/; rounding moves.*//' | norm
assay diagnose "$scratch/r.h5" --model $model | sed -n '1s/; [0-9.]* s$//p'
echo "17 300 301" >"$scratch/ids"
assay reference $model --tokens "$scratch/ids" --layers 1-2 --points "point=attn.proj,out" --no-floor -o "$scratch/p.h5" | norm
assay inspect "$scratch/p.h5" | tail -1
for wrong in "--layers 0-9" "--layers 0-1 -n 2" "--points point=attn.prjo" "--conventions no-such-engine" "--path both"; do
    assay reference $model --tokens "$scratch/ids" -o "$scratch/x.h5" $wrong 2>"$scratch/err"
    echo "exit $?: $(sed -n 1p "$scratch/err")"
done
[ ! -e "$scratch/x.h5" ] && echo "no file left"
