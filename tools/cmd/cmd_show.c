/*
 * assay show: the numbers at one point of a capture, beside a reference if one is given.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/checkpoint.h"
#include "references/forced.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_ROWS = 0x400, KEY_HEADS, KEY_COLUMNS, KEY_REFERENCE, KEY_MODEL, KEY_ALL };

static const struct argp_option options[] = {
    {"rows", KEY_ROWS, "A-B", 0,
     "Only these rows of the first axis: tokens; heads of attn.probs (default 0-3; JSON: all)", 0},
    {"heads", KEY_HEADS, "A-B", 0, "Only these entries of the second axis (default 0-3; JSON: all)",
     0},
    {"columns", KEY_COLUMNS, "A-B", 0, "Only these entries of the last axis (default 0-7)", 0},
    {"reference", KEY_REFERENCE, "REF", 0, "Shows this capture's numbers underneath", 0},
    {"model", KEY_MODEL, "MODEL", 0,
     "Shows underneath what the op gives in float64 on the inputs it had (GGUF file or folder of "
     "a checkpoint)",
     0},
    {"all", KEY_ALL, NULL, 0,
     "With --model: every value at the point, not the first wrong one alone (JSON: all)", 0},
    {0}};

typedef struct span {
    int first, last; /* last -1: to the end */
} span;

typedef struct own {
    span rows, heads, columns;
    const char *reference, *model;
    bool all;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_ROWS:
        assay_option_range(state, "rows", arg, &o->rows.first, &o->rows.last);
        return 0;
    case KEY_HEADS:
        assay_option_range(state, "heads", arg, &o->heads.first, &o->heads.last);
        return 0;
    case KEY_COLUMNS:
        assay_option_range(state, "columns", arg, &o->columns.first, &o->columns.last);
        return 0;
    case KEY_REFERENCE:
        o->reference = arg;
        return 0;
    case KEY_MODEL:
        o->model = arg;
        return 0;
    case KEY_ALL:
        o->all = true;
        return 0;
    case ARGP_KEY_END:
        if (o->reference && o->model)
            argp_error(state, "--reference and --model: one of them stands beside the numbers");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One value, read whole. A value of two axes has one "head". */
typedef struct value {
    const assay_seen *seen;
    double *x;
    int64_t n_rows, n_heads, n_columns;
} value;

static int64_t count_of(const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    return n;
}

static assay_status load(value *out, const assay_run *run, const assay_seen *seen)
{
    *out = (value){.seen = seen, .n_rows = 1, .n_heads = 1, .n_columns = 1};
    int n = seen->n_dims;
    if (n > 0)
        out->n_columns = seen->dims[n - 1];
    if (n > 1)
        out->n_rows = seen->dims[0];
    for (int d = 1; d < n - 1; d++)
        out->n_heads *= seen->dims[d];
    if (!seen->has_values)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&out->x, (size_t)count_of(seen), sizeof *out->x, seen->source));
    return assay_run_read(out->x, run, seen);
}

static int64_t end_of(span s, int64_t n)
{
    return s.last < 0 || s.last >= n ? n : s.last + 1;
}

/* Text: the first few unless asked for; JSON has them all. */
static int64_t end_shown(span s, int64_t n)
{
    return s.last < 0 && n > 4 ? 4 : end_of(s, n);
}

static void print_row(const char *mark, const value *v, const own *o, int64_t r, int64_t h)
{
    const double *x = v->x + (r * v->n_heads + h) * v->n_columns;
    int64_t last = end_of(o->columns, v->n_columns);
    if (v->n_heads > 1)
        printf("%-3s%5lld,%-4lld", mark, (long long)r, (long long)h);
    else
        printf("%-3s%5lld     ", mark, (long long)r);
    for (int64_t c = o->columns.first; c < last; c++)
        printf(" %12.6g", x[c]);
    printf("%s\n", last < v->n_columns ? " ..." : "");
}

/* Of the whole value, so that the first rows alone do not mislead. */
static void print_distance(const value *v, const value *ref)
{
    double d = 0, dot = 0, mine = 0, theirs = 0;
    int64_t n = v->n_rows * v->n_heads * v->n_columns;
    for (int64_t i = 0; i < n; i++) {
        d += (v->x[i] - ref->x[i]) * (v->x[i] - ref->x[i]);
        dot += v->x[i] * ref->x[i];
        mine += v->x[i] * v->x[i];
        theirs += ref->x[i] * ref->x[i];
    }
    printf("  whole value: relative L2 %.3g", theirs > 0 ? sqrt(d / theirs) : d > 0 ? INFINITY : 0);
    if (mine > 0 && theirs > 0)
        printf(", cosine %.6g\n", dot / sqrt(mine * theirs));
    else
        printf(", %s zero\n", mine > 0     ? "the other side is"
                              : theirs > 0 ? "all"
                                           : "both sides are");
}

static double row_distance(const value *v, const value *ref, int64_t row)
{
    double d = 0, s = 0;
    for (int64_t c = row * v->n_columns; c < (row + 1) * v->n_columns; c++) {
        d += (v->x[c] - ref->x[c]) * (v->x[c] - ref->x[c]);
        s += ref->x[c] * ref->x[c];
    }
    return s > 0 ? sqrt(d / s) : d > 0 ? INFINITY : 0;
}

static void print_head(const char *title, const value *v, const char *prompt, int step)
{
    const assay_seen *seen = v->seen;
    char name[ASSAY_POINT_NAME_BYTES];
    printf("%s%s, prompt %s, step %d: [", title, assay_point_format(name, seen->point, seen->layer),
           prompt, step);
    for (int d = 0; d < seen->n_dims; d++)
        printf("%s%lld", d ? ", " : "", (long long)seen->dims[d]);
    printf("] %s, from %s", assay_dtype_name(seen->origin), seen->source);
    if (seen->hand_over)
        printf(", before it was handed over (hand-over %d)", seen->hand_over);
    if (seen->rank >= 0)
        printf(", rank %d", seen->rank);
    if (seen->n_nan > 0 || seen->n_pos_inf > 0 || seen->n_neg_inf > 0 || seen->n_poison > 0)
        printf(", %lld NaN (%lld poison), %lld +Inf, %lld -Inf", (long long)seen->n_nan,
               (long long)seen->n_poison, (long long)seen->n_pos_inf, (long long)seen->n_neg_inf);
    printf("%s\n", seen->has_values ? "" : " (only statistics were kept)");
}

static bool same_shape(const value *a, const value *b)
{
    return a->seen->n_dims == b->seen->n_dims &&
           !memcmp(a->seen->dims, b->seen->dims, sizeof a->seen->dims) && a->x && b->x;
}

static void print_value(const value *v, const value *ref, const own *o)
{
    if (!v->x)
        return;
    if (ref)
        print_distance(v, ref);
    int64_t rows = end_shown(o->rows, v->n_rows), heads = end_shown(o->heads, v->n_heads);
    for (int64_t r = o->rows.first; r < rows; r++)
        for (int64_t h = o->heads.first; h < heads; h++) {
            print_row("", v, o, r, h);
            if (!ref)
                continue;
            print_row("  =", ref, o, r, h);
            printf("           relative L2 of the row: %.3g\n",
                   row_distance(v, ref, r * v->n_heads + h));
        }
    if (rows < v->n_rows)
        printf("  ... %lld more rows (--rows A-B)\n", (long long)(v->n_rows - rows));
    if (heads < v->n_heads)
        printf("  ... %lld more heads (--heads A-B)\n", (long long)(v->n_heads - heads));
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static json_t *value_json(const value *v, const own *o, const char *prompt, int step)
{
    char name[ASSAY_POINT_NAME_BYTES];
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i}", "point",
                  assay_point_format(name, v->seen->point, v->seen->layer), "prompt", prompt,
                  "step", step, "origin", assay_dtype_name(v->seen->origin), "source",
                  v->seen->source, "hand_over", v->seen->hand_over, "rank", v->seen->rank);
    json_t *dims = json_array(), *rows = json_array();
    for (int d = 0; d < v->seen->n_dims; d++)
        json_array_append_new(dims, json_integer(v->seen->dims[d]));
    for (int64_t r = o->rows.first; v->x && r < end_of(o->rows, v->n_rows); r++)
        for (int64_t h = o->heads.first; h < end_of(o->heads, v->n_heads); h++) {
            json_t *row = json_array();
            const double *x = v->x + (r * v->n_heads + h) * v->n_columns;
            for (int64_t c = o->columns.first; c < end_of(o->columns, v->n_columns); c++)
                json_array_append_new(row, number(x[c]));
            json_array_append_new(rows, row);
        }
    json_object_set_new(json, "dims", dims);
    json_object_set_new(json, "rows", rows);
    return json;
}

typedef struct job {
    const own *own;
    const assay_options *common;
    assay_run *run, *reference;
    assay_judge_model model;
    assay_forced *forced; /* the point alone is judged; NULL: no --model */
    assay_point point;
    int layer;
    json_t *list; /* NULL: text */
} job;

/* The forced pass over every value at the point. */
static assay_status judge(job *j)
{
    assay_forced_place *only = NULL;
    int n = 0, room = 0;
    for (int p = 0; p < assay_run_n_prompts(j->run); p++)
        room += assay_run_prompt_at(j->run, p)->n_steps;
    ASSAY_TRY(assay_alloc(&only, (size_t)room, sizeof *only, "places"));
    for (int p = 0; p < assay_run_n_prompts(j->run); p++)
        for (int s = 0; s < assay_run_prompt_at(j->run, p)->n_steps; s++)
            only[n++] =
                (assay_forced_place){assay_run_prompt_at(j->run, p)->name, s, j->layer, j->point};
    assay_forced_options how = {.last_layer = -1, .only = only, .n_only = n};
    assay_status s = assay_judge_model_open(&j->model, j->own->model, 0);
    if (s == ASSAY_OK)
        s = assay_forced_new(&j->forced, j->run, j->model.oracle, &how);
    free(only);
    return s;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* True when the forced pass says that it was made wrong here. */
static bool is_home(const job *j, const assay_seen *seen)
{
    for (int i = 0; i < assay_forced_n(j->forced); i++)
        if (assay_forced_at(j->forced, i)->seen == seen && assay_forced_at(j->forced, i)->is_home)
            return true;
    return false;
}

/* What the op gives; x NULL where the value is not judged as a whole. */
static assay_status expect(value *out, bool *is_handed_over, job *j, const value *v)
{
    const double *got, *expected;
    for (int i = 0; i < assay_forced_n(j->forced); i++) {
        const assay_judged *judged = assay_forced_at(j->forced, i);
        if (judged->seen != v->seen || judged->n_rows * judged->n_cols != count_of(v->seen))
            continue;
        *out = *v;
        out->x = NULL;
        *is_handed_over = judged->against != NULL;
        ASSAY_TRY(assay_forced_values(&got, &expected, j->forced, i));
        ASSAY_TRY(assay_alloc(&out->x, (size_t)count_of(v->seen), sizeof *out->x, "values"));
        memcpy(out->x, expected, (size_t)count_of(v->seen) * sizeof *out->x);
    }
    return ASSAY_OK;
}

static assay_status show_seen(job *j, int prompt, int step, const assay_seen *seen)
{
    value v = {0}, ref = {0};
    const char *name = assay_run_prompt_at(j->run, prompt)->name;
    const assay_seen *other = NULL;
    bool is_handed_over = false;
    for (int p = 0; j->reference && p < assay_run_n_prompts(j->reference); p++)
        if (!strcmp(assay_run_prompt_at(j->reference, p)->name, name) &&
            step < assay_run_prompt_at(j->reference, p)->n_steps)
            other = assay_run_find(j->reference, p, step, j->point, j->layer);
    assay_status s = load(&v, j->run, seen);
    if (s == ASSAY_OK && other)
        s = load(&ref, j->reference, other);
    if (s == ASSAY_OK && j->forced && v.x)
        s = expect(&ref, &is_handed_over, j, &v);
    bool beside = other || ref.x;
    if (s == ASSAY_OK && j->list) {
        json_array_append_new(j->list, value_json(&v, j->own, name, step));
        if (beside)
            json_array_append_new(j->list, value_json(&ref, j->own, name, step));
    } else if (s == ASSAY_OK) {
        print_head("", &v, name, step);
        if (other)
            print_head("  = ", &ref, name, step);
        if (other && !same_shape(&v, &ref))
            puts("  (the shapes differ or values are missing: no row of the reference is shown)");
        if (j->forced)
            puts(
                !ref.x ? "  (what the op gives is not known: the value is a part, or has no op)"
                : is_handed_over
                    ? "  = the same value before it was handed over, in this capture: equal to the "
                      "bit when nothing was lost on the way"
                    : "  = what the op gives in float64 on its captured inputs");
        print_value(&v, beside && same_shape(&v, &ref) ? &ref : NULL, j->own);
    }
    free(v.x);
    free(ref.x);
    return s;
}

/* Where a value lies. */
typedef struct spot {
    int prompt, step;
    const assay_seen *seen;
} spot;

/* Every value at the point; returns how many. out NULL: counts. */
static int find_spots(spot *out, const job *j)
{
    int n = 0;
    for (int p = 0; p < assay_run_n_prompts(j->run); p++)
        for (int s = 0; s < assay_run_prompt_at(j->run, p)->n_steps; s++)
            for (int i = 0; i < assay_run_n_seen(j->run, p, s); i++) {
                const assay_seen *seen = assay_run_seen_at(j->run, p, s, i);
                if (seen->point != j->point || seen->layer != j->layer)
                    continue;
                if (out)
                    out[n] = (spot){p, s, seen};
                n++;
            }
    return n;
}

/* Beside the op's own result a reader asks for the wrong value: the first one alone. */
static assay_status show_first_wrong(job *j, const spot *spots, int n)
{
    int first = -1, n_wrong = 0;
    for (int i = 0; i < n; i++)
        if (is_home(j, spots[i].seen)) {
            first = first < 0 ? i : first;
            n_wrong++;
        }
    first = first < 0 ? 0 : first;
    ASSAY_TRY(show_seen(j, spots[first].prompt, spots[first].step, spots[first].seen));
    if (n > 1)
        printf("\n%d value%s at this point (prompts, steps, hand-overs), %d of them wrong on their "
               "inputs; --all shows every one, --step N those of one step\n",
               n, plural(n), n_wrong);
    return ASSAY_OK;
}

static assay_status show_values(job *j)
{
    int n = find_spots(NULL, j);
    spot *spots;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&spots, (size_t)n, sizeof *spots, "values"));
    find_spots(spots, j);
    if (n > 0 && j->forced && !j->list && !j->own->all)
        s = show_first_wrong(j, spots, n);
    else
        for (int i = 0; i < n && s == ASSAY_OK; i++)
            s = show_seen(j, spots[i].prompt, spots[i].step, spots[i].seen);
    free(spots);
    return s;
}

/* Says whether the capture lacks the layer or the point alone. */
static assay_status no_value(const job *j)
{
    const char *capture = j->common->args[0];
    int last = -1;
    for (int p = 0; p < assay_run_n_prompts(j->run); p++)
        for (int s = 0; s < assay_run_prompt_at(j->run, p)->n_steps; s++)
            for (int i = 0; i < assay_run_n_seen(j->run, p, s); i++)
                if (assay_run_seen_at(j->run, p, s, i)->layer > last)
                    last = assay_run_seen_at(j->run, p, s, i)->layer;
    if (j->layer > last && last >= 0)
        return assay_fail(ASSAY_MISSING, "'%s' has no layer %d: its last one is %d", capture,
                          j->layer, last);
    return assay_fail(ASSAY_MISSING,
                      "'%s' holds no value at '%s' (`assay inspect -v %s` lists what it holds)",
                      capture, j->common->args[1], capture);
}

static assay_status show(job *j)
{
    if (assay_point_parse(&j->point, &j->layer, NULL, j->common->args[1]) != ASSAY_OK)
        return assay_within(ASSAY_USAGE, "POINT");
    ASSAY_TRY(assay_options_run(&j->run, j->common, &j->common->args[0], 1));
    if (find_spots(NULL, j) == 0)
        return no_value(j);
    if (j->own->reference)
        ASSAY_TRY(assay_options_run(&j->reference, j->common, &j->own->reference, 1));
    if (j->own->model)
        ASSAY_TRY(judge(j));
    ASSAY_TRY(show_values(j));
    return ASSAY_OK;
}

int assay_cmd_show(int argc, char **argv)
{
    own o = {.rows = {0, -1}, .heads = {0, -1}, .columns = {0, 7}};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_CAPTURE,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 2,
                     .max_args = 2,
                     .about = "CAPTURE may be FILE:PROMPT and a dump of another engine; POINT is a "
                              "name of `assay list points` with its layer (blk.3.attn.q)."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    job j = {.own = &o, .common = &common, .list = common.json ? json_array() : NULL};
    assay_status s = show(&j);
    assay_progress_end();
    assay_forced_free(j.forced);
    assay_judge_model_close(&j.model);
    assay_run_close(j.run);
    assay_run_close(j.reference);
    if (s == ASSAY_OK && j.list) {
        json_t *json = json_pack("{s:s, s:s, s:O}", "assay", ASSAY_VERSION, "command", "show",
                                 "values", j.list);
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        putchar('\n');
        json_decref(json);
    }
    json_decref(j.list);
    if (s != ASSAY_OK)
        return assay_end_failed(&common, s);
    return assay_end_printed(&common);
}
