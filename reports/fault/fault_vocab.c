/*
 * VOCAB: the row of another id comes out of the embedding. (Wrong ids that go in are right for
 * every op; they are found where the ids of a prompt are compared with its text.)
 */
#include "reports/home.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const assay_fault_kind assay_fault_kinds_vocab[] = {{.name = "token-shift",
                                                     .about = "the embedding of the next id",
                                                     .weakest = NAN,
                                                     .strongest = NAN,
                                                     .seam = ASSAY_SEAM_TOKEN_SHIFT,
                                                     .value = 1,
                                                     .home = "embed"},
                                                    {0}};

/* The id whose embedding is nearest to a row; -1: none within 1 %. */
static int64_t nearest_id(const double *table, int64_t n_vocab, const double *row, int64_t width)
{
    double size = 0, best = INFINITY;
    int64_t id = -1;
    for (int64_t i = 0; i < width; i++)
        size += row[i] * row[i];
    for (int64_t v = 0; v < n_vocab; v++) {
        double rest = 0;
        for (int64_t i = 0; i < width && rest < best; i++) {
            double d = row[i] - table[v * width + i];
            rest += d * d;
        }
        if (rest < best) {
            best = rest;
            id = v;
        }
    }
    return best < 1e-4 * size ? id : -1;
}

assay_status assay_fault_match_vocab(assay_home *home)
{
    const assay_judged *j = home->judged;
    const double *table;
    int64_t dims[4], n_other = 0, first = 0, first_id = 0;
    char text[320];
    if (!assay_home_is(home, ASSAY_POINT_EMBED))
        return ASSAY_OK;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    ASSAY_TRY(
        assay_oracle_weight(&table, dims, assay_forced_oracle(home->forced), "token_embd.weight"));
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t r = 0; r < j->n_rows && dims[3] == j->n_cols; r++) {
        const double *row = home->got + r * j->n_cols;
        int64_t id = nearest_id(table, dims[2], row, j->n_cols);
        if (id < 0 || id == step->tokens[j->first_row + r])
            continue;
        memcpy(home->scratch + r * j->n_cols, table + id * j->n_cols,
               (size_t)j->n_cols * sizeof *row);
        if (n_other++ == 0) {
            first = j->first_row + r;
            first_id = id;
        }
    }
    if (n_other == 0)
        return ASSAY_OK;
    snprintf(text, sizeof text,
             "%lld row(s) are the embedding of another id; first: row %lld, id "
             "%d went in and the row of id %lld came out",
             (long long)n_other, (long long)first, step->tokens[first], (long long)first_id);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){
            .kind = "another id's row",
            .complexity = 0.3,
            .fitted = json_pack("{s:I, s:I}", "row", (json_int_t)first, "id", (json_int_t)first_id),
            .evidence = text});
}
