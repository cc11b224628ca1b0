#include "suites/audit.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "suites/audit_rate.h"
#include "suites/audit_shards.h"
#include "suites/forge_model.h"

/* Structure and contents of one file. */
static void audit_path(assay_audit *out, const char *path)
{
    assay_gguf *file = NULL;
    *out = (assay_audit){0};
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_audit_structure(out, file));
    EXPECT_OK(assay_audit_contents(out, file, 2, NULL, NULL));
    assay_gguf_close(file);
}

static void forge(assay_forge_result *made, const assay_forge_options *options)
{
    char path[512];
    snprintf(path, sizeof path, "%s", data_scratch("audited.gguf"));
    EXPECT_OK(assay_forge_model(made, path, options, NULL, NULL));
}

static void expect_clean(const char *path)
{
    assay_audit audit;
    audit_path(&audit, path);
    ck_assert_msg(audit.n_findings == 0, "%s: %s", path,
                  audit.n_findings ? audit.findings[0].text : "");
    ck_assert_int_gt(audit.n_tensors, 20);
    ck_assert_uint_gt(audit.bytes_read, 1u << 20);
    assay_audit_clear(&audit);
}

START_TEST(audit_finds_nothing_in_trained_and_in_random_models)
{
    static const char *const names[] = {"models/glm5-tiny-bf16.gguf", "models/dsv3-tiny-bf16.gguf",
                                        "models/dsv2lite-tiny-bf16.gguf",
                                        "models/llama-tiny-bf16.gguf"};
    expect_clean(data_shipped("glm5-tiny-Q4_K_M.gguf"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (data_large(names[i]))
            expect_clean(data_large(names[i]));
}
END_TEST

START_TEST(audit_finds_nothing_in_forged_models_of_any_type)
{
    static const assay_forge_options models[] = {
        {.like = "glm5-tiny", .type = "q4_k", .n_nextn = 1, .order = ASSAY_FORGE_SHUFFLED},
        {.like = "glm5-tiny", .type = "f16", .n_layer = 1},
        {.like = "dsv3-tiny", .type = "q6_k", .kv_b = true, .n_files = 3},
        {.like = "dsv2lite-tiny", .type = "q4_0"},
        {.like = "llama-tiny", .type = "f32"},
        {.like = "llama-tiny", .type = "iq4_nl"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        assay_forge_result made;
        forge(&made, &models[i]);
        expect_clean(made.path);
    }
}
END_TEST

static const assay_audit_finding *find(const assay_audit *audit, assay_audit_kind kind,
                                       const char *tensor)
{
    for (int i = 0; i < audit->n_findings; i++)
        if (audit->findings[i].kind == kind && strcmp(audit->findings[i].tensor, tensor) == 0)
            return &audit->findings[i];
    return NULL;
}

/* Each kind of wrong tensor is found in its place, by its name, and nothing else is. */
START_TEST(audit_names_each_wrong_tensor)
{
    static const struct {
        const char *wrong, *at;
        assay_audit_kind kind;
        int64_t row;
        int n_findings;
    } rows[] = {
        {"nan", "blk.1.attn_output.weight", ASSAY_AUDIT_NONFINITE, 128, 1},
        {"inf", "blk.2.ffn_gate_exps.weight", ASSAY_AUDIT_NONFINITE, 1024, 1},
        {"nan", "blk.0.attn_norm.weight", ASSAY_AUDIT_NONFINITE, 0, 1},
        {"zero-row", "blk.3.ffn_down_exps.weight", ASSAY_AUDIT_ZERO_ROWS, 1024, 1},
        {"zero-row", "blk.1.ffn_norm.weight", ASSAY_AUDIT_ZERO_ROWS, 0, 1},
        {"repeated-row", "blk.2.attn_q_b.weight", ASSAY_AUDIT_REPEATED_ROWS, 767, 1},
        {"huge", "blk.1.ffn_up_shexp.weight", ASSAY_AUDIT_SCALE, -1, 1},
        {"huge", "blk.0.ffn_down.weight", ASSAY_AUDIT_SCALE, -1, 0}, /* 64 x the usual: see below */
        {"copied", "blk.2.attn_kv_a_mqa.weight", ASSAY_AUDIT_EQUAL, -1, 1},
        {"missing", "blk.3.attn_v_b.weight", ASSAY_AUDIT_MISSING, -1, 1},
        {"missing", "output_norm.weight", ASSAY_AUDIT_MISSING, -1, 1},
        {"missing", "blk.2.ffn_up_exps.weight", ASSAY_AUDIT_MISSING, -1, 1},
        {"shape", "blk.0.ffn_gate.weight", ASSAY_AUDIT_SHAPE, -1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_forge_options options = {.like = "glm5-tiny",
                                       .type = i % 2 ? "bf16" : "q8_0",
                                       .wrong = rows[i].wrong,
                                       .wrong_at = rows[i].at};
        assay_forge_result made;
        assay_audit audit;
        forge(&made, &options);
        audit_path(&audit, made.path);
        if (rows[i].n_findings == 0) { /* only one layer is dense: no other to compare with */
            ck_assert_int_eq(audit.n_findings, 0);
            assay_audit_clear(&audit);
            continue;
        }
        const assay_audit_finding *f = find(&audit, rows[i].kind, rows[i].at);
        if (rows[i].kind == ASSAY_AUDIT_EQUAL) /* either of the two may be named first */
            f = audit.n_findings ? &audit.findings[0] : NULL;
        ck_assert_msg(f != NULL, "%s at %s: not found (%d findings, first: %s)", rows[i].wrong,
                      rows[i].at, audit.n_findings, audit.n_findings ? audit.findings[0].text : "");
        ck_assert_msg(audit.n_findings == 1, "%s at %s: also '%s'", rows[i].wrong, rows[i].at,
                      audit.findings[audit.n_findings - 1].text);
        ck_assert_int_eq(f->row, rows[i].row);
        ck_assert(strstr(f->text, rows[i].at) != NULL);
        assay_audit_clear(&audit);
    }
}
END_TEST

START_TEST(audit_names_an_unknown_tensor_and_the_one_it_should_be)
{
    assay_forge_options options = {.like = "llama-tiny",
                                   .wrong = "unknown",
                                   .wrong_at = "blk.1.ffn_down.weight",
                                   .type = "f16"};
    assay_forge_result made;
    assay_audit audit;
    forge(&made, &options);
    audit_path(&audit, made.path);
    ck_assert_int_eq(audit.n_findings, 2);
    ck_assert_ptr_nonnull(find(&audit, ASSAY_AUDIT_UNKNOWN, "blk.1.ffn_down.ghost"));
    ck_assert_ptr_nonnull(find(&audit, ASSAY_AUDIT_MISSING, "blk.1.ffn_down.weight"));
    assay_audit_clear(&audit);
}
END_TEST

/* Sorted names put kv_a before q_a; that is no finding, and a trap for engines. */
START_TEST(audit_notes_parts_that_lie_in_another_order)
{
    static const assay_forge_order orders[] = {ASSAY_FORGE_BY_LAYER, ASSAY_FORGE_SORTED};
    for (int i = 0; i < 2; i++) {
        assay_forge_result made;
        assay_audit audit;
        bool noted = false;
        forge(&made, &(assay_forge_options){.like = "glm5-tiny", .order = orders[i]});
        audit_path(&audit, made.path);
        ck_assert_int_eq(audit.n_findings, 0);
        for (int n = 0; n < audit.notes.n; n++)
            noted |= strstr(audit.notes.items[n], "'attn_kv_a_mqa.weight' lies before") != NULL;
        ck_assert_int_eq(noted, i);
        assay_audit_clear(&audit);
    }
}
END_TEST

/* Codes of zero with a scale: the bytes are not zero, the row is. */
START_TEST(audit_sees_rows_that_decode_to_zero)
{
    assay_forge_result made;
    assay_audit audit;
    assay_gguf *file = NULL;
    forge(&made, &(assay_forge_options){.like = "llama-tiny", .type = "q4_0", .n_layer = 1});
    EXPECT_OK(assay_gguf_open(&file, made.path));
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, "blk.0.attn_q.weight");
    long at = (long)t->offset + 5 * 144; /* row 5 of 8 blocks of 18 bytes */
    assay_gguf_close(file);
    FILE *f = fopen(made.path, "r+b");
    ck_assert_ptr_nonnull(f);
    fseek(f, at, SEEK_SET);
    for (int b = 0; b < 8; b++) {
        static const uint8_t block[18] = {0x66, 0x2e, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88,
                                          0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88};
        ck_assert_uint_eq(fwrite(block, 18, 1, f), 1);
    }
    fclose(f);
    audit_path(&audit, made.path);
    ck_assert_int_eq(audit.n_findings, 1);
    const assay_audit_finding *found = find(&audit, ASSAY_AUDIT_ZERO_ROWS, "blk.0.attn_q.weight");
    ck_assert(found && found->row == 5 && found->n == 1);
    assay_audit_clear(&audit);
}
END_TEST

static long anonymous_kb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kb = -1;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All of GLM-5 as holes, in ten files: names, shapes and the borders of 8 ranks in seconds of this
 * process (others may load the machine), its zero rows without reading 425 GB. */
START_TEST(audit_of_a_skeleton_is_quick_and_small)
{
    assay_forge_options options = {
        .like = "glm-5", .type = "q4_k", .n_nextn = -1, .skeleton = true, .n_files = 10};
    bool sanitized = getenv("ASAN_OPTIONS") != NULL;
    assay_forge_result made;
    assay_audit audit = {0}, contents = {0};
    assay_gguf *file;
    forge(&made, &options);
    long before_kb = anonymous_kb();
    double began = cpu_s();
    EXPECT_OK(assay_gguf_open(&file, made.path));
    EXPECT_OK(assay_audit_structure(&audit, file));
    EXPECT_OK(assay_audit_shards(&audit, file, 8));
    double took = cpu_s() - began;
    ck_assert_int_eq(audit.n_tensors, 1809);
    ck_assert_int_eq(assay_gguf_n_files(file), 10);
    ck_assert_msg(audit.n_findings == 0, "%s", audit.n_findings ? audit.findings[0].text : "");
    ck_assert_msg(sanitized || took < 5, "structure and shards: %g s", took);
    EXPECT_OK(assay_audit_contents(&contents, file, 2, NULL, NULL));
    if (!sanitized)
        ck_assert_int_lt(anonymous_kb() - before_kb, 300 * 1024);
    ck_assert_int_gt(contents.n_findings, 1000);
    for (int i = 0; i < contents.n_findings; i++)
        ck_assert_int_eq(contents.findings[i].kind, ASSAY_AUDIT_ZERO_ROWS);
    ck_assert_uint_gt(contents.bytes_hole, 402000000000u);
    ck_assert_uint_lt(contents.bytes_read, 1u << 30); /* what lies beside the headers */
    assay_gguf_close(file);
    assay_audit_clear(&audit);
    assay_audit_clear(&contents);
}
END_TEST

/* The ratio itself is the machine's: `assay bench --weights` prints it. */
START_TEST(audit_is_timed_beside_a_plain_sum)
{
    assay_forge_options whole = {.like = "glm5-tiny"};
    assay_forge_options holes = {.like = "llama-3-8b", .skeleton = true};
    assay_forge_result made;
    assay_audit_rate rate;
    assay_gguf *file;
    uint64_t n_bytes = 0;
    forge(&made, &whole);
    EXPECT_OK(assay_gguf_open(&file, made.path));
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++)
        n_bytes += assay_gguf_tensor_at(file, i)->n_bytes;
    assay_gguf_close(file);
    EXPECT_OK(assay_audit_rate_measure(&rate, made.path, 1, 3));
    ck_assert_uint_eq(rate.n_bytes, n_bytes);
    ck_assert(rate.plain_s > 0 && rate.scan_s > 0);
    ck_assert(rate.lowest <= rate.ratio && rate.ratio <= rate.highest);
    forge(&made, &holes);
    EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_audit_rate_measure(&rate, made.path, 1, 1));
    EXPECT_SAYS("has holes");
}
END_TEST

START_TEST(audit_findings_become_a_result)
{
    assay_forge_options options = {.like = "glm5-tiny", .wrong = "nan"};
    assay_forge_result made;
    assay_audit audit;
    assay_result result;
    forge(&made, &options);
    audit_path(&audit, made.path);
    EXPECT_OK(assay_result_init(&result, "audit"));
    EXPECT_OK(assay_audit_report(&result, &audit, "assay audit x.gguf"));
    ck_assert_int_eq(result.n_findings, 1);
    ck_assert_str_eq(result.findings[0].point, "blk.1.attn_output.weight");
    ck_assert_str_eq(result.findings[0].kind, "values not finite");
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
    assay_audit_clear(&audit);
}
END_TEST

EXPECT_MAIN("audit", audit_finds_nothing_in_trained_and_in_random_models,
            audit_finds_nothing_in_forged_models_of_any_type, audit_names_each_wrong_tensor,
            audit_names_an_unknown_tensor_and_the_one_it_should_be,
            audit_notes_parts_that_lie_in_another_order, audit_sees_rows_that_decode_to_zero,
            audit_of_a_skeleton_is_quick_and_small, audit_is_timed_beside_a_plain_sum,
            audit_findings_become_a_result)
