/* tools/llama: the nodes of a stored run of llama.cpp through its evaluation callback, with a
 * stand-in for ggml. */
#include <ggml-backend.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "probes/hdf5.h"
#include "tools/llama/assay_llama.h"

/* ---- the stand-in ---- */

struct ggml_backend_buffer {
    int copies;
};

static struct ggml_backend_buffer device;

size_t ggml_type_size(enum ggml_type type)
{
    return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ? 2 : 4;
}

size_t ggml_nbytes(const struct ggml_tensor *t)
{
    size_t n = ggml_type_size(t->type);
    for (int d = 0; d < GGML_MAX_DIMS; d++)
        n += (size_t)(t->ne[d] - 1) * t->nb[d];
    return n;
}

bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
{
    return buffer != &device;
}

void ggml_backend_tensor_get(const struct ggml_tensor *t, void *data, size_t offset, size_t size)
{
    device.copies++;
    memcpy(data, (const char *)t->data + offset, size);
}

/* ---- a stored run ---- */

typedef struct node {
    struct ggml_tensor tensor;
    int64_t order;
} node;

static int by_order(const void *a, const void *b)
{
    const node *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Every node of a step in order of evaluation; half of them on the device. */
static node *load(int *n, hid_t file, const char *group)
{
    assay_h5_names names;
    EXPECT_OK(assay_h5_list(&names, file, group));
    node *list = calloc((size_t)names.n, sizeof *list);
    *n = names.n;
    for (int i = 0; i < names.n; i++) {
        char path[512];
        int64_t *ne, count = 0;
        bool found;
        assay_h5_info info;
        struct ggml_tensor *t = &list[i].tensor;
        snprintf(path, sizeof path, "%s/%s", group, names.items[i]);
        EXPECT_OK(assay_h5_attr_ints(&ne, &count, &found, file, path, "ne"));
        ck_assert(found && count == GGML_MAX_DIMS);
        EXPECT_OK(assay_h5_attr_int(&list[i].order, &found, file, path, "order"));
        EXPECT_OK(assay_h5_dataset(&info, file, path));
        bool ids = info.dtype >= ASSAY_DTYPE_I8;
        t->type = ids ? GGML_TYPE_I32 : GGML_TYPE_F32;
        t->buffer = i % 2 ? &device : NULL;
        snprintf(t->name, sizeof t->name, "%.*s", (int)strcspn(names.items[i], "#"),
                 names.items[i]);
        size_t stride = 4;
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            t->ne[d] = ne[d];
            t->nb[d] = stride;
            stride *= (size_t)ne[d];
        }
        free(ne);
        t->data = calloc(1, stride);
        hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
        ck_assert(H5Dread(set, ids ? H5T_NATIVE_INT32 : H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL,
                          H5P_DEFAULT, t->data) >= 0);
        H5Dclose(set);
    }
    assay_h5_names_clear(&names);
    qsort(list, (size_t)*n, sizeof *list, by_order);
    return list;
}

/* As the scheduler does: asks for each node; what is wanted is computed and shown. */
static void evaluate(assay_llama *a, node *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (assay_llama_eval(&list[i].tensor, true, a))
            ck_assert(assay_llama_eval(&list[i].tensor, false, a));
        /* its memory is another node's afterwards */
        memset(list[i].tensor.data, 0xA5, ggml_nbytes(&list[i].tensor));
        free(list[i].tensor.data);
    }
    free(list);
}

START_TEST(nodes_of_llama_cpp_are_captured_and_judged)
{
    const char *dump = data_large("foreign/glm5-tiny-Q4_K_M.llama_cpp.h5");
    if (!dump)
        return;
    char capture[4096], model[4096];
    snprintf(capture, sizeof capture, "%s", data_scratch("llama.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    assay_run *direct, *run;
    assay_llama *a;
    EXPECT_OK(assay_run_open(&direct, &dump, 1, NULL));
    hid_t file = H5Fopen(dump, H5F_ACC_RDONLY, H5P_DEFAULT);
    ck_assert_int_eq(assay_llama_open(&a, capture, NULL), 0);
    int n_steps = assay_run_prompt_at(direct, 0)->n_steps;
    for (int s = 0; s < n_steps; s++) {
        const assay_run_step *about = assay_run_step_at(direct, 0, s);
        char group[32];
        int n;
        snprintf(group, sizeof group, "/step%04d", s);
        node *list = load(&n, file, group);
        ck_assert_int_eq(assay_llama_begin(a, about->is_prefill ? ASSAY_PREFILL : ASSAY_DECODE,
                                           about->first_position, about->tokens, about->n_tokens),
                         0);
        evaluate(a, list, n);
    }
    H5Fclose(file);
    ck_assert_msg(assay_llama_close(a) == 0, "%s", assay_last_error());
    ck_assert_int_gt(device.copies, 100);
    const char *path = capture;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    ck_assert_str_eq(assay_run_about(run)->profile->name, "llama.cpp");
    ck_assert_msg(assay_run_about(run)->n_unmapped == 0, "%s", assay_run_unmapped_at(run, 0));
    for (int s = 0; s < n_steps; s++)
        ck_assert_int_eq(assay_run_n_seen(run, 0, s), assay_run_n_seen(direct, 0, s));
    assay_run_close(run);
    assay_run_close(direct);
    assay_result result;
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_int_gt(result.n_judged, 300);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_failure_in_the_callback_comes_back_from_the_next_call)
{
    char path[4096];
    float x[2] = {1, 2};
    struct ggml_tensor t = {
        .type = GGML_TYPE_F32, .ne = {2, 1, 1, 1}, .nb = {4, 8, 8, 8}, .data = x};
    const int32_t id = 3;
    assay_llama *a;
    snprintf(path, sizeof path, "%s", data_scratch("failed.h5"));
    ck_assert_int_eq(assay_llama_open(&a, path, NULL), 0);
    snprintf(t.name, sizeof t.name, "l_out-0");
    ck_assert(assay_llama_eval(&t, true, a));
    ck_assert(assay_llama_eval(&t, false, a)); /* before any step */
    ck_assert(!assay_llama_eval(&t, true, a));
    ck_assert_int_eq(assay_llama_begin(a, ASSAY_PREFILL, 0, &id, 1), 129);
    ck_assert_int_eq(assay_llama_close(a), 129);
    ck_assert_int_ne(access(path, F_OK), 0);
    t.type = GGML_TYPE_Q4_K; /* a format that captures do not have: passed over */
    ck_assert_int_eq(assay_llama_open(&a, path, NULL), 0);
    ck_assert_int_eq(assay_llama_begin(a, ASSAY_PREFILL, 0, &id, 1), 0);
    ck_assert(!assay_llama_eval(&t, true, a));
    ck_assert_int_eq(assay_llama_close(a), 0);
}
END_TEST

EXPECT_MAIN("llama", nodes_of_llama_cpp_are_captured_and_judged,
            a_failure_in_the_callback_comes_back_from_the_next_call)
