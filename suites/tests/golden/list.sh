assay list
for table in checks points profiles; do
    printf "\n%s\n" "$table"
    assay list $table | cut -c1-150
done
