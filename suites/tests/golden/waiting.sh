# Threads that wait sleep soon, unless the user has said how long they spin.
ldd "$(command -v assay)" | grep -q libgomp || { echo "skip: another OpenMP than libgomp" >&2; exit 125; }
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export OMP_DISPLAY_ENV=verbose
spins() { env "$@" assay --version 2>&1 | grep -o 'GOMP_SPINCOUNT.*'; }
spins TMPDIR=/tmp
spins GOMP_SPINCOUNT=7
spins OMP_WAIT_POLICY=passive
spins OMP_WAIT_POLICY=active
