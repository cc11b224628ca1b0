# The same text by both paths, by text and by ids, at once and in chunks.
model=suites/data/glm5-tiny-Q4_K_M.gguf
for path in expanded latent; do
    assay run $model -p "Count from 6 to 10:" -n 13 --path $path
done
assay run $model -p "Count from 6 to 10:" -n 13 --chunk 3
assay run $model -p "Count from 6 to 10:" -n 13 --json
