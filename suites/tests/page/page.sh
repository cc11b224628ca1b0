# The page in a real browser, without a network: it is shown, nothing is refused by its own policy,
# every picture has a size and a name, every table column a header. Skipped where there is none.
set -uo pipefail
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "skip: no chromium" >&2
    exit 125
}
cd "${ASSAY_SOURCE_DIR:?}" || exit 1
export PATH=${ASSAY_BUILD_DIR:?}:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch
bad=0

look() { # NAME FOLDER
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,3000 \
        --host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --virtual-time-budget=5000 \
        --screenshot="$scratch/$1.png" "file://$2/index.html" 2>"$scratch/$1.log" >/dev/null
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --host-resolver-rules='MAP * ~NOTFOUND' \
        --dump-dom "file://$2/index.html" >"$scratch/$1.dom" 2>/dev/null
    grep -E 'CONSOLE|Content Security Policy' "$scratch/$1.log" && bad=1
    [ "$(stat -c %s "$scratch/$1.png" 2>/dev/null || echo 0)" -gt 20000 ] || {
        echo "$1: no picture of the page"
        bad=1
    }
    local images named
    images=$(grep -o '<img' "$scratch/$1.dom" | wc -l)
    named=$(grep -o '<img alt="[^"]' "$scratch/$1.dom" | wc -l)
    [ "$images" = "$named" ] || {
        echo "$1: $images pictures, $named with a name"
        bad=1
    }
    if grep -q '<th>' "$scratch/$1.dom"; then
        echo "$1: a header without a scope"
        bad=1
    fi
    echo "$1: $images pictures"
}

reference=suites/data/glm5-tiny-Q4_K_M.hf-fp32.h5
assay compare suites/data/glm5-tiny-Q4_K_M.hf-bf16.h5 $reference --report "$scratch/clean" --quiet
[ $? = 0 ] || bad=1
look clean "$scratch/clean"
assay compare suites/data/glm5-tiny-bf16.two.h5 $reference --report "$scratch/two" --quiet
[ $? = 1 ] || bad=1
look two "$scratch/two"
exit $bad
