#include "diagnosed.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/hparams.h"
#include "probes/capture.h"
#include "references/checkpoint.h"
#include "references/oracle/oracle.h"

assay_status capture_planted(const char *capture, const char *model, const int32_t *tokens, int n,
                             int n_new, assay_dtype dtype, const assay_seam_setting *settings,
                             int n_settings)
{
    return capture_injected(capture, model, tokens, n, n_new, dtype, settings, n_settings, NULL,
                            NULL);
}

static const char *tier;

void capture_tier(const char *name)
{
    tier = name;
}

assay_status capture_injected(const char *capture, const char *model, const int32_t *tokens, int n,
                              int n_new, assay_dtype dtype, const assay_seam_setting *settings,
                              int n_settings, assay_tap_fn *inject, void *user)
{
    assay_model *m = NULL;
    assay_capture *c = NULL;
    assay_engine *engine = NULL;
    assay_seams seams = {settings, n_settings};
    int32_t ids[64];
    assay_status s;
    ASSAY_TRY(assay_model_open(&m, model, NULL));
    assay_capture_about about = {.producer = "assay",
                                 .producer_version = ASSAY_VERSION,
                                 .architecture = assay_model_hparams(m)->architecture,
                                 .dtype = assay_dtype_name(dtype),
                                 .path = "expanded",
                                 .backend = "cpu",
                                 .mode = "eager",
                                 .n_ranks = 1};
    assay_engine_options options = assay_engine_options_default();
    assay_capture_options kept = {.tier = tier};
    ASSAY_GO(assay_capture_create(&c, capture, &about, &kept));
    ASSAY_GO(assay_capture_prompt(c, "default", NULL, tokens, n));
    options.dtype = dtype;
    options.max_positions = n + n_new;
    options.seams = &seams;
    options.inject = inject;
    options.inject_user = user;
    options.tap = assay_capture_tap;
    options.tap_user = c;
    ASSAY_GO(assay_engine_new(&engine, m, &options));
    ASSAY_GO(assay_engine_generate(ids, engine, tokens, n, n_new, 0, NULL, NULL));
    s = assay_capture_finish(c);
    c = NULL;
out:
    assay_capture_abandon(c);
    assay_engine_free(engine);
    assay_model_close(m);
    return s;
}

/* profile NULL: by the capture's producer. */
static assay_status diagnose(assay_result *result, const char *capture, const char *model,
                             const char *profile, assay_diagnose_options *options)
{
    assay_judge_model m = {0};
    assay_run *run = NULL;
    assay_run_options how = assay_run_options_default();
    const char *paths[] = {capture};
    assay_hparams hparams;
    assay_run_sizes sizes;
    assay_status s;
    how.profile = profile;
    ASSAY_TRY(assay_result_init(result, "diagnose"));
    ASSAY_GO(assay_judge_model_open(&m, model, 0));
    if (assay_hparams_read(&hparams, m.file) == ASSAY_OK) {
        sizes = assay_run_sizes_of(&hparams);
        how.sizes = &sizes;
    }
    ASSAY_GO(assay_run_open(&run, paths, 1, &how));
    options->file = m.own;
    options->forced.last_layer = -1;
    s = assay_diagnose(result, run, m.oracle, options);
out:
    assay_run_close(run);
    assay_judge_model_close(&m);
    if (s != ASSAY_OK)
        assay_result_clear(result);
    return s;
}

static double passes;

double diagnosed_passes(void)
{
    return passes;
}

assay_status diagnosed_watched(assay_result *result, const char *capture, const char *model,
                               void (*on_judged)(void *user, const assay_judged *judged),
                               void *user)
{
    assay_diagnose_options options = {
        .on_judged = on_judged, .on_judged_user = user, .passes = &passes};
    return diagnose(result, capture, model, NULL, &options);
}

assay_status diagnosed_bundled(assay_result *result, const char *capture, const char *model,
                               const char *folder)
{
    assay_diagnose_options options = {.bundles = folder};
    return diagnose(result, capture, model, NULL, &options);
}

assay_status diagnosed_as(assay_result *result, const char *capture, const char *model,
                          const char *profile)
{
    assay_diagnose_options options = {.passes = &passes};
    return diagnose(result, capture, model, profile, &options);
}

assay_status diagnosed(assay_result *result, const char *capture, const char *model)
{
    return diagnosed_watched(result, capture, model, NULL, NULL);
}

const char *diagnosed_text(const assay_result *result)
{
    static char text[2048];
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < result->n_findings && n < sizeof text - 256; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s at %s (%s); ",
                              result->findings[i].fault_class, result->findings[i].point,
                              result->findings[i].kind);
    return result->n_findings ? text : "nothing";
}

static bool has_class(const char *classes, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = classes; (at = strstr(at, name)) != NULL; at += n)
        if ((at == classes || at[-1] == '|') && (at[n] == '|' || at[n] == '\0'))
            return true;
    return false;
}

const assay_finding *diagnosed_find(const assay_result *result, const char *classes,
                                    const char *point)
{
    for (int i = 0; i < result->n_findings; i++) {
        const assay_finding *f = &result->findings[i];
        if (!has_class(classes, f->fault_class))
            continue;
        for (int k = 0; k < f->points.n; k++) {
            const char *name = f->points.items[k], *at = strstr(name, point);
            if (at && (at == name || at[-1] == '.') && at[strlen(point)] == '\0')
                return f;
        }
    }
    return NULL;
}
