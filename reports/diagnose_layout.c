/*
 * A name map that is wrong about how a value lies: found before it becomes a fault.
 */
#include <math.h>
#include <stdlib.h>

#include "references/layout.h"
#include "reports/diagnose_private.h"

/* Relative error of got, read the other way, against expected; NaN: this reading moves nothing. */
static assay_status relaid_error(double *error, assay_forced *forced, int index, assay_relay relay)
{
    const assay_judged *j = assay_forced_at(forced, index);
    const double *got, *expected;
    double *other, rest = 0, size = 0;
    int64_t n = j->n_rows * j->n_cols, stored = 1;
    *error = NAN;
    for (int d = 0; d < j->seen->n_dims; d++)
        stored *= j->seen->dims[d];
    if (stored != n)
        return ASSAY_OK; /* a part of what was captured is judged */
    ASSAY_TRY(assay_forced_values(&got, &expected, forced, index));
    ASSAY_TRY(assay_alloc(&other, (size_t)n, sizeof *other, "values in another layout"));
    if (assay_relay_apply(other, got, j->seen->dims, j->seen->n_dims, relay)) {
        for (int64_t i = 0; i < n; i++) {
            rest += (other[i] - expected[i]) * (other[i] - expected[i]);
            size += expected[i] * expected[i];
        }
        *error = size > 0 ? sqrt(rest / size) : INFINITY;
    }
    free(other);
    return ASSAY_OK;
}

/* Whether every home of the point is near its expected value under this reading. */
static assay_status fits(bool *all, assay_forced *forced, assay_point point, assay_relay relay)
{
    *all = false;
    for (int i = 0; i < assay_forced_n(forced); i++) {
        const assay_judged *j = assay_forced_at(forced, i);
        double error;
        if (j->point != point || !j->is_home)
            continue;
        if (j->is_ids || j->against || j->n_nonfinite > 0) {
            *all = false;
            return ASSAY_OK;
        }
        ASSAY_TRY(relaid_error(&error, forced, i, relay));
        *all = error <= 12 * j->floor_rel;
        if (!*all)
            return ASSAY_OK;
    }
    return ASSAY_OK;
}

typedef struct homes {
    int here, elsewhere;
} homes;

static homes count_homes(const assay_forced *forced, assay_point point)
{
    homes n = {0, 0};
    for (int i = 0; i < assay_forced_n(forced); i++) {
        const assay_judged *j = assay_forced_at(forced, i);
        *(j->point == point ? &n.here : &n.elsewhere) += j->is_home;
    }
    return n;
}

/* Whether no value is a home that was none before. */
static bool none_is_new(const assay_forced *before, const assay_forced *after)
{
    if (assay_forced_n(before) != assay_forced_n(after))
        return false;
    for (int i = 0; i < assay_forced_n(after); i++)
        if (assay_forced_at(after, i)->is_home && !assay_forced_at(before, i)->is_home)
            return false;
    return true;
}

/* Takes the reading if the point and what reads it are right under it. */
static assay_status try_reading(assay_result *result, assay_diagnosis *d, assay_run *run,
                                assay_oracle *oracle, const assay_forced_options *options,
                                assay_point point, assay_relay relay)
{
    homes before = count_homes(d->forced, point);
    assay_forced *again;
    int n_values = assay_run_relay(run, point, relay);
    if (n_values == 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_diagnosis_view(&again, run, oracle, options));
    homes after = count_homes(again, point);
    if (after.here > 0 || after.elsewhere >= before.elsewhere || !none_is_new(d->forced, again)) {
        assay_forced_free(again);
        assay_run_relay(run, point, ASSAY_RELAY_NONE);
        return ASSAY_OK;
    }
    assay_forced_free(d->forced);
    d->forced = again;
    return assay_strings_add(&result->notes,
                             "the layout of %s is %s, not as the name map says: all %d values of "
                             "the dump are read so, and %d that read them are right on it",
                             assay_point_at(point)->name, assay_relay_name(relay), n_values,
                             before.elsewhere - after.elsewhere);
}

assay_status assay_diagnosis_layouts(assay_result *result, assay_diagnosis *d, assay_run *run,
                                     assay_oracle *oracle, const assay_forced_options *options)
{
    for (int point = 0; point < ASSAY_POINT_COUNT; point++) {
        bool done = false;
        for (int relay = ASSAY_RELAY_NONE + 1; relay < ASSAY_RELAY_COUNT && !done; relay++) {
            bool all = false;
            if (count_homes(d->forced, (assay_point)point).here == 0)
                break;
            ASSAY_TRY(fits(&all, d->forced, (assay_point)point, (assay_relay)relay));
            if (!all)
                continue;
            done = true;
            ASSAY_TRY(try_reading(result, d, run, oracle, options, (assay_point)point,
                                  (assay_relay)relay));
        }
    }
    return ASSAY_OK;
}
