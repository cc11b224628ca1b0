#!/usr/bin/env bash
# No source file is longer than 800 lines.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
! find engine probes references reports suites tools -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' -o -name '*.sh' |
    xargs wc -l | awk '$1 > 800 && $2 != "total"' | grep .
