/* Weights as engines hold them after loading: the order of parts and the slice of every rank are
 * named from the weights alone. */
#include "suites/audit_loaded.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "engine/quant.h"
#include "expect.h"
#include "forge_safetensors.h"
#include "suites/forge_model.h"

enum { LAYERS = 2, MOST_RANKS = 8 };

typedef enum {
    HEALTHY,
    FILE_ORDER,  /* every rank: kv_a, then q_a */
    EXCHANGED,   /* ranks 0 and 1 have each other's heads */
    RANK_0,      /* rank 0's gate and up everywhere */
    LATE,        /* rank 0's gate and up begin 8 rows late */
    INTERLEAVED, /* rank 1: gate and up row by row */
    SHORT,       /* the last rank's last 4 rows were not loaded */
    OTHER_AXIS,  /* rank 1's heads were cut along the columns */
    N_FAULTS
} fault;

static assay_gguf *file;

/* Rows [first, first + n) of a tensor behind what is in the matrix already. */
static void add_rows(forge_matrix *m, const char *tensor, int layer, int64_t first, int64_t n)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, tensor);
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, name);
    const assay_quant *quant = assay_quant_find(t->type);
    m->n_dims = 2;
    m->dims[1] = t->ne[0];
    m->dims[2] = 1;
    m->values = realloc(m->values, (size_t)((m->dims[0] + n) * t->ne[0]) * sizeof *m->values);
    for (int64_t r = 0; r < n; r++)
        quant->decode(m->values + (m->dims[0] + r) * t->ne[0],
                      (const uint8_t *)t->data +
                          (first + r) % t->ne[1] * assay_quant_bytes(quant, t->ne[0]),
                      t->ne[0]);
    m->dims[0] += n;
}

static int64_t rows_of(const char *tensor, int layer)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, tensor);
    return assay_gguf_find_tensor(file, name)->ne[1];
}

static void make_fused_qa(forge_matrix *m, int layer, fault f)
{
    static const char *const parts[] = {"attn_q_a", "attn_kv_a_mqa"};
    for (int i = 0; i < 2; i++) {
        const char *part = parts[f == FILE_ORDER ? 1 - i : i];
        add_rows(m, part, layer, 0, rows_of(part, layer));
    }
}

static void make_heads(forge_matrix *m, int layer, fault f, int rank, int n_ranks)
{
    int64_t n = rows_of("attn_q_b", layer) / n_ranks;
    int from = f == EXCHANGED && rank < 2 ? 1 - rank : rank;
    add_rows(m, "attn_q_b", layer, from * n, n);
    if (f == OTHER_AXIS && rank == 1) { /* all rows, its columns */
        m->dims[0] *= n_ranks;
        m->dims[1] /= n_ranks;
    }
}

static void make_gate_up(forge_matrix *m, int layer, fault f, int rank, int n_ranks)
{
    int64_t n = rows_of("ffn_gate", layer) / n_ranks, late = f == LATE && rank == 0 ? 8 : 0;
    int64_t first = (f == RANK_0 ? 0 : rank * n) + late;
    bool mixed = f == INTERLEAVED && rank == 1;
    for (int64_t i = 0; i < (mixed ? n : 1); i++) {
        add_rows(m, "ffn_gate", layer, first + i, mixed ? 1 : n);
        add_rows(m, "ffn_up", layer, first + i, mixed ? 1 : n);
    }
    if (f == SHORT && rank == n_ranks - 1)
        memset(m->values + (m->dims[0] - 4) * m->dims[1], 0,
               (size_t)(4 * m->dims[1]) * sizeof *m->values);
}

static void write_rank(const char *folder, fault f, int rank, int n_ranks)
{
    forge_matrix list[2 * LAYERS + 1] = {0};
    forge_checkpoint c = {list, 0, 0};
    char from[512], to[512];
    for (int layer = 0; layer < LAYERS; layer++) {
        snprintf(list[c.n].name, 128, "model.layers.%d.self_attn.fused_qkv_a_proj.weight", layer);
        make_fused_qa(&list[c.n++], layer, f);
        snprintf(list[c.n].name, 128, "model.layers.%d.self_attn.q_b_proj.weight", layer);
        make_heads(&list[c.n++], layer, f, rank, n_ranks);
    }
    snprintf(list[c.n].name, 128, "model.layers.0.mlp.gate_up_proj.weight");
    make_gate_up(&list[c.n++], 0, f, rank, n_ranks);
    forge_checkpoint_write(&c, folder, 1, false);
    snprintf(from, sizeof from, "%s/model.safetensors", folder);
    snprintf(to, sizeof to, "%s/model-rank-%d-part-0.safetensors", folder, rank);
    ck_assert_int_eq(rename(from, to), 0);
    for (int i = 0; i < c.n; i++)
        free(list[i].values);
}

static void audit_fault(assay_audit *out, fault f, int n_ranks)
{
    char folder[400], name[32];
    snprintf(name, sizeof name, "loaded.%d.%d", (int)f, n_ranks);
    snprintf(folder, sizeof folder, "%s", data_scratch(name));
    mkdir(folder, 0777);
    for (int r = 0; r < n_ranks; r++)
        write_rank(folder, f, r, n_ranks);
    *out = (assay_audit){0};
    EXPECT_OK(assay_audit_loaded(out, file, folder));
}

static void open_file(void)
{
    assay_forge_result made;
    assay_forge_options options = {.like = "glm5-tiny", .type = "q8_0"};
    EXPECT_OK(assay_forge_model(&made, data_scratch("loaded.gguf"), &options, NULL, NULL));
    EXPECT_OK(assay_gguf_open(&file, made.path));
}

START_TEST(audit_loaded_finds_every_row_where_it_belongs)
{
    open_file();
    for (int n = 1; n <= MOST_RANKS; n *= 2) {
        assay_audit audit;
        audit_fault(&audit, HEALTHY, n);
        ck_assert_msg(audit.n_findings == 0, "%d ranks: %s", n, audit.findings[0].text);
        ck_assert_int_eq(audit.n_tensors, n * (2 * LAYERS + 1));
        assay_audit_clear(&audit);
    }
    assay_gguf_close(file);
}
END_TEST

START_TEST(audit_loaded_names_the_fault_and_its_rank)
{
    static const struct {
        fault f;
        assay_audit_kind kind;
        int n; /* findings; 0: one for each rank; -1: for each but the first */
        const char *rank_0, *says;
    } rows[] = {
        {EXCHANGED, ASSAY_AUDIT_OTHER_SLICE, 2 * LAYERS, "rank 0: ", "holds rank 1's slice"},
        {RANK_0, ASSAY_AUDIT_OTHER_SLICE, -1, "rank 1: ", "holds rank 0's slice"},
        {LATE, ASSAY_AUDIT_OTHER_SLICE, 1, "rank 0: ", "holds ffn_gate rows 8-"},
        {INTERLEAVED, ASSAY_AUDIT_OTHER_SLICE, 1, "rank 1: ", "ffn_up rows "},
        {SHORT, ASSAY_AUDIT_OTHER_SLICE, 1, "rank ", "4 rows of no part"},
        {OTHER_AXIS, ASSAY_AUDIT_SHAPE, LAYERS, "rank 1: ", "along the other axis?"},
    };
    open_file();
    for (int n = 2; n <= MOST_RANKS; n *= 2)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            assay_audit audit;
            audit_fault(&audit, rows[i].f, n);
            int wanted = rows[i].n < 0 ? n - 1 : rows[i].n;
            ck_assert_msg(audit.n_findings == wanted, "%d ranks, fault %d: %d findings, first: %s",
                          n, (int)rows[i].f, audit.n_findings,
                          audit.n_findings ? audit.findings[0].text : "none");
            const assay_audit_finding *first = &audit.findings[0];
            ck_assert_int_eq(first->kind, rows[i].kind);
            ck_assert_msg(strstr(first->text, rows[i].rank_0) == first->text, "%s", first->text);
            ck_assert_msg(strstr(first->text, rows[i].says) != NULL, "%s", first->text);
            assay_audit_clear(&audit);
        }
    assay_gguf_close(file);
}
END_TEST

START_TEST(audit_loaded_names_the_order_of_fused_parts)
{
    open_file();
    for (int n = 1; n <= MOST_RANKS; n *= 2) {
        assay_audit audit;
        audit_fault(&audit, FILE_ORDER, n);
        ck_assert_int_eq(audit.n_findings, n * LAYERS);
        for (int i = 0; i < audit.n_findings; i++) {
            ck_assert_int_eq(audit.findings[i].kind, ASSAY_AUDIT_PART_ORDER);
            ck_assert_int_eq(audit.findings[i].rank, i / LAYERS);
            ck_assert_msg(strstr(audit.findings[i].text,
                                 "parts in the order [1, 0]: attn_kv_a_mqa rows 0-287, attn_q_a "
                                 "rows 0-255; expected attn_q_a rows 0-255, attn_kv_a_mqa") != NULL,
                          "%s", audit.findings[i].text);
        }
        assay_audit_clear(&audit);
    }
    assay_gguf_close(file);
}
END_TEST

START_TEST(audit_loaded_says_which_rank_is_missing)
{
    assay_audit audit;
    char path[512];
    open_file();
    audit_fault(&audit, HEALTHY, 4);
    assay_audit_clear(&audit);
    snprintf(path, sizeof path, "%s/model-rank-2-part-0.safetensors", data_scratch("loaded.0.4"));
    ck_assert_int_eq(unlink(path), 0);
    EXPECT_FAILS(ASSAY_MISSING, assay_audit_loaded(&audit, file, data_scratch("loaded.0.4")));
    EXPECT_SAYS("rank 2 of 4 is missing");
    assay_audit_clear(&audit);
    assay_gguf_close(file);
}
END_TEST

EXPECT_MAIN("audit_loaded", audit_loaded_finds_every_row_where_it_belongs,
            audit_loaded_names_the_fault_and_its_rank, audit_loaded_names_the_order_of_fused_parts,
            audit_loaded_says_which_rank_is_missing)
