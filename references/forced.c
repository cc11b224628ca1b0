#include "references/forced.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/forced_floor.h"
#include "references/forced_ids.h"
#include "references/forced_keys.h"
#include "references/forced_part.h"
#include "references/forced_pool.h"
#include "references/forced_private.h"

void assay_forced_say(assay_text_list *list, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (list->n == list->room) {
        int room = list->room ? 2 * list->room : 16;
        char **items = realloc(list->items, (size_t)room * sizeof *items);
        if (!items)
            return;
        list->items = items;
        list->room = room;
    }
    char *copy = strdup(line);
    if (copy)
        list->items[list->n++] = copy;
}

static void text_clear(assay_text_list *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
}

/* The profile's conventions on top of what the file says. */
static void apply_profile(assay_knobs *knobs, const assay_profile *profile)
{
    if (!profile)
        return;
    if (!isnan(profile->eps_q_a))
        knobs->eps[1] = profile->eps_q_a;
    if (!isnan(profile->eps_kv_a))
        knobs->eps[2] = profile->eps_kv_a;
    if (!isnan(profile->eps_index))
        knobs->eps[5] = profile->eps_index;
}

/* What attention reads is what the cache has stored. */
static void apply_cache(assay_knobs *knobs, const char *type)
{
    if (!strcmp(type, "f16") || !strcmp(type, "bf16"))
        knobs->round_cache = assay_dtype_from_name(type);
    else if (!strcmp(type, "q8_0"))
        knobs->codec = ASSAY_STORED_Q8_0;
    else if (!strcmp(type, "f8e4m3"))
        knobs->codec = ASSAY_STORED_F8E4M3;
}

static void set_knobs(assay_forced *f, const assay_forced_options *options)
{
    const assay_run_info *info = assay_run_about(f->run);
    f->knobs = options && options->knobs ? *options->knobs : *assay_oracle_knobs(f->oracle);
    if (!options || !options->knobs)
        apply_profile(&f->knobs, info->profile);
    if (!options || !options->knobs)
        apply_cache(&f->knobs, info->cache);
    f->rounding = f->knobs;
    f->format = assay_forced_format(&f->is_mixed, f->run);
    f->rounding.round_out = f->rounding.round_weight = f->format;
    f->rounding.activations_q8 =
        (info->profile && info->profile->activations_q8) || (options && options->activations_q8);
}

static bool wanted_layer(const assay_forced *f, int layer)
{
    return layer < 0 || (layer >= f->first_layer && (f->last_layer < 0 || layer <= f->last_layer) &&
                         (!f->layers || f->layers[layer]));
}

/* A capture with q_latent or o_latent is judged on the latent path, one with k, v or kv_b on the
 * expanded one, else as it says itself. */
static bool is_latent(const assay_run *run, int prompt)
{
    int n_steps = assay_run_prompt_at(run, prompt)->n_steps;
    bool says = !strcmp(assay_run_about(run)->attention_path, "latent");
    for (int step = 0; step < n_steps; step++)
        for (int i = 0; i < assay_run_n_seen(run, prompt, step); i++) {
            const assay_seen *seen = assay_run_seen_at(run, prompt, step, i);
            if (seen->point == ASSAY_POINT_Q_LATENT || seen->point == ASSAY_POINT_O_LATENT)
                return true;
            if (seen->point == ASSAY_POINT_K || seen->point == ASSAY_POINT_V ||
                seen->point == ASSAY_POINT_KV_B)
                says = false;
        }
    return says;
}

static bool wanted_place(const assay_forced *f, int prompt, int step, const assay_seen *seen)
{
    const char *name = assay_run_prompt_at(f->run, prompt)->name;
    for (int i = 0; i < f->n_only; i++)
        if (f->only[i].point == seen->point && f->only[i].layer == seen->layer &&
            f->only[i].step == step && !strcmp(f->only[i].prompt, name))
            return true;
    return f->n_only == 0;
}

static int by_flow(const void *a, const void *b)
{
    const assay_seen *x = *(const assay_seen *const *)a, *y = *(const assay_seen *const *)b;
    int lx = x->layer >= 0 ? x->layer : x->point == ASSAY_POINT_EMBED ? -1 : 1 << 20;
    int ly = y->layer >= 0 ? y->layer : y->point == ASSAY_POINT_EMBED ? -1 : 1 << 20;
    if (lx != ly)
        return lx < ly ? -1 : 1;
    if (x->point != y->point)
        return x->point < y->point ? -1 : 1;
    return (x->hand_over < y->hand_over) - (x->hand_over > y->hand_over); /* earlier ones first */
}

/* The values of one step that can be judged, in the order in which an engine makes them. Layers
 * that are not judged are still what the others have as inputs. */
static assay_status list_step(const assay_seen ***out, int *n, assay_forced *f, int prompt,
                              int step, bool all_layers)
{
    int total = assay_run_n_seen(f->run, prompt, step);
    const assay_seen **list;
    ASSAY_TRY(assay_alloc(&list, (size_t)total, sizeof *list, "values of a step"));
    *n = 0;
    for (int i = 0; i < total; i++) {
        const assay_seen *seen = assay_run_seen_at(f->run, prompt, step, i);
        char name[ASSAY_POINT_NAME_BYTES];
        assay_point_format(name, seen->point, seen->layer);
        if (!all_layers && !wanted_layer(f, seen->layer))
            continue;
        bool is_part = seen->rank >= 0 && !seen->partial;
        if (is_part && assay_run_find(f->run, prompt, step, seen->point, seen->layer))
            continue; /* judged within the whole */
        bool is_judgeable =
            !seen->partial && seen->rank < 0 && seen->has_values &&
            assay_oracle_has_point(f->oracle, seen->point, seen->layer, f->latent[prompt]);
        if (is_judgeable)
            list[(*n)++] = seen;
        else if (!wanted_layer(f, seen->layer))
            continue;
        else if (seen->partial || seen->rank >= 0)
            assay_forced_say(&f->unjudged,
                             "%s: the share of one rank, before the ranks are put together", name);
        else if (!seen->has_values && seen->has_sketch)
            assay_forced_say(&f->unjudged, "%s: its sketch does not tell its values", name);
        else if (!seen->has_values)
            assay_forced_say(&f->unjudged, "%s: only statistics were kept", name);
        else
            assay_forced_say(&f->unjudged, "%s ('%s'): this model has no such point on the %s path",
                             name, seen->source ? seen->source : "",
                             f->latent[prompt] ? "latent" : "expanded");
    }
    qsort(list, (size_t)*n, sizeof *list, by_flow);
    *out = list;
    return ASSAY_OK;
}

static assay_status put_step(assay_forced *f, int prompt, int step)
{
    const assay_seen **list;
    int n;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(list_step(&list, &n, f, prompt, step, true));
    /* what is put is an input only once an op asks for it */
    bool marks = assay_run_mark_reads(f->run, false);
    for (int i = 0; i < n && s == ASSAY_OK; i++)
        if (list[i]->hand_over == 0) {
            s = assay_part_put(&(assay_part){f->passes[prompt], f->run, prompt, step}, list[i]);
        }
    assay_run_mark_reads(f->run, marks);
    free(list);
    return s == ASSAY_BAD_SHAPE
               ? assay_within(ASSAY_CANNOT_JUDGE, "the capture is of another model")
               : s;
}

static assay_status start_prompt(assay_forced *f, int prompt)
{
    const assay_run_prompt *info = assay_run_prompt_at(f->run, prompt);
    int n_vocab = assay_oracle_shape_of(f->oracle)->n_vocab;
    f->latent[prompt] = is_latent(f->run, prompt);
    assay_pass_options options = {.latent = f->latent[prompt], .knobs = &f->knobs};
    ASSAY_TRY(assay_pass_new(&f->passes[prompt], f->oracle, &options));
    for (int step = 0; step < info->n_steps; step++) {
        const assay_run_step *at = assay_run_step_at(f->run, prompt, step);
        for (int64_t i = 0; i < at->n_tokens; i++)
            if (at->tokens[i] < 0 || at->tokens[i] >= n_vocab)
                return assay_fail(ASSAY_CANNOT_JUDGE,
                                  "prompt '%s' step %d: token id %d, but the model knows 0 ... %d",
                                  info->name, step, at->tokens[i], n_vocab - 1);
        int index;
        ASSAY_TRY(assay_pass_add_step(&index, f->passes[prompt], at->tokens, at->n_tokens,
                                      at->first_position));
        ASSAY_BUG_IF(index != step);
        ASSAY_TRY(put_step(f, prompt, step));
    }
    return ASSAY_OK;
}

void assay_forced_describe_interval(assay_judged *j, assay_forced *f)
{
    assay_point points[ASSAY_FORCED_INTERVAL];
    int layers[ASSAY_FORCED_INTERVAL], steps[ASSAY_FORCED_INTERVAL];
    j->n_interval = assay_pass_interval(points, layers, steps, ASSAY_FORCED_INTERVAL,
                                        f->passes[j->prompt], j->step, j->point, j->layer);
    j->discrete_interval = false;
    for (int i = 0; i < j->n_interval && i < ASSAY_FORCED_INTERVAL; i++)
        j->discrete_interval = j->discrete_interval || assay_point_at(points[i])->is_ids;
}

static bool covers_attention(assay_forced *f, const assay_judged *j)
{
    return assay_covers_attention(f->passes[j->prompt], j->step, j->point, j->layer);
}

/* Keeps, cell by cell, whichever of two realisations of the noise is larger. */
static void keep_larger(double *rounded, const double *moved, const double *expected, int64_t n,
                        int64_t width)
{
    for (int64_t c = 0; c < n / width; c++) {
        double a = 0, b = 0;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            a += (rounded[i] - expected[i]) * (rounded[i] - expected[i]);
            b += (moved[i] - expected[i]) * (moved[i] - expected[i]);
        }
        if (b > a)
            memcpy(rounded + c * width, moved + c * width, (size_t)width * sizeof *rounded);
    }
}

/*
 * The softmax is exponential in the noise of its scores, so one realisation of that noise says
 * little. A second one has all scores off together, as a rounded scale or queries that are scaled
 * before the product have them: by one rounding of the format; in float32, where the scores are
 * sums of d products, 2^-24 sqrt(d). (What float32 does to every key on its own is in the first:
 * oracle_attention_noise.c.) A 16-bit run that shows every op rounds its scores as the
 * first realisation does; only a variant with a fitted number (`fitted`) needs the second one
 * there, since the number is never the run's to the last bit. Mixed precision rounds what it shows
 * in float32 once more before it multiplies.
 */
static assay_status add_score_noise(double *rounded, const double *expected, assay_forced *f,
                                    const assay_judged *j, const assay_part *at, int64_t n,
                                    const assay_knobs *rounding, bool fitted)
{
    const assay_oracle_shape *shape = assay_oracle_shape_of(f->oracle);
    int mantissa = assay_dtype_mantissa(f->format);
    if (!covers_attention(f, j) || (mantissa < 24 && j->n_interval == 0 && !fitted && !f->is_mixed))
        return ASSAY_OK;
    double *moved;
    assay_knobs knobs = *rounding;
    double d = shape->d_nope + shape->d_rope + (f->latent[j->prompt] ? shape->n_rank_kv : 0);
    knobs.softmax_scale *= 1 + ldexp(mantissa < 24 ? 1 : 2 + sqrt(d), -mantissa);
    ASSAY_TRY(assay_alloc(&moved, (size_t)n, sizeof *moved, "values of a point"));
    assay_status s = assay_part_expect(moved, at, j->seen, &knobs);
    if (s == ASSAY_OK)
        keep_larger(rounded, moved, expected, n, n / (j->n_rows * j->n_groups));
    free(moved);
    return s;
}

void assay_forced_widen(assay_forced *f, const assay_judged *j, int64_t n, double by)
{
    for (int64_t r = 0, cols = n / j->n_rows; r < j->n_rows; r++) {
        double size = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            size += isfinite(f->expected[i]) ? f->expected[i] * f->expected[i] : 0;
        double off = by * sqrt(size / (double)cols);
        for (int64_t i = r * cols; i < (r + 1) * cols; i++) {
            double d = f->rounded[i] - f->expected[i];
            if (isfinite(d)) /* masked scores stay what they are */
                f->rounded[i] = f->expected[i] + copysign(sqrt(d * d + off * off), d);
        }
    }
}

assay_status assay_forced_hold(assay_forced *f, int index)
{
    if (f->held == index)
        return ASSAY_OK;
    const assay_judged *j = &f->judged[index];
    assay_part at = {f->passes[j->prompt], f->run, j->prompt, j->step};
    int64_t n = assay_part_count(&at, j->seen);
    if (n < 0)
        return assay_fail(ASSAY_CANNOT_JUDGE, "shape of '%s' does not fit the model",
                          j->seen->source ? j->seen->source : "");
    f->held = -1;
    if (n > f->held_size) {
        double *p;
        ASSAY_TRY(assay_alloc(&p, (size_t)n, 3 * sizeof *p, "values of a point"));
        free(f->got);
        f->got = p;
        f->held_size = n;
    }
    f->expected = f->got + f->held_size;
    f->rounded = f->expected + f->held_size;
    if (j->seen->has_values)
        ASSAY_TRY(assay_part_read(f->got, &at, j->seen));
    if (j->against) {
        ASSAY_TRY(assay_part_read(f->expected, &at, j->against));
    } else {
        assay_part other = at;
        other.pass = f->shadows ? f->shadows[j->prompt] : at.pass;
        ASSAY_TRY(assay_part_expect(f->expected, &at, j->seen, NULL));
        if (!j->is_ids)
            ASSAY_TRY(assay_part_expect(f->rounded, &other, j->seen, &f->rounding));
        ASSAY_TRY(add_score_noise(f->rounded, f->expected, f, j, &at, n, &f->rounding, false));
    }
    if (j->seen->unsure > 0 && !f->shadows && !j->is_ids)
        assay_forced_widen(f, j, n, j->seen->unsure);
    if (!j->seen->has_values)
        ASSAY_TRY(assay_forced_guess(f, j, n));
    /* what the pool says of this value: the noise is not looked at */
    for (int64_t i = 0; i < n && j->pooled_gain != 0; i++)
        f->got[i] = j->pooled_gain * f->expected[i];
    f->held = index;
    return ASSAY_OK;
}

void assay_forced_shape_of(assay_judged *j, assay_forced *f, int64_t n)
{
    const char *axes = assay_point_at(j->point)->axes;
    const assay_run_step *at = assay_run_step_at(f->run, j->prompt, j->step);
    int64_t n_tokens = axes[0] == 'H' && j->seen->n_dims > 1 ? j->seen->dims[1] : j->seen->dims[0];
    j->first_row = n_tokens < at->n_tokens ? at->n_tokens - n_tokens : 0;
    j->n_rows = axes[0] == 'H' ? j->seen->dims[0] * n_tokens : n_tokens;
    j->n_cols = j->n_rows > 0 ? n / j->n_rows : 0;
    j->n_groups =
        axes[0] == 'T' && strlen(axes) == 3 && j->seen->n_dims == 3 ? (int)j->seen->dims[1] : 1;
}

/* What the values show: an op that gives float32 in a bf16 run has float32's floor, if it is one op
 * on captured inputs. */
static assay_dtype format_of(const assay_forced *f, const assay_judged *j, int64_t n)
{
    assay_dtype run = f->format;
    assay_dtype shown = assay_floor_format(f->got, n);
    if (assay_dtype_mantissa(run) >= 24 || j->n_interval > 0 || j->seen->is_rescaled)
        return run;
    return shown == run || shown == ASSAY_DTYPE_BF16 ? run : ASSAY_DTYPE_F32;
}

static assay_status judge_floats(assay_forced *f, int index, bool nonfinite_before)
{
    assay_judged *j = &f->judged[index];
    assay_floor_input in = {0};
    assay_forced_describe_interval(j, f);
    assay_part at = {f->passes[j->prompt], f->run, j->prompt, j->step};
    int64_t n = assay_part_count(&at, j->seen);
    if (n < 0)
        return ASSAY_CANNOT_JUDGE;
    assay_forced_shape_of(j, f, n);
    ASSAY_TRY(assay_forced_hold(f, index));
    in.got = f->got;
    in.expected = f->expected;
    in.rounded = j->against ? NULL : f->rounded;
    in.rows = j->n_rows;
    in.cols = j->n_cols;
    in.n_groups = j->n_groups;
    in.format = format_of(f, j, n);
    in.long_tail = covers_attention(f, j) && j->n_interval > 0;
    in.ignore_added_nonfinite = nonfinite_before && covers_attention(f, j);
    ASSAY_TRY(assay_floor_judge(j, &in));
    if (!j->is_home && !j->against)
        ASSAY_TRY(assay_forced_pool_add(f->pool, j, f->got, f->expected, f->rounded));
    if (!j->is_home || !j->discrete_interval || j->against)
        return ASSAY_OK;
    int64_t n_changed;
    ASSAY_TRY(assay_ids_infer(&n_changed, &at, j, f->got, f->expected, &f->knobs, &f->rounding,
                              f->oracle));
    if (n_changed == 0)
        return ASSAY_OK;
    f->held = -1;
    ASSAY_TRY(assay_forced_hold(f, index));
    in.expected = f->expected;
    in.rounded = f->rounded;
    char name[ASSAY_POINT_NAME_BYTES];
    assay_forced_say(
        &f->notes,
        "%s of prompt '%s' step %d: the choice of experts was not captured; %lld row%s fit a "
        "choice that rounding may make at a near tie",
        assay_point_format(name, j->point, j->layer), assay_run_prompt_at(f->run, j->prompt)->name,
        j->step, (long long)n_changed, n_changed == 1 ? "" : "s");
    return assay_floor_judge(j, &in);
}

/* A NaN travels through products with zero; the -inf of a masked score does not. */
static bool has_nan(const assay_forced *f, int index)
{
    const assay_judged *j = &f->judged[index];
    bool found = false;
    for (int64_t i = 0; f->held == index && i < j->n_rows * j->n_cols && !found; i++)
        found = isnan(f->got[i]);
    return found;
}

assay_status assay_forced_next(assay_judged **out, assay_forced *f, int prompt, int step,
                               const assay_seen *seen)
{
    if (f->n_judged == f->room) {
        int room = f->room ? 2 * f->room : 256;
        assay_judged *list = realloc(f->judged, (size_t)room * sizeof *list);
        if (!list)
            return assay_fail(ASSAY_NO_MEMORY, "out of memory for %d judged values", room);
        f->judged = list;
        f->room = room;
    }
    assay_judged *j = &f->judged[f->n_judged];
    memset(j, 0, sizeof *j);
    j->prompt = prompt;
    j->step = step;
    j->layer = seen->layer;
    j->point = seen->point;
    j->seen = seen;
    j->first_bad = -1;
    j->is_ids = assay_point_at(seen->point)->is_ids;
    *out = j;
    return ASSAY_OK;
}

static assay_status judge_value(assay_forced *f, int prompt, int step, const assay_seen *seen,
                                const assay_seen *against, bool *nonfinite)
{
    assay_judged *j;
    ASSAY_TRY(assay_forced_next(&j, f, prompt, step, seen));
    j->against = against;
    if (j->is_ids && against)
        return ASSAY_OK; /* ids are put in order by their hand-over; the point itself is judged */
    if (j->is_ids)
        ASSAY_TRY(assay_ids_judge_seen(j, &(assay_part){f->passes[prompt], f->run, prompt, step},
                                       &f->knobs, &f->rounding, f->oracle));
    else
        ASSAY_TRY(judge_floats(f, f->n_judged, *nonfinite));
    if (seen->known == ASSAY_KNOWN_ACCEPTED)
        j->is_home = false;
    if (j->n_nonfinite_added > 0 || (!j->is_ids && has_nan(f, f->n_judged)))
        *nonfinite = true;
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, j->point, j->layer);
    if (j->is_ids && j->n_flips > 0 && !j->is_home)
        assay_forced_say(
            &f->notes, "%s: %lld ids differ within the noise of the scores (gap %.2g, noise %.2g)",
            name, (long long)j->n_flips, j->worst_gap, j->gap_noise);
    f->n_judged++;
    return ASSAY_OK;
}

static assay_status judge_step(assay_forced *f, int prompt, int step, bool *nonfinite)
{
    const assay_seen **list;
    int n;
    ASSAY_TRY(list_step(&list, &n, f, prompt, step, false));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < n && s == ASSAY_OK; i++) {
        const assay_seen *before = i > 0 ? list[i - 1] : NULL;
        bool again = before && before->point == list[i]->point && before->layer == list[i]->layer;
        if (!wanted_place(f, prompt, step, list[i])) {
            *nonfinite = *nonfinite || list[i]->n_nan > 0;
            continue;
        }
        if (!again && assay_lacks_keys(f->passes[prompt], f->run, prompt, step, list[i])) {
            char name[ASSAY_POINT_NAME_BYTES];
            assay_forced_say(&f->unjudged, "%s of step %d: attention reads rows that were not kept",
                             assay_point_format(name, list[i]->point, list[i]->layer), step);
            continue;
        }
        s = judge_value(f, prompt, step, list[i], again ? before : NULL, nonfinite);
        if (s != ASSAY_OK) {
            char name[ASSAY_POINT_NAME_BYTES];
            assay_point_format(name, list[i]->point, list[i]->layer);
            s = assay_within(s, "prompt '%s' step %d %s", assay_run_prompt_at(f->run, prompt)->name,
                             step, name);
        }
    }
    free(list);
    return s;
}

assay_status assay_forced_start(assay_forced **out, assay_run *run, assay_oracle *oracle,
                                const assay_forced_options *options)
{
    assay_forced *f;
    assay_status s = ASSAY_OK;
    int n_prompts = assay_run_n_prompts(run);
    ASSAY_TRY(assay_alloc(&f, 1, sizeof *f, "forced pass"));
    f->run = run;
    f->oracle = oracle;
    f->held = -1;
    f->first_layer = options ? options->first_layer : 0;
    f->last_layer = options ? options->last_layer : -1;
    f->layers = options ? options->layers : NULL;
    f->only = options ? options->only : NULL;
    f->n_only = options ? options->n_only : 0;
    set_knobs(f, options);
    if (f->is_mixed)
        assay_forced_say(&f->notes,
                         "mixed precision: values of float32 and of %s; the floors are those of %s",
                         assay_dtype_name(f->format), assay_dtype_name(f->format));
    ASSAY_GO(assay_forced_pool_new(&f->pool));
    ASSAY_GO(assay_forced_follow_sizes(f));
    ASSAY_GO(assay_alloc(&f->passes, (size_t)n_prompts, sizeof *f->passes, "passes"));
    ASSAY_GO(assay_alloc(&f->latent, (size_t)n_prompts, sizeof *f->latent, "paths"));
    for (int p = 0; p < n_prompts; p++)
        ASSAY_GO(start_prompt(f, p));
    *out = f;
    return ASSAY_OK;
out:
    assay_forced_free(f);
    return s;
}

assay_status assay_forced_new(assay_forced **out, assay_run *run, assay_oracle *oracle,
                              const assay_forced_options *options)
{
    assay_forced *f;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_forced_start(&f, run, oracle, options));
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        bool nonfinite = false;
        for (int step = 0; step < assay_run_prompt_at(run, p)->n_steps; step++)
            if (!assay_run_step_at(run, p, step)->is_found) /* judged where it was computed */
                ASSAY_GO(judge_step(f, p, step, &nonfinite));
    }
    ASSAY_GO(assay_forced_pool_judge(f->pool, f->judged, f->n_judged));
    f->held = -1;
    if (f->n_judged == 0)
        ASSAY_GO(assay_fail(ASSAY_CANNOT_JUDGE, "%s: none of its values can be judged%s%s",
                            assay_run_about(run)->path, f->unjudged.n ? "; first: " : "",
                            f->unjudged.n ? f->unjudged.items[0] : ""));
    f->only = NULL;
    f->n_only = 0;
    *out = f;
    return ASSAY_OK;
out:
    assay_forced_free(f);
    return s;
}

void assay_forced_free(assay_forced *forced)
{
    if (!forced)
        return;
    for (int p = 0; forced->passes && p < assay_run_n_prompts(forced->run); p++)
        assay_pass_free(forced->passes[p]);
    for (int p = 0; forced->shadows && p < assay_run_n_prompts(forced->run); p++)
        assay_pass_free(forced->shadows[p]);
    free(forced->passes);
    free(forced->shadows);
    free(forced->latent);
    free(forced->judged);
    assay_forced_pool_free(forced->pool);
    free(forced->got);
    text_clear(&forced->unjudged);
    text_clear(&forced->notes);
    free(forced);
}

int assay_forced_n(const assay_forced *forced)
{
    return forced->n_judged;
}

const assay_judged *assay_forced_at(const assay_forced *forced, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= forced->n_judged);
    return &forced->judged[index];
}

int assay_forced_find(const assay_forced *forced, int prompt, int step, assay_point point,
                      int layer)
{
    for (int i = 0; i < forced->n_judged; i++) {
        const assay_judged *j = &forced->judged[i];
        if (j->prompt == prompt && j->step == step && j->point == point && j->layer == layer)
            return i;
    }
    return -1;
}

assay_run *assay_forced_run(const assay_forced *forced)
{
    return forced->run;
}

assay_oracle *assay_forced_oracle(const assay_forced *forced)
{
    return forced->oracle;
}

assay_pass *assay_forced_pass(const assay_forced *forced, int prompt)
{
    return forced->passes[prompt];
}

bool assay_forced_is_latent(const assay_forced *forced, int prompt)
{
    return forced->latent[prompt];
}

const assay_knobs *assay_forced_knobs(const assay_forced *forced)
{
    return &forced->knobs;
}

assay_status assay_forced_values(const double **got, const double **expected, assay_forced *forced,
                                 int index)
{
    ASSAY_TRY(assay_forced_hold(forced, index));
    *got = forced->got;
    *expected = forced->expected;
    return ASSAY_OK;
}

assay_status assay_forced_expect(double *out, assay_forced *forced, int index,
                                 const assay_knobs *knobs)
{
    const assay_judged *j = assay_forced_at(forced, index);
    assay_part at = {forced->passes[j->prompt], forced->run, j->prompt, j->step};
    return assay_part_expect(out, &at, j->seen, knobs);
}

assay_status assay_forced_noise(double *noise, assay_forced *forced, int index,
                                const assay_knobs *knobs, const double *variant)
{
    const assay_judged *j = assay_forced_at(forced, index);
    assay_part at = {forced->passes[j->prompt], forced->run, j->prompt, j->step};
    assay_knobs rounding = *knobs;
    int64_t n = j->n_rows * j->n_cols;
    rounding.round_out = forced->rounding.round_out;
    rounding.round_weight = forced->rounding.round_weight;
    rounding.activations_q8 = forced->rounding.activations_q8;
    if (knobs->key_scale != 1 || knobs->value_scale != 1) /* stored, scaled, stored again */
        rounding.round_cache = rounding.round_out;
    ASSAY_TRY(assay_part_expect(noise, &at, j->seen, &rounding));
    ASSAY_TRY(add_score_noise(noise, variant, forced, j, &at, n, &rounding, true));
    for (int64_t i = 0; i < n; i++)
        noise[i] -= variant[i];
    return ASSAY_OK;
}

/* What is left of a pooled factor, against its standard error. */
static void rejudge_pooled(assay_judged *j, const double *got, const double *explained, int64_t n)
{
    double rest = 0, size = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(got[i]) && isfinite(explained[i])) {
            rest += (got[i] - explained[i]) * (got[i] - explained[i]);
            size += got[i] * got[i];
        }
    j->rel = size > 0 ? sqrt(rest / size) : 0;
    j->is_home = j->rel > 3 * j->floor_rel;
}

assay_status assay_forced_rejudge(assay_judged *judged, assay_forced *forced, int index,
                                  const double *explained, const double *noise)
{
    const assay_judged *j = assay_forced_at(forced, index);
    assay_floor_input in = {0};
    *judged = *j;
    ASSAY_TRY(assay_forced_hold(forced, index));
    int64_t n = j->n_rows * j->n_cols;
    if (j->pooled_gain != 0) {
        rejudge_pooled(judged, forced->got, explained, n);
        return ASSAY_OK;
    }
    double *rounded;
    ASSAY_TRY(assay_alloc(&rounded, (size_t)n, sizeof *rounded, "rounded explanation"));
    for (int64_t i = 0; i < n; i++)
        rounded[i] = explained[i] + (noise && !isnan(noise[i]) ? noise[i]
                                     : j->against              ? 0
                                                  : forced->rounded[i] - forced->expected[i]);
    assay_projection sketch;
    if (assay_forced_projection(&sketch, forced, index)) {
        assay_status judged_by_sketch =
            assay_forced_judge_sketch(judged, forced, explained, rounded);
        free(rounded);
        return judged_by_sketch;
    }
    in.got = forced->got;
    in.expected = explained;
    in.rounded = rounded;
    in.rows = j->n_rows;
    in.cols = j->n_cols;
    in.n_groups = j->n_groups;
    in.format = j->format;
    in.long_tail = covers_attention(forced, j) && j->n_interval > 0;
    assay_status s = assay_floor_judge(judged, &in);
    free(rounded);
    return s;
}

int assay_forced_interval(assay_point points[ASSAY_FORCED_INTERVAL],
                          int layers[ASSAY_FORCED_INTERVAL], int steps[ASSAY_FORCED_INTERVAL],
                          assay_forced *forced, int index)
{
    const assay_judged *j = assay_forced_at(forced, index);
    if (j->against)
        return 0;
    int n = assay_pass_interval(points, layers, steps, ASSAY_FORCED_INTERVAL,
                                forced->passes[j->prompt], j->step, j->point, j->layer);
    return n < ASSAY_FORCED_INTERVAL ? n : ASSAY_FORCED_INTERVAL;
}

/* Ops of the whole model in one step of a prompt. */
static int64_t ops_of_step(const assay_forced *f, int prompt)
{
    int n_layers = assay_oracle_shape_of(f->oracle)->n_layer;
    int64_t n = 0;
    for (int point = 0; point < ASSAY_POINT_COUNT; point++) {
        bool per_layer = assay_point_at((assay_point)point)->per_layer;
        for (int layer = per_layer ? 0 : -1; layer < (per_layer ? n_layers : 0); layer++)
            n += assay_oracle_has_point(f->oracle, (assay_point)point, layer, f->latent[prompt]);
    }
    return n;
}

double assay_forced_cost(const assay_forced *forced)
{
    double done = 0, pass = 0;
    for (int p = 0; p < assay_run_n_prompts(forced->run); p++) {
        done += (double)assay_pass_n_ops(forced->passes[p]);
        pass += (double)(ops_of_step(forced, p) * assay_run_prompt_at(forced->run, p)->n_steps);
    }
    return pass > 0 ? done / pass : 0;
}

int assay_forced_n_unjudged(const assay_forced *forced)
{
    return forced->unjudged.n;
}

const char *assay_forced_unjudged_at(const assay_forced *forced, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= forced->unjudged.n);
    return forced->unjudged.items[index];
}

int assay_forced_n_notes(const assay_forced *forced)
{
    return forced->notes.n;
}

const char *assay_forced_note_at(const assay_forced *forced, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= forced->notes.n);
    return forced->notes.items[index];
}
