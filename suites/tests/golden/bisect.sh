# git bisect run: a repository of a converter whose fifth commit breaks a tensor and whose third does not
# build; the exit status alone finds the fifth.
command -v git >/dev/null || {
    echo "skip: no git" >&2
    exit 125
}
cd "$scratch" || exit
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null
git init -q repository && cd repository || exit
printf 'checklist: bisect\nchecks: [file, weights, config]\n' >list.yaml
for n in 1 2 3 4 5 6 7; do
    wrong=
    [ $n -lt 5 ] || wrong="--wrong zero-row"
    echo "assay forge --like glm5-tiny --layers 2 $wrong -o m.gguf -q # $n" >convert.sh
    [ $n != 3 ] || echo "exit 1" >convert.sh
    git add . && git commit -qm "commit $n"
done
git bisect start HEAD HEAD~6 >/dev/null
git bisect run sh -c 'sh convert.sh || exit 125; assay check m.gguf --list list.yaml -q' >../log 2>&1
echo "status $?"
git log -1 --format='first bad: %s' refs/bisect/bad
# A file that is not there stops the search: it is no verdict.
git bisect reset >/dev/null 2>&1
git bisect start HEAD HEAD~6 >/dev/null
git bisect run assay check absent.gguf >../log 2>&1
echo "status $?"
