#!/bin/sh
# A gate in front of serving, for any CI system that runs a shell:
#
#     MODEL=model.gguf [REFERENCE=ref.h5] [LIST=ci.yaml] [REPORT=report] gate.sh
#
# Exit status: that of assay check. 0 safe; 1 a finding; 125 something could not be judged (no
# reference, no GPU); 128 broken input; 129 wrong command line. Reports lie in $REPORT: index.html,
# junit.xml, report.sarif, summary.md, result.json; in $REPORT/bugs a small file for each finding of an
# op, which `assay repro FILE` shows without the model.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
: "${MODEL:?set MODEL to a GGUF file}"
list=${LIST:-$here/../checklists/ci.yaml}
report=${REPORT:-assay-report}

set -- "$MODEL" --list "$list" --report "$report" --repro "$report/bugs"
[ -z "${REFERENCE:-}" ] || set -- "$@" --reference "$REFERENCE"
assay check "$@"
status=$?

case $status in
0) echo "gate: open" ;;
1) echo "gate: closed: findings, see $report/index.html" ;;
125) echo "gate: closed: not everything could be judged, see $report/summary.md" ;;
*) echo "gate: closed: the check itself failed with status $status" ;;
esac
exit $status
