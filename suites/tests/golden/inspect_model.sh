assay inspect suites/data/glm5-tiny-Q4_K_M.gguf
