# The shell gate: open for the shipped model, closed for a required row that is skipped, for a fault
# and for a broken file.
export MODEL=suites/data/glm5-tiny-Q4_K_M.gguf REPORT=$scratch/report LIST=$scratch/list.yaml

gate() {
    suites/ci-examples/gate.sh 2>/dev/null | sed "s|$scratch/||g" | grep -E '^gate:|^(PASS|FAIL|INCONCLUSIVE)' |
        sed 's/; [0-9.]* s$//'
    echo "status ${PIPESTATUS[0]}, JUnit $(grep -o 'tests="[0-9]*" failures="[0-9]*" errors="[0-9]*"' "$REPORT/junit.xml" 2>/dev/null)"
    rm -rf "$REPORT"
}

printf 'checklist: quick\nchecks: [file, config]\n' >"$LIST"
gate
printf 'checklist: strict\nchecks: [file, reference]\nrequire: [reference]\n' >"$LIST"
gate
printf 'checklist: bound\nchecks: [file]\nmax_kl: 0.1\n' >"$LIST"
gate
printf 'checklist: wrong\nrow: [file]\n' >"$LIST"
gate
for file in suites/ci-examples/gate.sh; do
    sh -n "$file" && echo "${file##*/}: parses"
done
