assay run suites/data/glm5-tiny-Q4_K_M.gguf -p "Count from 6 to 10:" -n 5 --plant phantom-output:layer=0
