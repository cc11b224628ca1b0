#include "references/layout.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ORDER_NONE,
    ORDER_PAIRS,
    ORDER_PAIRS_ALL,
    ORDER_PAIRS_FIRST,
    ORDER_HADAMARD,
    ORDER_KEYS,
    ORDER_NOPE_OVER,
    ORDER_RESIDUAL
};
static const char *const orders[] = {"",         "pairs", "pairs-all", "pairs-first",
                                     "hadamard", "keys",  "nope-over", "residual"};

/* *is_scaled: the word "scaled" stands alone or behind the order. */
static int order_of(bool *is_scaled, const char *text)
{
    static const char scaled[] = "scaled";
    size_t n = strlen(text), word = sizeof scaled - 1;
    *is_scaled = n >= word && !strcmp(text + n - word, scaled) &&
                 (n == word || (n > word + 1 && text[n - word - 1] == ' '));
    if (*is_scaled)
        n = n == word ? 0 : n - word - 1;
    for (int i = 0; i < (int)(sizeof orders / sizeof *orders); i++)
        if (strlen(orders[i]) == n && !strncmp(orders[i], text, n))
            return i;
    return -1;
}

/* Stored axes: letters up to '>'. */
static int split_axes(char in[ASSAY_LAYOUT_AXES + 1], char out[ASSAY_LAYOUT_AXES + 1],
                      const char *axes, const char *point_axes)
{
    const char *arrow = strchr(axes, '>');
    size_t n = arrow ? (size_t)(arrow - axes) : strlen(axes);
    const char *result = arrow ? arrow + 1 : point_axes;
    if (n == 0) {
        axes = point_axes;
        n = strlen(axes);
    }
    if (n > ASSAY_LAYOUT_AXES || strlen(result) > ASSAY_MAX_DIMS)
        return -1;
    memcpy(in, axes, n);
    in[n] = '\0';
    strcpy(out, result);
    for (size_t i = 0; i < n; i++)
        if (!isupper((unsigned char)in[i]) && in[i] != '1')
            return -1;
    return (int)n;
}

void assay_sizes_learn(assay_sizes *sizes, const char *axes, const int64_t *dims, int n_dims,
                       int64_t n_tokens)
{
    int n = (int)strcspn(axes, ">");
    while (n_dims > n && dims[0] == 1) {
        dims++;
        n_dims--;
    }
    const char *t = memchr(axes, 'T', (size_t)n);
    if (n_dims != n || n_tokens < 2 || !t || dims[t - axes] != n_tokens)
        return;
    for (int i = 0; i < n; i++) {
        int64_t *size = &sizes->of[axes[i] & 127];
        if (!strchr("TSX1", axes[i]) && *size == 0)
            *size = dims[i];
    }
}

/* Where two of a = b + c are known, the third follows. */
static bool sum(int64_t *a, int64_t *b, int64_t *c)
{
    if (!*a && *b && *c)
        *a = *b + *c;
    else if (*a && !*b && *c && *a > *c)
        *b = *a - *c;
    else if (*a && *b && !*c && *a > *b)
        *c = *a - *b;
    else
        return false;
    return true;
}

void assay_sizes_close(assay_sizes *sizes, bool is_mla)
{
    int64_t *of = sizes->of;
    if (!is_mla) {
        if (!of['R'])
            of['R'] = of['K'];
        if (!of['V'])
            of['V'] = of['K'];
        if (!of['K'])
            of['K'] = of['V'];
        return;
    }
    while (sum(&of['O'], &of['Q'], &of['C']) || sum(&of['C'], &of['L'], &of['R']) ||
           sum(&of['K'], &of['N'], &of['R']) || sum(&of['B'], &of['N'], &of['V']))
        ;
}

/*
 * Lets each stored dimension stand for one letter or for several neighbours whose product it is.
 * A letter of unknown size is found when it is the only one of its dimension. T stands alone. When
 * not strict, a dimension of one letter says its size itself, whatever was known (layers of
 * different widths).
 */
static bool fit(int64_t *size, const char *letters, const int64_t *dims, int n_dims,
                const assay_sizes *sizes, bool strict)
{
    int n = (int)strlen(letters);
    if (n_dims == 0 || n == 0)
        return n_dims == 0 && n == 0;
    for (int take = 1; take <= n; take++) {
        int unknown = -1;
        int64_t product = 1;
        bool ok = true;
        for (int i = 0; i < take && ok; i++) {
            char c = letters[i];
            int64_t known = c == '1' ? 1 : sizes->of[c & 127];
            bool is_free = !strict && take == 1 && c != 'T' && c != '1';
            ok = !(take > 1 && c == 'T');
            if (known && !is_free) {
                size[i] = known;
                ok = ok && !__builtin_mul_overflow(product, known, &product);
            } else if (unknown >= 0) {
                ok = false;
            } else {
                unknown = i;
            }
        }
        if (!ok || product == 0)
            continue;
        if (unknown >= 0) {
            if (dims[0] % product)
                continue;
            size[unknown] = dims[0] / product;
        } else if (product != dims[0]) {
            continue;
        }
        if (fit(size + take, letters + take, dims + 1, n_dims - 1, sizes, strict))
            return true;
    }
    return false;
}

/* "[T 8, H 4]" for error lines. */
static const char *shape_text(char *out, size_t room, const int64_t *dims, int n)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < n && at + 24 < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%lld", i ? " x " : "", (long long)dims[i]);
    return out;
}

static assay_status fit_axes(assay_plan *plan, const char *letters, const int64_t *dims, int n_dims,
                             const assay_sizes *sizes)
{
    int n_batch = 0; /* leading axes of size one that can be dropped */
    while (n_batch < n_dims && dims[n_batch] == 1)
        n_batch++;
    assay_sizes all = *sizes; /* every key so far instead of this step's tokens */
    all.of['T'] = sizes->of['S'];
    bool has_more = sizes->of['T'] > 0 && sizes->of['S'] > sizes->of['T'] && strchr(letters, 'T') &&
                    !strchr(letters, 'S');
    const struct {
        const assay_sizes *sizes;
        bool strict, holds;
    } ways[] = {{sizes, true, true}, {&all, true, has_more}, {sizes, false, true}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int i = 0; ways[w].holds && i <= n_batch && i < n_dims; i++)
            if (fit(plan->size, letters, dims + i, n_dims - i, ways[w].sizes, ways[w].strict))
                return ASSAY_OK;
    int n_more = n_dims - (int)strlen(letters);
    n_more = n_more < 0 ? 0 : n_more > n_batch ? n_batch : n_more;
    dims += n_more;
    n_dims -= n_more;
    char text[160];
    int64_t rows = sizes->of['T'];
    if (n_dims > 0 && letters[0] == 'T' && rows && dims[0] != rows)
        return assay_fail(ASSAY_BAD_SHAPE, "shape %s has %lld rows, the step has %lld tokens",
                          shape_text(text, sizeof text, dims, n_dims), (long long)dims[0],
                          (long long)rows);
    return assay_fail(ASSAY_BAD_SHAPE,
                      "shape %s does not fit the axes %s with the sizes known (the model's sizes "
                      "help: --model)",
                      shape_text(text, sizeof text, dims, n_dims), letters);
}

/* A bound: empty (fallback), number, letter, number of letters, '-' in front: from the end, "/2":
 * half. */
static bool bound(int64_t *out, const char **at, int64_t fallback, int64_t size,
                  const assay_sizes *sizes)
{
    const char *p = *at;
    bool from_end = *p == '-';
    p += from_end;
    int64_t value = 1;
    bool has_number = isdigit((unsigned char)*p);
    if (has_number) {
        char *end;
        value = strtol(p, &end, 10);
        p = end;
    }
    if (isupper((unsigned char)*p)) {
        int64_t one = sizes ? sizes->of[*p & 127] : 1;
        if (one == 0 || __builtin_mul_overflow(value, one, &value))
            return false;
        p++;
    } else if (has_number) {
        /* a plain number */
    } else if (p[0] == '/' && p[1] == '2') {
        value = size / 2;
        p += 2;
    } else if (from_end) {
        return false;
    } else {
        value = fallback;
    }
    *out = from_end ? size - value : value;
    *at = p;
    return true;
}

/* One token of `take`; letters[axis] becomes the new name, or '0' when the axis goes. */
static bool take_one(assay_plan *plan, char *letters, const char **at, const assay_sizes *sizes)
{
    const char *p = *at;
    char name = 0;
    if (isupper((unsigned char)p[0]) && p[1] == '=') {
        name = p[0];
        p += 2;
    }
    const char *where = isupper((unsigned char)*p) ? strchr(letters, *p) : NULL;
    if (!where || p[1] != '[')
        return false;
    int axis = (int)(where - letters);
    int64_t size = sizes ? plan->size[axis] : 2, first, last;
    p += 2;
    if (!bound(&first, &p, 0, size, sizes))
        return false;
    bool one = *p == ']';
    if (one) {
        last = first + 1;
    } else {
        if (*p++ != ':' || !bound(&last, &p, size, size, sizes) || *p != ']')
            return false;
    }
    p++;
    if (sizes && (first < 0 || last > size || first >= last))
        return false;
    plan->start[axis] = first;
    plan->length[axis] = last - first;
    letters[axis] = one ? '0' : name ? name : letters[axis];
    *at = p;
    return true;
}

static bool take_all(assay_plan *plan, char *letters, const char *take, const assay_sizes *sizes)
{
    for (const char *p = take;;) {
        p += strspn(p, " ");
        if (!*p)
            return true;
        if (!take_one(plan, letters, &p, sizes) || (*p && *p != ' '))
            return false;
    }
}

static assay_status plan_order(assay_plan *plan, int order, int64_t rope,
                               const assay_profile *profile)
{
    int64_t last = plan->n_out ? plan->dims[plan->n_out - 1] : 0;
    bool half_split = profile && profile->rope_half_split_after;
    bool needs_rope = order == ORDER_NOPE_OVER ||
                      (half_split && (order == ORDER_PAIRS || order == ORDER_PAIRS_FIRST));
    if (needs_rope && (rope <= 0 || rope > last || rope % 2))
        return assay_fail(ASSAY_BAD_SHAPE,
                          "the rotary width is not known, or %lld is not one of %lld channels (the "
                          "model's sizes help: --model)",
                          (long long)rope, (long long)last);
    plan->adds_out1 = order == ORDER_RESIDUAL;
    if (order == ORDER_PAIRS_ALL) {
        plan->order = last % 2 ? ORDER_NONE : ORDER_PAIRS_ALL;
        plan->pairs_n = last;
    } else if (order == ORDER_PAIRS || order == ORDER_PAIRS_FIRST) {
        if (half_split) {
            plan->order = order;
            plan->pairs_n = rope;
            plan->pairs_from = order == ORDER_PAIRS ? last - rope : 0;
        }
    } else if (order == ORDER_NOPE_OVER) {
        plan->order = order;
        plan->pairs_n = rope;
        plan->pairs_from = last - rope;
    } else if (order == ORDER_HADAMARD) {
        bool power = last > 0 && (last & (last - 1)) == 0;
        plan->order = profile && profile->index_hadamard && power ? ORDER_HADAMARD : ORDER_NONE;
    } else if (order == ORDER_KEYS && plan->n_out == 2 && plan->n_keys) {
        plan->order = ORDER_KEYS;
        plan->dims[1] = last < plan->n_keys ? last : plan->n_keys;
    }
    return ASSAY_OK;
}

/* What undoes the scale of a stream that the profile keeps scaled. */
static assay_status plan_factor(assay_plan *plan, const assay_sizes *sizes,
                                const assay_profile *profile)
{
    double scale = profile ? profile->residual_scale : 1;
    plan->factor = isnan(scale) ? sizes->routed_scale : 1 / scale;
    if (!(plan->factor > 0))
        return assay_fail(ASSAY_BAD_SHAPE, "the stream is kept times 1 / the scale of routed "
                                           "experts, which is not known (the model's sizes help: "
                                           "--model)");
    return ASSAY_OK;
}

assay_status assay_layout_plan(assay_plan *out, const assay_layout *layout, const char *point_axes,
                               const int64_t *dims, int n_dims, const assay_sizes *sizes,
                               const assay_profile *profile)
{
    assay_plan plan = {.n_keys = sizes->of['S'], .factor = 1};
    char letters[ASSAY_LAYOUT_AXES + 1], result[ASSAY_LAYOUT_AXES + 1];
    bool is_scaled;
    plan.n = split_axes(letters, result, layout->axes, point_axes);
    int order = order_of(&is_scaled, layout->order);
    if (plan.n < 0 || order < 0)
        return assay_fail(ASSAY_USAGE, "layout '%s' '%s' cannot be read", layout->axes,
                          layout->order);
    ASSAY_TRY(fit_axes(&plan, letters, dims, n_dims, sizes));
    for (int i = 0; i < plan.n; i++) {
        plan.length[i] = plan.size[i];
        if (letters[i] == 'S' && plan.n_keys && plan.size[i] > plan.n_keys)
            plan.length[i] = plan.n_keys;
        if (letters[i] == 'T' && sizes->of['T'] > 0 && plan.size[i] > sizes->of['T']) {
            plan.length[i] = sizes->of['T'];
            plan.start[i] = plan.size[i] - sizes->of['T'];
        }
    }
    if (!take_all(&plan, letters, layout->take, sizes))
        return assay_fail(ASSAY_BAD_SHAPE,
                          "part '%s' cannot be taken (the model's sizes help: "
                          "--model)",
                          layout->take);
    plan.n_out = (int)strlen(result);
    for (int o = 0; o < plan.n_out; o++) {
        const char *where = strchr(letters, result[o]);
        if (!where)
            return assay_fail(ASSAY_USAGE, "layout '%s' with '%s' has no axis %c", layout->axes,
                              layout->take, result[o]);
        plan.from[o] = (int)(where - letters);
        plan.dims[o] = plan.length[plan.from[o]];
    }
    ASSAY_TRY(plan_order(&plan, order, sizes->of['R'], profile));
    if (is_scaled)
        ASSAY_TRY(plan_factor(&plan, sizes, profile));
    *out = plan;
    return ASSAY_OK;
}

assay_status assay_layout_check(const assay_layout *layout)
{
    char letters[ASSAY_LAYOUT_AXES + 1], result[ASSAY_LAYOUT_AXES + 1];
    assay_plan scratch = {.n = 0};
    bool is_scaled;
    if (split_axes(letters, result, layout->axes, "T") < 0)
        return assay_fail(ASSAY_USAGE, "axes '%s': expected at most %d capital letters",
                          layout->axes, ASSAY_LAYOUT_AXES);
    if (order_of(&is_scaled, layout->order) < 0)
        return assay_fail(ASSAY_USAGE,
                          "order '%s' is unknown (known: pairs, pairs-all, pairs-first, hadamard, "
                          "keys, nope-over, residual; \"scaled\" alone or behind one)",
                          layout->order);
    if (layout->axes[0] && !take_all(&scratch, letters, layout->take, NULL))
        return assay_fail(ASSAY_USAGE, "take '%s' cannot be read (example: \"R=K[-R:]\")",
                          layout->take);
    return ASSAY_OK;
}

void assay_plan_identity(assay_plan *out, const int64_t *dims, int n_dims)
{
    ASSAY_BUG_IF(n_dims > ASSAY_MAX_DIMS);
    assay_plan plan = {.n = n_dims, .n_out = n_dims, .factor = 1};
    for (int i = 0; i < n_dims; i++) {
        plan.size[i] = plan.length[i] = plan.dims[i] = dims[i];
        plan.from[i] = i;
    }
    *out = plan;
}

bool assay_plan_is_identity(const assay_plan *plan)
{
    int behind = -1;
    bool same = plan->order == ORDER_NONE && plan->factor == 1 && !plan->relay &&
                assay_plan_n_in(plan) == assay_plan_n_out(plan);
    for (int i = 0; i < plan->n; i++)
        same = same && plan->start[i] == 0 && plan->length[i] == plan->size[i];
    for (int i = 0; i < plan->n_out; i++) {
        same = same && (plan->from[i] > behind || plan->dims[i] == 1);
        behind = plan->from[i] > behind ? plan->from[i] : behind;
    }
    return same;
}

int64_t assay_plan_n_in(const assay_plan *plan)
{
    int64_t n = 1;
    for (int i = 0; i < plan->n; i++)
        n *= plan->size[i];
    return n;
}

int64_t assay_plan_n_out(const assay_plan *plan)
{
    int64_t n = 1;
    for (int i = 0; i < plan->n_out; i++)
        n *= plan->dims[i];
    return n;
}

/* Half-split (evens, then odds) to adjacent pairs. scratch: n. */
static void join_pairs(double *x, int64_t n, double *scratch)
{
    memcpy(scratch, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n / 2; i++) {
        x[2 * i] = scratch[i];
        x[2 * i + 1] = scratch[n / 2 + i];
    }
}

void assay_layout_hadamard(double *x, int64_t n)
{
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t i = 0; i < n; i++)
            if (!(i & half)) {
                double a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
    double scale = 1 / sqrt((double)n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

static void gather(double *out, const double *in, const assay_plan *plan)
{
    int64_t stride[ASSAY_LAYOUT_AXES], base = 0, step = 1, at[ASSAY_MAX_DIMS] = {0};
    for (int i = plan->n - 1; i >= 0; i--) {
        stride[i] = step;
        base += plan->start[i] * step;
        step *= plan->size[i];
    }
    int64_t n = assay_plan_n_out(plan);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = base;
        for (int o = 0; o < plan->n_out; o++)
            from += at[o] * stride[plan->from[o]];
        out[i] = in[from];
        for (int o = plan->n_out - 1; o >= 0 && ++at[o] == plan->dims[o]; o--)
            at[o] = 0;
    }
}

/* Rows of selected keys: padding of the cache dropped, -1 behind. */
static void gather_keys(double *out, const double *in, const assay_plan *plan)
{
    int64_t wide = plan->size[plan->n - 1], width = plan->dims[1];
    for (int64_t t = 0; t < plan->dims[0]; t++) {
        int64_t n = 0;
        for (int64_t i = 0; i < wide && n < width; i++) {
            double id = in[(plan->start[0] + t) * wide + i];
            if (!(id >= (double)plan->n_keys))
                out[t * width + n++] = id;
        }
        while (n < width)
            out[t * width + n++] = -1;
    }
}

static void apply_plain(double *out, const double *in, const assay_plan *plan)
{
    if (plan->order == ORDER_KEYS) {
        gather_keys(out, in, plan);
        return;
    }
    gather(out, in, plan);
    for (int64_t i = 0; plan->factor != 1 && i < assay_plan_n_out(plan); i++)
        out[i] *= plan->factor;
    if (plan->order == ORDER_NONE || plan->order == ORDER_NOPE_OVER || plan->n_out == 0)
        return;
    int64_t width = plan->dims[plan->n_out - 1], n = assay_plan_n_out(plan);
    double *scratch = plan->pairs_n ? assay_alloc_or_lack((size_t)plan->pairs_n, sizeof *scratch,
                                                          "pairs of a head")
                                    : NULL;
    if (plan->pairs_n && !scratch)
        return;
    for (int64_t i = 0; width > 0 && i < n; i += width) {
        if (plan->order == ORDER_HADAMARD)
            assay_layout_hadamard(out + i, width);
        else
            join_pairs(out + i + plan->pairs_from, plan->pairs_n, scratch);
    }
    free(scratch);
}

void assay_plan_apply(double *out, const double *in, const assay_plan *plan)
{
    size_t bytes = (size_t)assay_plan_n_out(plan) * sizeof *out;
    apply_plain(out, in, plan);
    if (!plan->relay || bytes == 0)
        return;
    double *as_mapped = assay_alloc_or_lack(bytes, 1, "values of a layout");
    if (!as_mapped)
        return;
    memcpy(as_mapped, out, bytes);
    assay_relay_apply(out, as_mapped, plan->dims, plan->n_out, plan->relay);
    free(as_mapped);
}

bool assay_plan_needs_base(const assay_plan *plan)
{
    return plan->order == ORDER_NOPE_OVER;
}

void assay_plan_overlay(double *out, const double *base, const assay_plan *plan)
{
    int64_t width = plan->dims[plan->n_out - 1], n = assay_plan_n_out(plan);
    for (int64_t i = 0; width > 0 && i < n; i += width)
        memcpy(out + i + plan->pairs_from, base + i + plan->pairs_from,
               (size_t)plan->pairs_n * sizeof *out);
}
