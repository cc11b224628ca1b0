assay explain FUSED-ORDER
