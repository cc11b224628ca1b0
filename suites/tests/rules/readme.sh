#!/usr/bin/env bash
# The README tells the truth: every block that begins with "$ command" shows what the command prints
# (times apart), and its table of commands is `assay list commands`.
set -uo pipefail
cd "${ASSAY_SOURCE_DIR:?}" || exit 1
export PATH=${ASSAY_BUILD_DIR:?}:$PATH LC_ALL=C.UTF-8 NO_COLOR=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bad=0

# Word by word, since lines are wrapped; times and rounding errors differ from machine to machine, and
# with them the point where the rounding error is largest.
words() {
    sed -E 's/[0-9]+(\.[0-9]+)? s\b/T s/g; s/  [0-9]+\.[0-9]  /  T  /' | tr -s ' \n' '\n' |
        sed -E 's/0x[0-9a-f]+/ADDRESS/; s/[0-9.]+e-[0-9]+/E/; s/^[0-9]+\.[0-9]$/T/' |
        awk 'before == "at" && $0 ~ /^blk\./ && worst { $0 = "POINT" } before == "position" && largest { $0 = "N"; largest = 0 } before == "largest" { largest = 1 } { worst = (two == "worst" || before == "worst"); two = before; before = $0; print }'
}

# Indented blocks, one file each.
awk -v dir="$scratch" '
    /^    / { if (!inside) { inside = 1; n++ } print substr($0, 5) > (dir "/block" n); blank = ""; next }
    /^$/ { if (inside) { blank = "x" } next }
    { inside = 0 }' README.md
for block in "$scratch"/block*; do
    read -r first <"$block"
    [[ $first == '$ '* ]] || continue
    # A command may go on over lines that end with a backslash.
    command=$(awk '{ sub(/^\$ /, ""); print } !/\\$/ { exit }' "$block")
    n=$(awk '{ n++ } !/\\$/ { print n; exit }' "$block")
    tail -n +$((n + 1)) "$block" | words >"$scratch/written"
    bash -c "$command" 2>&1 | words >"$scratch/printed"
    if ! diff -u "$scratch/written" "$scratch/printed"; then
        echo "README.md: \$ $command: prints something else"
        bad=1
    fi
done

sed -nE 's/^\| `([a-z]+)` \| (.*) \|$/\1 \2/p' README.md >"$scratch/written"
assay list commands --json | tr -d '\n' | grep -oE '"name": "[^"]*", *"arguments": "[^"]*", *"about": "[^"]*"' |
    sed -E 's/"name": "([^"]*)".*"about": "([^"]*)"/\1 \2/' >"$scratch/printed"
diff -u "$scratch/written" "$scratch/printed" || {
    echo "README.md: its table of commands is not what \`assay list commands\` says"
    bad=1
}
exit $bad
