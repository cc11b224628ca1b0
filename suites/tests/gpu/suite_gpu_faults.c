/*
 * The campaign on a device: faults of graphs, streams and padding by their real mechanisms, found
 * with place and class; healthy runs in graph mode have no finding.
 */
#include "data.h"
#include "expect_gpu.h"
#include "suites/campaign.h"

#define LEAST 0.95

START_TEST(gpu_faults_of_devices_are_named_with_class_and_place)
{
    const char *model = data_shipped("glm5-tiny-Q4_K_M.gguf");
    assay_campaign_options how = {.models = &model, .n_models = 1, .backend = ASSAY_BACKEND_CUDA};
    assay_campaign *campaign;
    int n_plants = 0, n_right = 0;
    EXPECT_OK(assay_campaign_new(&campaign, &how));
    for (int i = 0; i < assay_campaign_n(campaign); i++) {
        const assay_trial *t = assay_campaign_trial(campaign, i);
        assay_outcome o;
        EXPECT_OK(assay_campaign_run_one(&o, campaign, t));
        if (t->n_plants == 0) {
            ck_assert_msg(o.n_findings == 0, "a healthy run: %s", o.first);
            continue;
        }
        n_plants++;
        n_right += o.class_right[0];
        if (!o.class_right[0])
            printf("# %s, layer %d, %s, %s: %s; first: %s\n", t->plants[0].kind, t->plants[0].layer,
                   t->path == ASSAY_PATH_LATENT ? "latent" : "expanded", assay_dtype_name(t->dtype),
                   o.found_class[0], o.first);
    }
    printf("# faults of devices: %d of %d named\n", n_right, n_plants);
    ck_assert_int_gt(n_plants, 20);
    ck_assert_msg(n_right >= LEAST * n_plants, "%d of %d", n_right, n_plants);
    assay_campaign_free(campaign);
}
END_TEST

EXPECT_GPU_MAIN("gpu_faults", gpu_faults_of_devices_are_named_with_class_and_place)
