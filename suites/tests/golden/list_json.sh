assay list renderers --json
