# Four pages (two faults, a healthy run, a fault of eight ranks, a campaign) in a real browser without a
# network; see page.py for what is asked of them. Screenshots, light and dark, at 1280 and 400 pixels,
# stay in the folder ASSAY_SCREENSHOTS, where one is named. Skipped where there is no browser.
set -uo pipefail
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "skip: no chromium (apt-get install chromium: 350 MB, which tools/setup leaves out)" >&2
    exit 125
}
command -v python3 >/dev/null || {
    echo "skip: no python3" >&2
    exit 125
}
cd "${ASSAY_SOURCE_DIR:?}" || exit 1
export PATH=${ASSAY_BUILD_DIR:?}:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch
bad=0
model=suites/data/glm5-tiny-Q4_K_M.gguf
reference=suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5

expect() { # STATUS WORDS...
    local wanted=$1 status
    shift
    "$@" >/dev/null 2>"$scratch/errors"
    status=$?
    [ $status = "$wanted" ] || {
        echo "$*: status $status, expected $wanted"
        cat "$scratch/errors"
        bad=1
    }
}

expect 0 assay run $model -p 'Count from 6 to 10:' -n 2 --plant phantom-output:layer=1 --plant file-order:layer=3 \
    --capture "$scratch/two.h5"
expect 1 assay diagnose "$scratch/two.h5" --model $model --report "$scratch/two"
expect 0 assay compare suites/data/glm5-tiny-Q4_K_M.hf-bf16.h5 $reference --report "$scratch/clean"
expect 0 assay run $model -p 'Count from 6 to 10: one two three' -n 2 --ranks 8 --plant rank-slice:layer=2 \
    --capture "$scratch/ranks.h5"
expect 1 assay diagnose "$scratch"/ranks.rank*.h5 --model $model --report "$scratch/shard"
expect 0 assay faults $model --quick --report "$scratch/campaign"

screenshots=${ASSAY_SCREENSHOTS:-$scratch/screenshots}
mkdir -p "$screenshots"
timeout 300 python3 suites/tests/page/page.py "$browser" "$screenshots" \
    "$scratch"/{two,clean,shard,campaign}/index.html || bad=1
exit $bad
