#include "engine/shard.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "suites/audit_shards.h"
#include "suites/forge_model.h"

static assay_hparams like(const char *name)
{
    assay_hparams hp;
    EXPECT_OK(assay_forge_hparams(&hp, &(assay_forge_options){.like = name, .n_nextn = -1}));
    return hp;
}

static assay_shard_part only_part(const assay_hparams *hp, assay_role role, int rank, int n_ranks)
{
    assay_shard s;
    EXPECT_OK(assay_shard_of(&s, hp, role, false, rank, n_ranks));
    ck_assert_int_eq(s.n_parts, 1);
    return s.parts[0];
}

/* Borders of real models by hand. */
START_TEST(shard_cuts_real_shapes_where_they_are_cut)
{
    assay_hparams glm = like("glm-5"), v3 = like("deepseek-v3");
    assay_shard_part p = only_part(&glm, ASSAY_ROLE_ATTN_Q_B, 3, 8); /* 64 heads of 256 */
    ck_assert(p.first == 3 * 2048 && p.n_rows == 2048 && p.n_cols == 2048);
    p = only_part(&glm, ASSAY_ROLE_ATTN_OUTPUT, 1, 4); /* 16384 inputs */
    ck_assert(p.first == 0 && p.n_rows == 6144 && p.first_col == 4096 && p.n_cols == 4096);
    p = only_part(&glm, ASSAY_ROLE_ATTN_K_B, 7, 8); /* [64, 512, 192]: heads 56 ... 63 */
    ck_assert(p.first == 56 * 512 && p.n_rows == 8 * 512 && p.n_cols == 192);
    p = only_part(&v3, ASSAY_ROLE_FFN_DOWN, 2, 4); /* 18432 inputs */
    ck_assert(p.first_col == 9216 && p.n_cols == 4608);
    p = only_part(&v3, ASSAY_ROLE_GATE_EXPS, 1, 2); /* rows 1024 ... 2047 of every expert */
    ck_assert(p.first == 1024 && p.n_rows == 1024 && p.stride == 2048 && p.repeat == 256);
    p = only_part(&v3, ASSAY_ROLE_ATTN_KV_A, 5, 8);
    ck_assert(p.first == 0 && p.n_rows == 576 && p.n_cols == 7168);
    p = only_part(&v3, ASSAY_ROLE_OUTPUT, 7, 8);
    ck_assert(p.first == 7 * 16160 && p.n_rows == 16160);
}
END_TEST

START_TEST(shard_keeps_gate_and_up_apart)
{
    assay_hparams v3 = like("deepseek-v3");
    assay_shard s;
    EXPECT_OK(assay_shard_of(&s, &v3, ASSAY_ROLE_GATE_UP_EXPS, false, 1, 4));
    ck_assert_int_eq(s.n_parts, 2);
    ck_assert(s.parts[0].first == 512 && s.parts[1].first == 2048 + 512);
    ck_assert(s.parts[0].n_rows == 512 && s.parts[0].stride == 4096 && s.parts[0].repeat == 256);
    EXPECT_OK(assay_shard_of(&s, &v3, ASSAY_ROLE_GATE_UP_EXPS, true, 1, 4));
    ck_assert(s.n_parts == 1 && s.parts[0].first == 64 * 4096 && s.parts[0].n_rows == 64 * 4096);
}
END_TEST

START_TEST(shard_shares_key_heads_among_more_ranks)
{
    assay_hparams llama = like("llama-3-8b"); /* 8 key heads of 128 */
    for (int r = 0; r < 16; r++) {
        assay_shard_part p = only_part(&llama, ASSAY_ROLE_ATTN_K, r, 16);
        ck_assert(p.first == r / 2 * 128 && p.n_rows == 128);
    }
    assay_shard s;
    EXPECT_OK(assay_shard_of(&s, &llama, ASSAY_ROLE_ATTN_QKV, false, 1, 8));
    ck_assert_int_eq(s.n_parts, 3);
    ck_assert(s.parts[0].first == 512 && s.parts[1].first == 4096 + 128);
    ck_assert(s.parts[2].first == 4096 + 1024 + 128 && s.parts[2].n_rows == 128);
}
END_TEST

START_TEST(shard_refuses_ranks_that_do_not_divide)
{
    assay_hparams glm = like("glm-5"), lite = like("deepseek-v2-lite");
    assay_shard s;
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_shard_of(&s, &glm, ASSAY_ROLE_ATTN_Q_B, false, 0, 7));
    EXPECT_SAYS("64 heads do not divide over 7 ranks");
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_shard_of(&s, &lite, ASSAY_ROLE_GATE_EXPS, true, 0, 5));
    EXPECT_SAYS("64 experts");
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_shard_of(&s, &lite, ASSAY_ROLE_FFN_DOWN, false, 0, 7));
}
END_TEST

/* Every element of every tensor has one owner, for every count of ranks that divides. */
START_TEST(shard_owns_every_element_once)
{
    for (int i = 0; i < assay_forge_shape_count(); i++) {
        assay_hparams hp = like(assay_forge_shape_at(i)->name);
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++)
            for (int n = 1; n <= 16; n++)
                for (int dealt = 0; dealt < 2; dealt++) {
                    assay_role role = (assay_role)r;
                    assay_shard shards[16];
                    int64_t dims[4], rows = 1, wrong;
                    int n_dims = assay_role_dims(dims, &hp, role), least, most;
                    bool divides = true;
                    for (int d = 0; d + 1 < n_dims; d++)
                        rows *= dims[d];
                    if (rows * dims[n_dims - 1] == 0 || role == ASSAY_ROLE_ATTN_QKV ||
                        role == ASSAY_ROLE_ATTN_QKV_BIAS)
                        continue;
                    for (int p = 0; p < n && divides; p++)
                        divides = assay_shard_of(&shards[p], &hp, role, dealt, p, n) == ASSAY_OK;
                    if (!divides)
                        continue;
                    assay_shard_kind kind = assay_role_at(role)->kind;
                    int expected = kind == ASSAY_SHARD_COPY ? n : 1;
                    if (kind == ASSAY_SHARD_KV_HEADS && n > hp.n_head_kv)
                        expected = n / hp.n_head_kv;
                    EXPECT_OK(assay_audit_ownership(&least, &most, &wrong, shards, n,
                                                    n_dims == 1 ? dims[0] : rows,
                                                    n_dims == 1 ? 1 : dims[n_dims - 1], expected));
                    ck_assert_msg(least == expected && most == expected, "%s %s over %d: %d to %d",
                                  assay_forge_shape_at(i)->name, assay_role_at(role)->name, n,
                                  least, most);
                }
    }
}
END_TEST

START_TEST(shard_ownership_names_what_is_missing_or_doubled)
{
    assay_shard_part top = {0, 4, 8, 1, 0, 6}, bottom = {4, 4, 8, 1, 0, 6};
    assay_shard shards[2] = {{.n_parts = 1, .parts = {top}}, {.n_parts = 1, .parts = {bottom}}};
    int least, most;
    int64_t row;
    EXPECT_OK(assay_audit_ownership(&least, &most, &row, shards, 2, 8, 6, 1));
    ck_assert(least == 1 && most == 1 && row == -1);
    shards[1].parts[0].first = 5; /* row 4 has no owner */
    shards[1].parts[0].n_rows = 3;
    EXPECT_OK(assay_audit_ownership(&least, &most, &row, shards, 2, 8, 6, 1));
    ck_assert(least == 0 && most == 1 && row == 4);
    shards[1].parts[0].first = 3; /* row 3 has two */
    shards[1].parts[0].n_rows = 5;
    EXPECT_OK(assay_audit_ownership(&least, &most, &row, shards, 2, 8, 6, 1));
    ck_assert(least == 1 && most == 2 && row == 3);
    shards[1].parts[0] = bottom;
    shards[1].parts[0].n_cols = 5; /* the last column of the lower half has none */
    EXPECT_OK(assay_audit_ownership(&least, &most, &row, shards, 2, 8, 6, 1));
    ck_assert(least == 0 && most == 1 && row == 4);
    shards[1].parts[0].first = 6; /* leaves the matrix */
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_audit_ownership(&least, &most, &row, shards, 2, 8, 6, 1));
}
END_TEST

static int kinds(const assay_audit *audit, assay_audit_kind kind)
{
    int n = 0;
    for (int i = 0; i < audit->n_findings; i++)
        n += audit->findings[i].kind == kind;
    return n;
}

/* Findings of a skeleton over n ranks. */
static assay_audit audited(const char *name, const char *type, int n_ranks)
{
    char path[512];
    assay_forge_result made;
    assay_gguf *file = NULL;
    assay_audit audit = {0};
    snprintf(path, sizeof path, "%s", data_scratch("s.gguf"));
    EXPECT_OK(assay_forge_model(
        &made, path,
        &(assay_forge_options){.like = name, .type = type, .n_nextn = -1, .skeleton = true}, NULL,
        NULL));
    EXPECT_OK(assay_gguf_open(&file, made.path));
    EXPECT_OK(assay_audit_shards(&audit, file, n_ranks));
    assay_gguf_close(file);
    return audit;
}

/* Numbers of blocks of real models: see the row lengths in the comments. */
START_TEST(shard_audit_finds_blocks_that_a_border_cuts)
{
    static const struct {
        const char *like, *type;
        int n_ranks, n_cut, n_not_divided;
        bool notes;
    } rows[] = {
        {"glm-5", "q4_k", 8, 0, 0, false}, /* 16384, 12288 and 2048 inputs: 64, 48 and 8 blocks */
        {"glm-5", "q4_k", 16, 1, 0, true}, /* the shared expert's 8 blocks; experts can be dealt */
        {"deepseek-v3", "q4_k", 8, 0, 0, false},
        {"deepseek-v3", "q4_k", 16, 1, 0, true},      /* 18432: 72 blocks are no multiple of 16 */
        {"deepseek-v2-lite", "q4_k", 2, 1, 0, false}, /* the shared expert: 2816 are 11 blocks */
        {"deepseek-v2-lite", "q8_0", 2, 0, 0, false}, /* 10944 are 342 blocks of 32 */
        {"deepseek-v2-lite", "q8_0", 4, 1, 0, false}, /* 342 is no multiple of 4 */
        {"glm-5", "q8_0", 7, 0, 1, false},
        {"llama-3-8b", "bf16", 16, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_audit audit = audited(rows[i].like, rows[i].type, rows[i].n_ranks);
        int cut = kinds(&audit, ASSAY_AUDIT_CUT_BLOCK);
        int divided = kinds(&audit, ASSAY_AUDIT_NOT_DIVIDED);
        ck_assert_msg((cut > 0) == rows[i].n_cut && (divided > 0) == rows[i].n_not_divided &&
                          (audit.notes.n > 0) >= rows[i].notes,
                      "%s %s over %d: %d cut, %d not divided, first '%s'", rows[i].like,
                      rows[i].type, rows[i].n_ranks, cut, divided,
                      audit.n_findings ? audit.findings[0].text : "");
        ck_assert_int_eq(kinds(&audit, ASSAY_AUDIT_OWNERSHIP), 0);
        assay_audit_clear(&audit);
    }
}
END_TEST

EXPECT_MAIN("shard", shard_cuts_real_shapes_where_they_are_cut, shard_keeps_gate_and_up_apart,
            shard_shares_key_heads_among_more_ranks, shard_refuses_ranks_that_do_not_divide,
            shard_owns_every_element_once, shard_ownership_names_what_is_missing_or_doubled,
            shard_audit_finds_blocks_that_a_border_cuts)
