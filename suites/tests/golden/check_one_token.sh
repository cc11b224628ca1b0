# A prompt of one token: rotation by 0 and a single key make points equal, and that is no fault.
model=suites/data/glm5-tiny-Q4_K_M.gguf
assay reference $model -p Count -n 2 -o "$scratch/one.h5" -q
assay check $model --reference "$scratch/one.h5" | norm | grep -oE "^(PASS|FAIL|INCONCLUSIVE)  check [^ ]*: [^;]*|^(probe|phase|batch|ops|smoke) +[A-Z]+"
