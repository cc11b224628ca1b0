#!/usr/bin/env bash
# run.sh NAME: runs NAME.sh in the repository's root and compares its standard output with NAME.out
# and its exit status with NAME.exit (0 without that file). With ASSAY_GOLDEN=write they are written.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$here/$1
cd "${ASSAY_SOURCE_DIR:?}" || exit 1
export PATH=${ASSAY_BUILD_DIR:?}:$PATH LC_ALL=C NO_COLOR=1 OMP_NUM_THREADS=2
scratch=$(mktemp -d)
export scratch
trap 'rm -rf "$scratch"' EXIT

# Times, scratch names and line breaks that depend on them.
norm() {
    sed -E "s|$scratch/?||g; s|/[^ ]*/assay-check-[A-Za-z0-9]+/|SCRATCH/|g; s/[0-9]+\.[0-9] s\b/T s/g; s/  [0-9]+\.[0-9]  /  T.T  /"
}
export -f norm

bash "$name.sh" >"$scratch/stdout" 2>"$scratch/stderr"
status=$?
[ $status != 125 ] || ! grep -q '^skip:' "$scratch/stderr" || exit 125
if [ "${ASSAY_GOLDEN:-}" = write ]; then
    cp "$scratch/stdout" "$name.out"
    rm -f "$name.exit"
    [ $status = 0 ] || echo $status >"$name.exit"
    exit 0
fi
wanted=0
[ ! -f "$name.exit" ] || wanted=$(cat "$name.exit")
if [ $status != "$wanted" ]; then
    echo "$1: exit status $status, expected $wanted"
    cat "$scratch/stdout" "$scratch/stderr"
    exit 1
fi
diff -u "$name.out" "$scratch/stdout"
