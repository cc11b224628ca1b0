# Broken captures through the command line: each must be refused with status 128 and a line that
# names the file, whichever command reads it. A capture that is merely another thing is 128 too.
good=suites/data/glm5-tiny-bf16.two.h5
reference=suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5
model=suites/data/glm5-tiny-Q4_K_M.gguf
size=$(stat -c %s $good)
bad=0

put() { printf "$2" | dd of="$file" bs=1 seek="$1" conv=notrunc status=none; }

refuse() {
    local i status line
    local -a commands=("inspect $file" "compare $file $reference" "compare $reference $file"
        "diagnose $file --model $model" "check $model --reference $file")
    for i in "${!commands[@]}"; do
        # shellcheck disable=SC2086
        assay ${commands[$i]} >"$scratch/o" 2>"$scratch/e" </dev/null
        status=$?
        line=$(grep -m1 '^assay' "$scratch/e" | sed "s|$scratch/||g; s|^assay [a-z]*: ||; s| (HDF5: .*||")
        [ "$i" != 0 ] || echo "${file##*/}: $status: $line"
        case $status:$line in
        128:*"${file##*/}"*) ;;
        *)
            echo "assay ${commands[$i]//$scratch\//}: status $status: $line"
            bad=1
            ;;
        esac
    done
}

case_() {
    file=$scratch/$1
    cp "$good" "$file"
}

for n in 0 8 95 96 800 100000 $((size / 2)) $((size - 1)); do
    file=$scratch/cut-at-$n.h5
    head -c "$n" $good >"$file"
    refuse
done
case_ signature.h5 && put 0 '\x88' && refuse
case_ superblock-version.h5 && put 8 '\x63' && refuse
case_ offset-size.h5 && put 13 '\x03' && refuse
case_ root-address.h5 && put 64 '\xff\xff\xff\xff\xff\xff\x00\x00' && refuse
case_ zeros-behind-superblock.h5 && head -c 4096 /dev/zero | dd of="$file" bs=1 seek=96 conv=notrunc status=none && refuse
file=$scratch/text.h5 && echo 'not a capture' >"$file" && refuse
file=$scratch/folder.h5 && mkdir "$file" && refuse
file=$scratch/absent.h5 && refuse
exit $bad
