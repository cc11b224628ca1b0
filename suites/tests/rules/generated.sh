#!/usr/bin/env bash
# The manual page and the completion are what the option tables say.
set -euo pipefail
cd "${ASSAY_SOURCE_DIR:?}"
assay=${ASSAY_BUILD_DIR:?}/assay
diff -u tools/assay.1 <("$assay" help --man)
diff -u tools/assay.bash <("$assay" help --bash)
