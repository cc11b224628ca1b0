# Broken model files through the command line: each must be refused with status 128, a reason and a
# place, whichever command reads it.
model=suites/data/glm5-tiny-Q4_K_M.gguf
bad=0

# put OFFSET BYTES...: overwrites bytes of $file.
put() { printf "$2" | dd of="$file" bs=1 seek="$1" conv=notrunc status=none; }

# Where the text first stands in the file.
at() { grep -abom1 -- "$1" "$model" | head -1 | cut -d: -f1; }

refuse() {
    local command status line
    for command in inspect check "run -p x"; do
        # shellcheck disable=SC2086
        set -- $command
        assay "$1" "$file" "${@:2}" >"$scratch/o" 2>"$scratch/e" </dev/null
        status=$?
        line=$(grep -m1 '^assay' "$scratch/e" | sed "s|$scratch/||g; s|^assay [a-z]*: ||")
        [ "$1" = inspect ] && echo "${file##*/}: $status: $line"
        [ $status = 128 ] && [ -n "$line" ] || {
            echo "assay $command ${file##*/}: status $status: $line"
            cat "$scratch/e"
            bad=1
        }
    done
}

case_() {
    file=$scratch/$1
    cp "$model" "$file"
}

for n in 0 3 7 12 23 31 4096 32959 32961 5941791; do
    file=$scratch/cut-at-$n
    head -c $n "$model" >"$file"
    refuse
done
case_ magic && put 0 'GGUX' && refuse
case_ big-endian && put 4 '\x00\x00\x00\x03' && refuse
case_ version-1 && put 4 '\x01' && refuse
case_ version-9 && put 4 '\x09' && refuse
case_ tensors-negative && put 8 '\xff\xff\xff\xff\xff\xff\xff\xff' && refuse
case_ tensors-2-to-the-60 && put 8 '\x00\x00\x00\x00\x00\x00\x00\x10' && refuse
case_ one-tensor-more && put 8 '\x5b' && refuse
case_ keys-2-to-the-62 && put 16 '\x00\x00\x00\x00\x00\x00\x00\x40' && refuse
case_ key-length-2-to-the-63 && put 24 '\x00\x00\x00\x00\x00\x00\x00\x80' && refuse
case_ key-length-0 && put 24 '\x00' && refuse
case_ value-type-77 && put $((32 + 20)) '\x4d' && refuse
tokens=$(($(at tokenizer.ggml.tokens) + 21))
case_ array-of-arrays && put $((tokens + 4)) '\x09' && refuse
case_ array-count-overflows && put $((tokens + 8)) '\xff\xff\xff\xff\xff\xff\xff\x7f' && refuse
tensor=$(($(at output.weight) + 13))
case_ five-dimensions && put $tensor '\x05' && refuse
case_ dimension-zero && put $((tensor + 4)) '\x00\x00' && refuse
case_ dimension-negative && put $((tensor + 11)) '\x80' && refuse
case_ elements-overflow && put $((tensor + 10)) '\x7f' && put $((tensor + 18)) '\x7f' && refuse
case_ type-removed && put $((tensor + 20)) '\x04' && refuse
case_ type-unknown && put $((tensor + 20)) '\xee' && refuse
case_ offset-odd && put $((tensor + 24)) '\x01' && refuse
case_ offset-far && put $((tensor + 30)) '\x7f' && refuse
case_ block-cut && put $((tensor + 4)) '\x01' && refuse
exit $bad
