# Wrong command lines: status 129, and a line that says what is wrong.
try() {
    assay "$@" >"$scratch/o" 2>"$scratch/e" </dev/null
    echo "assay $*: $?: $(grep -v '^Try' "$scratch/e" | head -2 | cut -c1-130 | tr '\n' ' ')"
    [ ! -s "$scratch/o" ] || echo "standard output is not empty"
}
model=suites/data/glm5-tiny-Q4_K_M.gguf
try
try chek
try check
try check a b
try check $model --refrence x
try check $model --refernece=x
try check $model --json --pah latent
try check $model --list --refrence --quite
try check $model --re x
try check $model --ref x --rank 0
try compare a b --ranks 2
try run $model -p --refrence -- --no-file
try run $model --xyzzy
try check $model --twin b
try check $model --dtype f16
try check $model --path both
try check $model --threads 0
try check $model --plant
try check $model --plant no-such-fault
try check $model --plant file-order:layre=1
try run $model -p x --backend cuda --plant head-slices
try run $model -p x --backend cuda --plant softmax-scale:head=1
try run $model -p x --plant stale-lengths
try check $model --profile no-such-engine
try run $model -n -1 -p x
try run $model
try run $model -p x --tokens y
echo 5000 >"$scratch/ids"
try run $model --tokens "$scratch/ids" | sed "s|$scratch/||g"
try run $model -p x --points embed
try run $model -p x --capture c.h5 --budget 5Q
try compare a
: >"$scratch/file"
try check $model --report "$scratch/file/folder" | sed "s|$scratch/||g"
try diagnose $model --model $model
try check suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5
try diagnose a
try explain
try explain NO-SUCH-CLASS
try explain RANKSLICE
try list no-such-table
try list point
try inspect
try help no-such-command
try help dignose
