typedef int assay_anchor;
