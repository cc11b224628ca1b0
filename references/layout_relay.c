/*
 * Other readings of a value, for maps that are wrong about how it lies.
 */
#include "references/run_private.h"

const char *assay_relay_name(assay_relay relay)
{
    static const char *const names[ASSAY_RELAY_COUNT] = {
        [ASSAY_RELAY_NONE] = "as mapped",
        [ASSAY_RELAY_TRANSPOSED] = "transposed (tokens innermost)",
        [ASSAY_RELAY_HEAD_MAJOR] = "head-major",
        [ASSAY_RELAY_HEADS_INNER] = "heads innermost",
        [ASSAY_RELAY_HEADS_OUTER] = "heads outermost",
        [ASSAY_RELAY_HALF_SPLIT] = "half-split rotary pairs",
        [ASSAY_RELAY_ADJACENT] = "adjacent rotary pairs",
        [ASSAY_RELAY_HALVES] = "halves exchanged"};
    return names[relay];
}

/* Reads n_b blocks of n_a runs of `width` as n_a blocks of n_b. */
static void exchange(double *out, const double *in, int64_t n_a, int64_t n_b, int64_t width)
{
    for (int64_t a = 0; a < n_a; a++)
        for (int64_t b = 0; b < n_b; b++)
            for (int64_t i = 0; i < width; i++)
                out[(a * n_b + b) * width + i] = in[(b * n_a + a) * width + i];
}

static void pair_up(double *out, const double *in, int64_t n, int64_t width, bool is_half_split)
{
    int64_t half = width / 2;
    for (int64_t row = 0; row < n; row += width)
        for (int64_t i = 0; i < half; i++)
            for (int64_t member = 0; member < 2; member++) {
                int64_t adjacent = row + 2 * i + member, split = row + member * half + i;
                if (is_half_split)
                    out[adjacent] = in[split];
                else
                    out[split] = in[adjacent];
            }
}

bool assay_relay_apply(double *out, const double *in, const int64_t *dims, int n_dims,
                       assay_relay relay)
{
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++)
        n *= dims[d];
    if (n == 0 || n_dims < 2)
        return false;
    int64_t T = dims[0], last = dims[n_dims - 1], middle = n / T / last;
    switch (relay) {
    case ASSAY_RELAY_TRANSPOSED:
        if (T < 2)
            return false;
        exchange(out, in, T, n / T, 1);
        return true;
    case ASSAY_RELAY_HEAD_MAJOR:
        if (T < 2 || middle < 2)
            return false;
        exchange(out, in, T, middle, last);
        return true;
    case ASSAY_RELAY_HEADS_INNER:
    case ASSAY_RELAY_HEADS_OUTER:
        if (middle < 2 || last < 2)
            return false;
        for (int64_t t = 0; t < T; t++)
            exchange(out + t * middle * last, in + t * middle * last,
                     relay == ASSAY_RELAY_HEADS_INNER ? middle : last,
                     relay == ASSAY_RELAY_HEADS_INNER ? last : middle, 1);
        return true;
    case ASSAY_RELAY_HALF_SPLIT:
    case ASSAY_RELAY_ADJACENT:
        if (last < 4 || last % 2)
            return false;
        pair_up(out, in, n, last, relay == ASSAY_RELAY_HALF_SPLIT);
        return true;
    case ASSAY_RELAY_HALVES:
        if (last < 2 || last % 2)
            return false;
        for (int64_t i = 0; i < n; i++)
            out[i] = in[i - i % last + (i % last + last / 2) % last];
        return true;
    default:
        return false;
    }
}

int assay_run_relay(assay_run *run, assay_point point, assay_relay relay)
{
    int n = 0;
    for (int p = 0; p < run->n_prompts; p++)
        for (int s = 0; s < run->prompts[p].n_steps; s++)
            for (int i = 0; i < run->prompts[p].steps[s].n_entries; i++) {
                assay_entry *e = &run->prompts[p].steps[s].entries[i];
                if (e->seen.point != point || !e->is_mapped)
                    continue;
                e->plan.relay = relay;
                assay_entry_settle(e);
                n++;
            }
    return n;
}
