# Forged files, each wrong in one way, and what the audit says of them: the finding, its place, status 1.
# Times and rates are cut away. Last: the right file, over 8 and over 16 ranks.
for wrong in nan zero-row repeated-row huge copied missing unknown shape; do
    assay forge --like glm5-tiny --layers 3 --wrong $wrong -o "$scratch/m.gguf" -q
    assay audit "$scratch/m.gguf" >"$scratch/o"
    echo "$wrong: $?"
    awk 'NR > 1 && !/no good point/ { print } /^$/ { exit }' "$scratch/o"
done
assay forge --like glm5-tiny --layers 2 --type q4_k --split 3 -o "$scratch/s.gguf"  | sed "s|$scratch/||"
for n in 2 8 16; do
    assay audit "$scratch/s-00001-of-00003.gguf" --ranks $n >"$scratch/o"
    echo "$n ranks: $?"
    awk '/^shards / { print $1, $2 } /^ [ 0-9][0-9]*\. / && /over/ { print }' "$scratch/o" | head -4
done
assay forge --like glm-5 --skeleton --type iq2_xxs --split 10 -o "$scratch/k.gguf" | sed "s|$scratch/||"
assay forge --like glm-7 -o "$scratch/x.gguf" 2>&1
exit 0
