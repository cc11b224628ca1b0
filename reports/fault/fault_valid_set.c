/*
 * VALID-SET: attention over another set of keys: the causal border shifted or missing, a window,
 * keys at the beginning or the end left out.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_valid_set[] = {
    {.name = "mask-shift",
     .about = "one key beyond the mask",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_MASK_SHIFT,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "mask-short",
     .about = "the key of the token itself is not seen",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_MASK_SHIFT,
     .value = -1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "mask-none",
     .about = "every key of the step is seen",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_MASK_NONE,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "window",
     .about = "only the last keys are seen",
     .weakest = 2,
     .strongest = 6,
     .seam = ASSAY_SEAM_MASK_WINDOW,
     .value = 4,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {0}};

static assay_status offer(assay_home *home, const assay_knobs *knobs, const char *kind,
                          double complexity, json_t *fitted, const char *evidence)
{
    return assay_home_offer_variant(home, knobs,
                                    &(assay_offer_text){.kind = kind,
                                                        .family = "attention",
                                                        .complexity = complexity,
                                                        .fitted = fitted,
                                                        .evidence = evidence});
}

/* Where every visible key is selected, a captured selection says nothing; a mask that lets more
 * keys through must not be cut by it. */
static assay_knobs start(const assay_home *home, int n_keys)
{
    assay_knobs knobs = *home->knobs;
    if (n_keys <= knobs.index_top_k)
        knobs.dense = true;
    return knobs;
}

static assay_status try_borders(assay_home *home, int n_keys)
{
    static const int shifts[] = {1, -1, 2, -2, 3, 4, 8};
    char text[320];
    assay_knobs knobs = start(home, n_keys);
    knobs.mask_none = true;
    ASSAY_TRY(offer(home, &knobs, "no causal mask", 0.2, NULL,
                    "attention over every key of the step gives the value"));
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        knobs = start(home, n_keys);
        knobs.mask_shift += shifts[i];
        snprintf(text, sizeof text, "query t sees keys up to t%+d", shifts[i]);
        ASSAY_TRY(offer(home, &knobs, "causal border shifted", 0.3,
                        json_pack("{s:i}", "shift", shifts[i]), text));
    }
    return ASSAY_OK;
}

static assay_status try_ends(assay_home *home, int n_keys)
{
    char text[320];
    for (int n = 1; n <= 4 && n < n_keys; n++) {
        assay_knobs knobs = *home->knobs;
        knobs.key_first = n;
        snprintf(text, sizeof text, "the first %d keys are not seen", n);
        ASSAY_TRY(
            offer(home, &knobs, "first keys left out", 0.4, json_pack("{s:i}", "keys", n), text));
        knobs = *home->knobs;
        knobs.key_limit = n_keys - n;
        snprintf(text, sizeof text, "the last %d of %d keys are not seen", n, n_keys);
        ASSAY_TRY(
            offer(home, &knobs, "last keys left out", 0.4, json_pack("{s:i}", "keys", n), text));
    }
    return ASSAY_OK;
}

/* The widest window first tells nothing; powers of two and their neighbours are what engines use,
 * then every width of a short prompt. */
static assay_status try_windows(assay_home *home, int n_keys)
{
    char text[320];
    for (int w = 1; w < n_keys; w++) {
        bool round = (w & (w - 1)) == 0 || ((w + 1) & w) == 0;
        if (n_keys > 48 && !round)
            continue;
        assay_knobs knobs = *home->knobs;
        knobs.window = w;
        snprintf(text, sizeof text, "each query sees only the last %d keys", w);
        ASSAY_TRY(offer(home, &knobs, "window", 0.6, json_pack("{s:i}", "window", w), text));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_valid_set(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids || !assay_home_attends(home))
        return ASSAY_OK;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int n_keys = (int)(step->first_position + step->n_tokens);
    ASSAY_TRY(try_borders(home, n_keys));
    ASSAY_TRY(try_ends(home, n_keys));
    if (assay_home_settled(home))
        return ASSAY_OK;
    return try_windows(home, n_keys);
}
