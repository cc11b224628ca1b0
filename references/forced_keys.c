#include "references/forced_keys.h"

#include <string.h>

static bool is_short(const assay_seen *seen, const assay_run_step *step)
{
    const char *axes = assay_point_at(seen->point)->axes, *t = strchr(axes, 'T');
    return seen->has_values && seen->rank < 0 && !seen->partial && !seen->hand_over && t &&
           seen->dims[t - axes] < step->n_tokens;
}

/* Whether keys of the layer are made from this value. */
static bool feeds_keys(const assay_seen *seen, int layer)
{
    static const assay_point own[] = {
        ASSAY_POINT_IN_NORM, ASSAY_POINT_KV_A,         ASSAY_POINT_KV_LATENT,
        ASSAY_POINT_K_ROPE,  ASSAY_POINT_KV_B,         ASSAY_POINT_K,
        ASSAY_POINT_V,       ASSAY_POINT_INDEX_K_PROJ, ASSAY_POINT_INDEX_K_NORM,
        ASSAY_POINT_INDEX_K};
    if (seen->layer < 0)
        return seen->point == ASSAY_POINT_EMBED;
    if (seen->layer != layer)
        return seen->layer < layer;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (seen->point == own[i])
            return true;
    return false;
}

static bool is_whole(const assay_run *run, int prompt, int step, assay_point point, int layer)
{
    const assay_seen *seen = assay_run_find(run, prompt, step, point, layer);
    return seen && seen->has_values && !is_short(seen, assay_run_step_at(run, prompt, step));
}

static bool has_keys(const assay_run *run, int prompt, int step, int layer, bool index)
{
    if (index)
        return is_whole(run, prompt, step, ASSAY_POINT_INDEX_K, layer);
    return (is_whole(run, prompt, step, ASSAY_POINT_K, layer) &&
            is_whole(run, prompt, step, ASSAY_POINT_V, layer)) ||
           (is_whole(run, prompt, step, ASSAY_POINT_KV_LATENT, layer) &&
            is_whole(run, prompt, step, ASSAY_POINT_K_ROPE, layer));
}

/* Keys of one layer, at the positions up to the end of the step. */
static bool lack_rows(const assay_run *run, int prompt, int step, int layer, bool index)
{
    bool lacks = false, whole = true;
    for (int s = 0; s <= step; s++) {
        const assay_run_step *at = assay_run_step_at(run, prompt, s);
        if (at->is_found)
            continue;
        whole = whole && has_keys(run, prompt, s, layer, index);
        for (int i = 0; i < assay_run_n_seen(run, prompt, s) && !lacks; i++) {
            const assay_seen *seen = assay_run_seen_at(run, prompt, s, i);
            lacks = is_short(seen, at) && feeds_keys(seen, layer);
        }
    }
    return lacks && !whole;
}

/* Ops that mix rows. */
static bool mixes_rows(assay_point point)
{
    static const assay_point mixing[] = {ASSAY_POINT_PROBS, ASSAY_POINT_LSE, ASSAY_POINT_KERNEL_OUT,
                                         ASSAY_POINT_O_LATENT, ASSAY_POINT_INDEX_SCORES};
    for (size_t k = 0; k < sizeof mixing / sizeof *mixing; k++)
        if (point == mixing[k])
            return true;
    return false;
}

/* A value and the uncaptured ones behind it; returns how many. */
static int list_interval(assay_point points[ASSAY_FORCED_INTERVAL + 1],
                         int layers[ASSAY_FORCED_INTERVAL + 1], assay_pass *pass, int step,
                         assay_point point, int layer)
{
    int steps[ASSAY_FORCED_INTERVAL];
    int n =
        assay_pass_interval(points, layers, steps, ASSAY_FORCED_INTERVAL, pass, step, point, layer);
    if (n > ASSAY_FORCED_INTERVAL)
        n = ASSAY_FORCED_INTERVAL;
    points[n] = point;
    layers[n] = layer;
    return n + 1;
}

bool assay_covers_attention(assay_pass *pass, int step, assay_point point, int layer)
{
    assay_point points[ASSAY_FORCED_INTERVAL + 1];
    int layers[ASSAY_FORCED_INTERVAL + 1];
    int n = list_interval(points, layers, pass, step, point, layer);
    for (int i = 0; i < n; i++)
        if (mixes_rows(points[i]))
            return true;
    return false;
}

bool assay_lacks_keys(assay_pass *pass, const assay_run *run, int prompt, int step,
                      const assay_seen *seen)
{
    assay_point points[ASSAY_FORCED_INTERVAL + 1];
    int layers[ASSAY_FORCED_INTERVAL + 1];
    int n = list_interval(points, layers, pass, step, seen->point, seen->layer);
    for (int i = 0; i < n; i++)
        if (mixes_rows(points[i]) &&
            lack_rows(run, prompt, step, layers[i], points[i] == ASSAY_POINT_INDEX_SCORES))
            return true;
    return false;
}
