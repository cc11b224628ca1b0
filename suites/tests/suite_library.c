/* The installed library: programs that know assay.h alone, their captures judged. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "data.h"
#include "diagnosed.h"
#include "engine/quant.h"
#include "expect.h"

#define MODEL "glm5-tiny-Q4_K_M.gguf"
#define N 5
#define IDS "40 345 82 270 83"
#ifdef __SANITIZE_ADDRESS__
#define FLAGS "-fsanitize=address,undefined"
#else
#define FLAGS ""
#endif

static const int32_t ids[N] = {40, 345, 82, 270, 83};
static char folder[4096], model[4096], rows[4096], weight[4096];

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int run(const char *format, ...)
{
    char command[32768];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_numbers(const char *path, const float *x, int64_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(x, sizeof *x, (size_t)n, f) == (size_t)n && fclose(f) == 0);
}

/* Rows of the embedding and the first norm's weight, as files of float32 numbers. */
static void prepare(void)
{
    static const char *const source = "ASSAY_SOURCE_DIR";
    snprintf(folder, sizeof folder, "%s", data_scratch("library"));
    snprintf(model, sizeof model, "%s", data_shipped(MODEL));
    snprintf(rows, sizeof rows, "%s", data_scratch("rows.f32"));
    snprintf(weight, sizeof weight, "%s", data_scratch("weight.f32"));
    ck_assert_int_eq(
        run("bash '%s/suites/tests/library/build.sh' '%s' '" FLAGS "'", getenv(source), folder), 0);
    assay_gguf *file;
    float x[N * 256];
    EXPECT_OK(assay_gguf_open(&file, model));
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, "token_embd.weight");
    for (int i = 0; i < N; i++)
        EXPECT_OK(assay_quant_decode(
            x + i * 256, t->type, (const char *)t->data + ids[i] * (t->n_bytes / t->ne[1]), 256));
    write_numbers(rows, x, N * 256);
    t = assay_gguf_find_tensor(file, "blk.0.attn_norm.weight");
    EXPECT_OK(assay_quant_decode(x, t->type, t->data, 256));
    write_numbers(weight, x, 256);
    assay_gguf_close(file);
}

static int engine(const char *program, const char *capture, const char *epsilon)
{
    return run("LD_LIBRARY_PATH=$(dirname $(find '%s/stage' -name libassay.so)) '%s/%s' '%s' '%s' "
               "'%s' 256 %s " IDS,
               folder, folder, program, capture, rows, weight, epsilon);
}

static void expect_clean(const char *capture)
{
    assay_result result;
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_int_eq(result.n_judged, 2);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    assay_result_clear(&result);
}

START_TEST(programs_built_against_the_installed_library_are_judged)
{
    prepare();
    static const char *const programs[] = {"by_hand", "cmake/norm_engine",
                                           "cmake/norm_engine_static"};
    char capture[4096], other[4096];
    snprintf(capture, sizeof capture, "%s", data_scratch("capture.h5"));
    snprintf(other, sizeof other, "%s", data_scratch("other.h5"));
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        ck_assert_int_eq(engine(programs[i], capture, "1e-5"), 0);
        expect_clean(capture);
    }
    /* a fault of the engine is found in its capture */
    assay_result result;
    ck_assert_int_eq(engine("by_hand", other, "1e-2"), 0);
    EXPECT_OK(diagnosed(&result, other, model));
    ck_assert_int_eq(result.n_findings, 1);
    ck_assert_msg(diagnosed_find(&result, "CONST", "attn.in_norm") != NULL, "%s",
                  diagnosed_text(&result));
    assay_result_clear(&result);
    /* C++ captured the same embedding */
    static const char *const cpp[] = {"ten_lines_by_hand", "cmake/ten_lines"};
    for (size_t i = 0; i < sizeof cpp / sizeof *cpp; i++) {
        ck_assert_int_eq(
            run("LD_LIBRARY_PATH=$(dirname $(find '%s/stage' -name libassay.so)) '%s/%s' '%s' '%s' "
                "256 " IDS,
                folder, folder, cpp[i], other, rows),
            0);
        ck_assert_int_eq(run("'%s/assay' compare '%s' '%s' >/dev/null", getenv("ASSAY_BUILD_DIR"),
                             other, capture),
                         0);
    }
    ck_assert_int_ne(run("'%s/assay' compare '%s' '%s' >/dev/null 2>&1", getenv("ASSAY_BUILD_DIR"),
                         other, model),
                     0);
}
END_TEST

EXPECT_MAIN("library", programs_built_against_the_installed_library_are_judged)
