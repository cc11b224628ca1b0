#!/usr/bin/env bash
# Includes go only to the left: engine -> probes -> references -> reports -> suites -> tools.
# The oracle shares with the engine only engine/base, the GGUF reader and the table of points.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
grep -rnE '^# *include' --include='*.[ch]' --include='*.cu' engine probes references reports suites tools |
    awk -F: '
    BEGIN { n = split("engine probes references reports suites tools", folders, " ")
            for (i = 1; i <= n; i++) rank[folders[i]] = i }
    function complain(why) { print $1 ":" $2 ": " why; bad = 1 }
    {
        file = $1; from = rank[substr(file, 1, index(file, "/") - 1)]
        if (file ~ /^engine\// && $3 ~ /hdf5|jansson|yaml/) complain("the engine must not know " $3)
        if (!match($3, /"[^"]+"/)) next
        included = substr($3, RSTART + 1, RLENGTH - 2)
        to = rank[substr(included, 1, index(included, "/") - 1)]
        if (included ~ /^suites\/tests\//) complain("nothing includes suites/tests")
        if (file ~ /^suites\/tests\//) next
        if (!to) complain(included " is not named from the root of the tree")
        if (to > from) complain(included " lies to the right of " folders[from])
        if (file !~ /^references\/oracle\//) next
        if (included !~ /^references\/oracle\// && included !~ /^engine\/base\// &&
            included != "engine/gguf.h" && included != "engine/point.h" && included != "engine/point.def")
            complain("the oracle must not know " included)
    }
    END { exit bad }'
