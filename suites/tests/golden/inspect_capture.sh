assay inspect suites/data/glm5-tiny-bf16.two.h5 -v --step 0
