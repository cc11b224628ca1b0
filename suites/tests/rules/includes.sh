#!/usr/bin/env bash
# Includes go only to the left: engine -> probes -> references -> reports -> suites -> tools.
# The oracle shares with the engine only engine/base, the GGUF reader and the table of points.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
folders=(engine probes references reports suites tools)
bad=0

complain() {
    echo "$1"
    bad=1
}

rank_of() {
    local i
    for i in "${!folders[@]}"; do
        [ "${folders[$i]}" = "$1" ] && echo "$i" && return
    done
    echo -1
}

while IFS=: read -r file line text; do
    from=$(rank_of "${file%%/*}")
    included=$(sed -nE 's/^# *include "([^"]+)".*/\1/p' <<<"$text")
    to=$(rank_of "${included%%/*}")
    case $file in
    suites/tests/*) continue ;;
    esac
    [ "$to" -le "$from" ] || complain "$file:$line: $included lies to the right of ${file%%/*}"
    case $included in
    suites/tests/*) complain "$file:$line: nothing includes suites/tests" ;;
    esac
    case $file:$included in
    references/oracle/*:engine/base/* | references/oracle/*:engine/gguf.h | references/oracle/*:engine/point.h) ;;
    references/oracle/*:engine/*) complain "$file:$line: the oracle must not share $included with the engine" ;;
    references/oracle/*:references/oracle/*) ;;
    references/oracle/*:references/* | references/oracle/*:probes/*)
        complain "$file:$line: the oracle must not know $included" ;;
    esac
    case $file in
    engine/*) [[ $text != *hdf5* && $text != *jansson* ]] || complain "$file:$line: engine knows no $text" ;;
    esac
done < <(grep -rnE '^# *include' --include='*.[ch]' --include='*.cu' "${folders[@]}")
exit $bad
