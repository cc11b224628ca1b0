#!/usr/bin/env bash
# Sources are as clang-format 14 writes them.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
command -v clang-format-14 >/dev/null || {
    echo "clang-format-14 is not here"
    exit 125
}
find engine probes references reports suites tools \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 clang-format-14 --dry-run -Werror
