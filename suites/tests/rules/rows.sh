#!/usr/bin/env bash
# Every row of a table has its file, and every file its row.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
bad=0

# Files that several rows share.
shared='^arch_(mla|common)$'

# table, folder, prefix of the files, sed expression that gives a row's file name
pair() {
    local def=$1 folder=$2 prefix=$3 expression=$4 rows files
    [ -f "$def" ] || return 0
    rows=$(sed -nE "$expression" "$def" | tr '[:upper:]-' '[:lower:]_' | sort -u)
    files=$(find "$folder" -name "${prefix}_*.c" -printf '%f\n' | sed 's/\.c$//' | { grep -vE "$shared" || true; } |
        sed "s/^${prefix}_//" | sort -u)
    if [ "$rows" != "$files" ]; then
        echo "$def and $folder/${prefix}_*.c disagree (< only a row, > only a file):"
        diff <(echo "$rows") <(echo "$files") | grep '^[<>]' || true
        bad=1
    fi
}

first='s/^X\(([A-Za-z0-9_]+),.*/\1/p'
second='s/^X\([A-Za-z0-9_]+, *"([^"]+)".*/\1/p'
pair tools/command.def tools/cmd cmd "$second"
pair suites/check.def suites/check check "$second"
pair reports/render.def reports/render render "$second"
pair reports/fault.def reports/fault fault "$second"
pair probes/recorder.def probes/recorder recorder "$second"
pair engine/arch.def engine/arch arch "$first"
exit $bad
