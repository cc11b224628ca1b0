/*
 * Homes become findings: merged, grouped, put in words.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_pictures.h"
#include "reports/diagnose_private.h"
#include "reports/text.h"

static const assay_judged *judged_of(const assay_diagnosis *d, int position)
{
    return assay_forced_at(d->forced, d->homes[position].index);
}

/* True when h's interval of uncaptured ops holds the home g of another step or prompt, or when both
 * are at one point and g sees it with fewer ops between. */
static bool belongs_to(const assay_diagnosis *d, int h, int g)
{
    const assay_judged *a = judged_of(d, h), *b = judged_of(d, g);
    if (a->against || a->n_interval == 0 || (a->prompt == b->prompt && a->step == b->step))
        return false;
    if (a->point == b->point && a->layer == b->layer)
        return a->n_interval > b->n_interval;
    if (b->n_interval >= a->n_interval)
        return false;
    assay_point points[ASSAY_FORCED_INTERVAL];
    int layers[ASSAY_FORCED_INTERVAL], steps[ASSAY_FORCED_INTERVAL];
    int n = assay_forced_interval(points, layers, steps, d->forced, d->homes[h].index);
    for (int i = 0; i < n; i++)
        if (points[i] == b->point && layers[i] == b->layer)
            return true;
    return false;
}

void assay_diagnosis_merge(assay_diagnosis *d)
{
    for (int h = 0; h < d->n; h++)
        for (int g = 0; g < d->n && d->homes[h].merged < 0; g++)
            if (g != h && d->homes[g].merged != h && belongs_to(d, h, g))
                d->homes[h].merged = g;
    for (int h = 0; h < d->n; h++) /* chains end at a home that belongs to none */
        for (int hops = 0; d->homes[h].merged >= 0 && hops < d->n; hops++) {
            int next = d->homes[d->homes[h].merged].merged;
            if (next < 0)
                break;
            d->homes[h].merged = next;
        }
}

/* "window, in some heads" of one step is the window of another. */
static size_t kind_length(const char *kind)
{
    const char *some = strstr(kind, ", in some ");
    return some ? (size_t)(some - kind) : strlen(kind);
}

static bool same_finding(const assay_located *a, const assay_located *b)
{
    size_t n = kind_length(a->kind);
    return a->fault == b->fault && n == kind_length(b->kind) && !strncmp(a->kind, b->kind, n) &&
           !strcmp(a->family, b->family);
}

/* Adds where one home is to the lists of a finding. */
static assay_status add_place(assay_finding *f, const assay_diagnosis *d, const assay_judged *j)
{
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, j->point, j->layer);
    return assay_finding_add_place(
        f, name, j->layer, j->step,
        assay_run_prompt_at(assay_forced_run(d->forced), j->prompt)->name);
}

/* The last value before it in the flow of the same step that was judged right. */
static assay_status set_last_good(assay_finding *f, const assay_diagnosis *d, int index)
{
    const assay_judged *j = assay_forced_at(d->forced, index);
    char name[ASSAY_POINT_NAME_BYTES];
    for (int i = index - 1; i >= 0; i--) {
        const assay_judged *k = assay_forced_at(d->forced, i);
        if (k->prompt != j->prompt || k->step != j->step)
            break;
        if (k->is_home || (k->point == j->point && k->layer == j->layer))
            continue;
        assay_point_format(name, k->point, k->layer);
        return assay_finding_set(&f->last_good, "%s", name);
    }
    return ASSAY_OK;
}

/* Flat index of [rows, cols] to the axes of the captured value. */
static assay_status set_first_bad(assay_finding *f, assay_diagnosis *d, int index)
{
    const assay_judged *j = assay_forced_at(d->forced, index);
    const double *got, *expected;
    if (j->first_bad < 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_forced_values(&got, &expected, d->forced, index));
    int64_t rest = j->first_bad, n = j->n_rows * j->n_cols;
    bool heads_first = assay_point_at(j->point)->axes[0] == 'H';
    f->has_first_bad = true;
    f->n_first_bad = j->seen->n_dims < 4 ? j->seen->n_dims : 4;
    for (int i = 0; i < f->n_first_bad; i++) {
        int64_t size = i == j->seen->n_dims - 1 && j->n_groups <= 1 && !heads_first
                           ? j->n_cols
                           : j->seen->dims[i];
        if (i == f->n_first_bad - 1 && heads_first)
            size = j->n_cols;
        n /= size > 0 ? size : 1;
        f->first_bad[i] = n > 0 ? rest / n : 0;
        rest -= f->first_bad[i] * n;
    }
    f->first_bad[heads_first ? 1 : 0] += j->first_row;
    f->first_bad_got = got[j->first_bad];
    f->first_bad_expected = expected[j->first_bad];
    return ASSAY_OK;
}

static assay_status set_numbers(assay_finding *f, assay_diagnosis *d, int index)
{
    const assay_judged *j = assay_forced_at(d->forced, index);
    f->error_rel = j->rel;
    f->error_cos = j->is_ids ? NAN : 1 - j->one_minus_cos;
    f->error_gain = j->is_ids ? NAN : j->gain;
    f->floor = j->is_ids ? j->gap_noise : j->floor_rel;
    return set_first_bad(f, d, index);
}

/* One finding about all weights of the file. */
static bool is_of_model(const assay_located *l)
{
    return !strcmp(l->family, "model");
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* Values that a finding holds, told apart by where they are. */
typedef struct place_count {
    int n_places; /* explained by its class */
    int n_here;   /* wrong at the same points in other steps, which show fewer ops before them */
    int n_after;  /* wrong at points that this op lies before */
    int n_cached; /* of later steps, right with what should have been cached */
    int n_judged; /* at the finding's points, wrong or not */
} place_count;

static bool has_point(const assay_finding *f, const assay_judged *j)
{
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, j->point, j->layer);
    for (int i = 0; i < f->points.n; i++)
        if (!strcmp(f->points.items[i], name))
            return true;
    return false;
}

static void count_judged(place_count *count, const assay_finding *f, const assay_diagnosis *d,
                         bool is_handed_over)
{
    for (int i = 0; i < assay_forced_n(d->forced); i++) {
        const assay_judged *j = assay_forced_at(d->forced, i);
        count->n_judged += (j->against != NULL) == is_handed_over && has_point(f, j);
    }
}

/* "heads 4-7" of slice i, or "slice 1" of the channels. */
static const char *slice_name(char out[48], int i, int n_heads)
{
    if (n_heads == 1)
        snprintf(out, 48, "head %d", i);
    else if (n_heads > 1)
        snprintf(out, 48, "heads %d-%d", i * n_heads, (i + 1) * n_heads - 1);
    else
        snprintf(out, 48, "slice %d", i);
    return out;
}

/* What a fitted map of slices means, in heads where it is about heads. */
static assay_status add_slices(assay_finding *f, const assay_diagnosis *d, const assay_located *l)
{
    const json_t *map = json_object_get(l->fitted, "map");
    int n = (int)json_integer_value(json_object_get(l->fitted, "slices"));
    int H = assay_oracle_shape_of(assay_forced_oracle(d->forced))->n_head;
    int n_heads = n > 0 && strstr(l->kind, "heads") && H % n == 0 ? H / n : 0;
    char text[512] = "", is[48], of[48];
    size_t used = 0;
    if (n < 2 || (int)json_array_size(map) != n)
        return ASSAY_OK;
    if (n == 2 && json_integer_value(json_array_get(map, 0)) == 1 &&
        json_integer_value(json_array_get(map, 1)) == 0)
        return assay_strings_add(&f->evidence,
                                 "the first and the second half of the %s are exchanged: %s with "
                                 "%s",
                                 n_heads ? "heads" : "channels", slice_name(is, 0, n_heads),
                                 slice_name(of, 1, n_heads));
    for (int i = 0; i < n && used < sizeof text - 128; i++) {
        int from = (int)json_integer_value(json_array_get(map, (size_t)i));
        if (from != i)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s as %s", used ? ", " : "",
                                 slice_name(is, i, n_heads), slice_name(of, from, n_heads));
    }
    return used ? assay_strings_add(&f->evidence, "taken: %s", text) : ASSAY_OK;
}

static assay_status add_evidence(assay_finding *f, const assay_diagnosis *d, const assay_located *l,
                                 const place_count *count)
{
    const assay_judged *j = assay_forced_at(d->forced, l->index);
    char points[ASSAY_POINT_NAME_BYTES];
    if (l->evidence[0])
        ASSAY_TRY(assay_strings_add(&f->evidence, "%s", l->evidence));
    ASSAY_TRY(add_slices(f, d, l));
    if (l->shape[0])
        ASSAY_TRY(assay_strings_add(&f->evidence, "%s", l->shape));
    ASSAY_TRY(assay_strings_add(&f->evidence, "%s, computed again from the inputs it had: %s",
                                assay_point_format(points, j->point, j->layer),
                                strncmp(j->why, "whole: ", 7) ? j->why : j->why + 7));
    if (l->second[0])
        ASSAY_TRY(assay_strings_add(&f->evidence, "%s", l->second));
    bool of_model = is_of_model(l);
    int n_wrong = count->n_places + (of_model ? 0 : count->n_here);
    const char *all = n_wrong == count->n_judged ? "all " : "";
    if (count->n_here > 0 && !of_model)
        ASSAY_TRY(assay_strings_add(&f->evidence,
                                    "wrong at %s%d places (layers, steps, prompts); judged by "
                                    "the %d of them that show most of what was read",
                                    all, n_wrong, count->n_places));
    else if (n_wrong > 1)
        ASSAY_TRY(assay_strings_add(
            &f->evidence, "the same at %s%d places (layers, steps, prompts)", all, n_wrong));
    if (count->n_cached > 0)
        ASSAY_TRY(assay_strings_add(&f->evidence,
                                    "attention of later steps is right with the expected value in "
                                    "the cache (%d value%s): the cache holds the right one, this "
                                    "step's attention was handed another",
                                    count->n_cached, plural(count->n_cached)));
    if (count->n_after > 0 && !of_model)
        ASSAY_TRY(assay_strings_add(&f->evidence,
                                    "%d value%s of later points differ%s because of it: this op is "
                                    "among those that were not captured before them",
                                    count->n_after, plural(count->n_after),
                                    count->n_after == 1 ? "s" : ""));
    return ASSAY_OK;
}

static assay_status set_words(assay_finding *f, const assay_diagnosis *d, const assay_located *l)
{
    char layers[64];
    assay_text_ranges(layers, sizeof layers, &f->layers);
    const char *where = f->layers.n > 1 ? "layers" : "layer";
    if (l->fault == ASSAY_FAULT_UNKNOWN) {
        ASSAY_TRY(assay_finding_set(&f->fault_class, "UNKNOWN"));
        static const char tail[] = "and no class of the table explains how";
        if (f->layers.n)
            ASSAY_TRY(assay_finding_set(&f->sentence, "%s: wrong on its inputs (%s %s), %s",
                                        f->point, where, layers, tail));
        else
            ASSAY_TRY(
                assay_finding_set(&f->sentence, "%s: wrong on its inputs, %s", f->point, tail));
        return assay_finding_set(
            &f->advice,
            "Look at the elements (assay show CAPTURE %s) and run the op alone on the captured "
            "inputs; the shape above says where. When most points are wrong, ask first "
            "whether MODEL is what was run.",
            f->point);
    }
    const assay_fault *fault = assay_fault_at(l->fault);
    ASSAY_TRY(assay_finding_set(&f->fault_class, "%s", fault->name));
    if (f->layers.n)
        ASSAY_TRY(
            assay_finding_set(&f->sentence, "%s: %s (%s %s)", f->point, l->kind, where, layers));
    else
        ASSAY_TRY(assay_finding_set(&f->sentence, "%s: %s", f->point, l->kind));
    if (is_of_model(l))
        return assay_finding_set(
            &f->advice, "Ask first whether MODEL is the file that was run: compare version, "
                        "quantization and SHA-256. If it is, the engine loaded something else.");
    if (l->fault == ASSAY_FAULT_RANK_SLICE &&
        assay_run_about(assay_forced_run(d->forced))->n_ranks < 2)
        return assay_finding_set(
            &f->advice,
            "This capture knows of one rank: look at where the op's input or weight is "
            "cut into parts and put together (split, chunk, reshape, concatenate), or "
            "at how the ranks' parts were gathered for this dump. Of several ranks: %s",
            fault->advice);
    return assay_finding_set(&f->advice, "%s", fault->advice);
}

static assay_status make_finding(assay_result *result, assay_diagnosis *d, int first, bool *used,
                                 const char *reproduce)
{
    assay_finding f;
    char name[ASSAY_POINT_NAME_BYTES];
    assay_located *l = &d->homes[first];
    const assay_judged *j = judged_of(d, first);
    place_count count = {0};
    assay_status s = ASSAY_OK;
    assay_finding_init(&f);
    for (int i = first; i < d->n; i++)
        if (!used[i] && d->homes[i].merged < 0 && same_finding(&d->homes[i], l)) {
            used[i] = true;
            count.n_places++;
            ASSAY_GO(add_place(&f, d, judged_of(d, i)));
            for (int k = 0; k < d->homes[i].ranks.n; k++)
                ASSAY_GO(assay_numbers_add(&f.ranks, d->homes[i].ranks.items[k]));
            for (int k = 0; k < d->n; k++)
                if (d->homes[k].merged == i) {
                    const assay_judged *at = judged_of(d, k), *of = judged_of(d, i);
                    bool here = at->point == of->point && at->layer == of->layer;
                    bool later = l->cached_right && at->step > of->step;
                    count.n_here += here;
                    count.n_cached += !here && later;
                    count.n_after += !here && !later;
                    if (is_of_model(l) && judged_of(d, k)->layer >= 0)
                        ASSAY_GO(assay_numbers_add(&f.layers, judged_of(d, k)->layer));
                    if (!later)
                        ASSAY_GO(assay_numbers_add(&f.steps, judged_of(d, k)->step));
                    ASSAY_GO(assay_strings_add_once(
                        &f.prompts,
                        assay_run_prompt_at(assay_forced_run(d->forced), judged_of(d, k)->prompt)
                            ->name));
                }
        }
    ASSAY_GO(assay_finding_set(&f.kind, "%s", l->kind));
    ASSAY_GO(assay_finding_set(&f.point, "%s", assay_point_format(name, j->point, j->layer)));
    ASSAY_GO(assay_finding_set(&f.op, "%s", assay_point_at(j->point)->made_by));
    ASSAY_GO(set_last_good(&f, d, l->index));
    ASSAY_GO(set_numbers(&f, d, l->index));
    json_object_update(f.fitted, l->fitted);
    f.confidence = l->confidence;
    f.explained = l->explained;
    ASSAY_GO(set_words(&f, d, l));
    count_judged(&count, &f, d, j->against != NULL);
    ASSAY_GO(add_evidence(&f, d, l, &count));
    if (reproduce)
        ASSAY_GO(assay_finding_set(&f.reproduce, "%s", reproduce));
    ASSAY_GO(assay_result_add_finding(result, &f));
    ASSAY_GO(assay_diagnosis_pictures(result, result->n_findings - 1, d->forced, l->index));
out:
    assay_finding_clear(&f);
    return s;
}

static assay_status make_note(assay_result *result, assay_diagnosis *d, int first, bool *used)
{
    assay_located *l = &d->homes[first];
    assay_numbers layers = {0};
    char text[64];
    assay_status s = ASSAY_OK;
    for (int i = first; i < d->n; i++)
        if (!used[i] && d->homes[i].merged < 0 && same_finding(&d->homes[i], l)) {
            used[i] = true;
            if (judged_of(d, i)->layer >= 0)
                ASSAY_GO(assay_numbers_add(&layers, judged_of(d, i)->layer));
        }
    ASSAY_GO(assay_strings_add(&result->notes, "convention, not a fault: %s at %s, layers %s: %s",
                               l->kind, assay_point_at(judged_of(d, first)->point)->name,
                               assay_text_ranges(text, sizeof text, &layers), l->evidence));
out:
    assay_numbers_clear(&layers);
    return s;
}

assay_status assay_diagnosis_findings(assay_result *result, assay_diagnosis *d,
                                      const char *reproduce)
{
    bool *used;
    ASSAY_TRY(assay_alloc(&used, (size_t)d->n, sizeof *used, "homes"));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < d->n && s == ASSAY_OK; i++) {
        if (used[i] || d->homes[i].merged >= 0)
            continue;
        s = d->homes[i].convention ? make_note(result, d, i, used)
                                   : make_finding(result, d, i, used, reproduce);
    }
    free(used);
    return s;
}
