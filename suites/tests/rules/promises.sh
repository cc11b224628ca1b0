#!/usr/bin/env bash
# The tree holds what is done: no promises, no dead code markers, no path of one person's machine, and no
# switch of somebody's debugging session: the environment variables that are read are these.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
words='TO''DO|FIX''ME|(^|[^X])XX''X([^X]|$)|not implem''ented|place''holder|HA''CK'
paths='/(home|Users|work)/[a-z]'
folders=(engine probes references reports suites tools README.md CMakeLists.txt)
status=0
if grep -rnIE "$words|$paths" --exclude-dir=data --exclude=promises.sh "${folders[@]}"; then
    status=1
fi
read_ones='ASSAY_[A-Z_]+|TMPDIR|NO_COLOR|OMP_WAIT_POLICY|GOMP_SPINCOUNT'
if grep -rnE 'getenv\("' --include='*.[ch]' --include='*.cu' --exclude-dir=tests "${folders[@]}" |
    grep -vE "getenv\(\"($read_ones)\"\)"; then
    status=1
fi
exit $status
