/*
 * A foreign dump's prompts, steps and names, and what they say about who wrote it.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/run_foreign.h"

#define MAX_STEPS 100000
#define MAX_COMPARED ((int64_t)1 << 24) /* numbers of a tensor that is compared with another */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_name(const assay_dump *d, const char *name)
{
    return d->n_all && bsearch(&name, d->all, (size_t)d->n_all, sizeof *d->all, by_text);
}

static bool has_part(const assay_dump *d, const char *part)
{
    for (int i = 0; i < d->n_all; i++)
        if (strstr(d->all[i], part))
            return true;
    return false;
}

/* `name` with {} replaced by the layer. */
static void layer_name(char text[256], const char *name, size_t length, int layer)
{
    size_t at = 0;
    for (size_t i = 0; i < length && at + 16 < 256; i++) {
        if (name[i] == '{' && i + 1 < length && name[i + 1] == '}') {
            at += (size_t)snprintf(text + at, 256 - at, "%d", layer);
            i++;
        } else {
            text[at++] = name[i];
        }
    }
    text[at] = '\0';
}

static bool has_layer_name(const assay_dump *d, const char *name, size_t length, int layer)
{
    char text[256];
    layer_name(text, name, length, layer);
    return has_name(d, text);
}

/* Numbers of a dataset of a step; NULL: it has none, or too many to look at. */
static double *numbers_of(int64_t *n, const assay_dump *d, int step, const char *name)
{
    char path[1024];
    assay_h5_info info;
    double *x = NULL;
    if (assay_dump_path(path, d, step, name) != ASSAY_OK || assay_h5_kind(d->file, path) != 'd' ||
        assay_h5_dataset(&info, d->file, path) != ASSAY_OK || !info.is_number || info.is_virtual ||
        info.count < 1 || info.count > MAX_COMPARED)
        return NULL;
    *n = info.count;
    x = malloc((size_t)info.count * sizeof *x);
    if (x && assay_h5_read_f64(x, d->file, path, &info) != ASSAY_OK) {
        free(x);
        return NULL;
    }
    return x;
}

/* "a=b": both are there, and in the first step that has them they hold the same numbers. */
static bool is_same(const assay_dump *d, const char *text, size_t length, int layer)
{
    char a[256], b[256];
    size_t at = strcspn(text, "=");
    bool same = false, found = false;
    layer_name(a, text, at, layer);
    layer_name(b, text + at + 1, length - at - 1, layer);
    for (int s = 0; s < d->n_steps && !found && has_name(d, a) && has_name(d, b); s++) {
        int64_t n = 0, m = -1;
        double *x = numbers_of(&n, d, s, a), *y = x ? numbers_of(&m, d, s, b) : NULL;
        found = x && y;
        same = found && n == m && !memcmp(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
    }
    return same;
}

static bool is_moe(const assay_dump *d, int layer)
{
    static const char *const signs[] = {"model.layers.{}.mlp.gate", "model.layers.{}.mlp.experts",
                                        "model.layers.{}.mlp.shared_experts", "ffn_moe_logits-{}#0",
                                        "ffn_moe_out-{}#0"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (has_layer_name(d, signs[i], strlen(signs[i]), layer))
            return true;
    const assay_run_sizes *sizes = d->options->sizes;
    return sizes && sizes->is_moe && layer >= sizes->n_layer_dense;
}

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && !strncmp(text, word, n);
}

bool assay_dump_holds(const assay_dump *d, const char *when, int layer)
{
    for (const char *p = when; *p;) {
        p += strspn(p, " ");
        bool negate = *p == '!';
        p += negate;
        size_t n = strcspn(p, " ");
        if (n == 0)
            break;
        bool is = is_word(p, n, "moe")          ? is_moe(d, layer)
                  : is_word(p, n, "rope-first") ? d->run->profile.cache_rope_first
                  : memchr(p, '=', n)           ? is_same(d, p, n, layer)
                                                : has_layer_name(d, p, n, layer);
        if (is == negate)
            return false;
        p += n;
    }
    return true;
}

static const char *class_architecture(const char *model_class)
{
    static const char *const rows[][2] = {{"DeepseekV2", "deepseek2"},
                                          {"DeepseekV3F", "deepseek2"},
                                          {"GlmMoeDsa", "glm-dsa"},
                                          {"Llama", "llama"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strncmp(model_class, rows[i][0], strlen(rows[i][0])))
            return rows[i][1];
    return "";
}

static assay_dtype dtype_of(const char *text)
{
    static const struct {
        const char *name;
        assay_dtype type;
    } rows[] = {{"float32", ASSAY_DTYPE_F32}, {"bfloat16", ASSAY_DTYPE_BF16},
                {"float16", ASSAY_DTYPE_F16}, {"half", ASSAY_DTYPE_F16},
                {"float64", ASSAY_DTYPE_F64}, {"double", ASSAY_DTYPE_F64}};
    const char *dot = strrchr(text, '.');
    const char *name = dot ? dot + 1 : text;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name))
            return rows[i].type;
    return assay_dtype_from_name(name);
}

assay_status assay_dump_read_about(assay_dump *d)
{
    assay_run *run = d->run;
    assay_run_info *info = &run->info;
    const char *dtype;
    ASSAY_TRY(assay_run_attr(&info->producer, run, d->file, "/", "producer", ""));
    ASSAY_TRY(assay_run_attr(&info->producer_version, run, d->file, "/", "producer_version", ""));
    ASSAY_TRY(assay_run_attr(&info->model_class, run, d->file, "/", "model_class", ""));
    ASSAY_TRY(assay_run_attr(&info->model_sha256, run, d->file, "/", "model_sha256", ""));
    ASSAY_TRY(assay_run_attr(&dtype, run, d->file, "/", "dtype", "float32"));
    if (d->is_capture) {
        int64_t complete = 0;
        bool found;
        ASSAY_TRY(assay_h5_attr_int(&complete, &found, d->file, "/", "complete"));
        info->is_complete = complete == 1;
    }
    info->architecture = class_architecture(info->model_class);
    info->dtype = dtype_of(dtype);
    if (info->dtype == ASSAY_DTYPE_COUNT)
        return assay_fail(ASSAY_BAD_FILE, "attribute dtype '%s' is not a known number format",
                          dtype);
    return ASSAY_OK;
}

static assay_status add_step(assay_dump *d, const char *format, const char *prompt,
                             const char *step)
{
    assay_dump_names *steps = realloc(d->steps, (size_t)(d->n_steps + 1) * sizeof *steps);
    if (!steps)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
    d->steps = steps;
    if (d->n_steps == MAX_STEPS)
        return assay_fail(ASSAY_BAD_FILE, "more than %d steps", MAX_STEPS);
    assay_dump_names *s = &d->steps[d->n_steps++];
    *s = (assay_dump_names){.prompt = d->n_prompt, .step = d->n_new++};
    ASSAY_TRY(assay_run_text(&s->group, d->run, format, prompt, step));
    return assay_h5_list(&s->names, d->file, s->group);
}

static bool is_step(const assay_dump *d, const char *name)
{
    if (d->is_capture)
        return isdigit((unsigned char)name[0]);
    return !strncmp(name, "step", 4) && isdigit((unsigned char)name[4]);
}

/* All steps of one prompt; group "" is the root. */
static assay_status list_prompt(assay_dump *d, const char *name, const char *group,
                                const assay_h5_names *members)
{
    assay_run *run = d->run;
    if (d->options->prompt && strcmp(d->options->prompt, name))
        return assay_run_pass_over(run, name);
    assay_prompt_data *p = assay_run_prompt_named(run, name);
    if (d->index > 0 && !p)
        return assay_fail(ASSAY_BAD_FILE, "'%s' has a prompt '%s' that '%s' lacks",
                          run->files[d->index].path, name, run->files[0].path);
    if (!p)
        ASSAY_TRY(assay_run_add_prompt(&p, run, name));
    d->n_prompt = (int)(p - run->prompts);
    d->n_listed++;
    d->n_new = 0;
    int first = d->n_steps;
    for (int i = 0; i < members->n; i++)
        if (is_step(d, members->items[i]))
            ASSAY_TRY(add_step(d, "%s/%s", group, members->items[i]));
    p = &run->prompts[d->n_prompt];
    if (d->index > 0 && p->n_steps != d->n_steps - first)
        return assay_fail(ASSAY_BAD_FILE, "prompt '%s' has %d steps in '%s', %d in '%s'", name,
                          d->n_steps - first, run->files[d->index].path, p->n_steps,
                          run->files[0].path);
    if (d->index > 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&p->steps, (size_t)d->n_new, sizeof *p->steps, "steps"));
    p->n_steps = p->about.n_steps = d->n_new;
    return ASSAY_OK;
}

static bool any_step(const assay_dump *d, const assay_h5_names *members)
{
    for (int i = 0; i < members->n; i++)
        if (is_step(d, members->items[i]))
            return true;
    return false;
}

assay_status assay_dump_list(assay_dump *d)
{
    assay_h5_names root = {.n = 0}, members = {.n = 0};
    const char *base = d->is_capture ? "/prompts" : "", *tail = d->is_capture ? "/steps" : "";
    ASSAY_TRY(assay_h5_list(&root, d->file, d->is_capture ? base : "/"));
    assay_status s = ASSAY_OK;
    if (any_step(d, &root)) {
        s = list_prompt(d, "default", "", &root);
        goto out;
    }
    for (int i = 0; i < root.n; i++) {
        char group[512];
        char kind;
        snprintf(group, sizeof group, "%s/%.480s%s", base, root.items[i], tail);
        ASSAY_GO(assay_h5_member(&kind, d->file, group));
        if (kind != 'g')
            continue;
        ASSAY_GO(assay_h5_list(&members, d->file, group));
        if (any_step(d, &members))
            ASSAY_GO(list_prompt(d, root.items[i], group, &members));
        assay_h5_names_clear(&members);
    }
out:
    assay_h5_names_clear(&root);
    assay_h5_names_clear(&members);
    return s;
}

assay_status assay_dump_unite_names(assay_dump *d)
{
    size_t n = 0;
    for (int i = 0; i < d->n_steps; i++)
        n += (size_t)d->steps[i].names.n;
    ASSAY_TRY(assay_alloc(&d->all, n, sizeof *d->all, "names"));
    for (int i = 0; i < d->n_steps; i++)
        for (int k = 0; k < d->steps[i].names.n; k++)
            d->all[d->n_all++] = d->steps[i].names.items[k];
    if (!d->n_all)
        return ASSAY_OK;
    qsort(d->all, (size_t)d->n_all, sizeof *d->all, by_text);
    int kept = 1;
    for (int i = 1; i < d->n_all; i++)
        if (strcmp(d->all[i], d->all[kept - 1]))
            d->all[kept++] = d->all[i];
    d->n_all = kept;
    return ASSAY_OK;
}

/* Who wrote it: by its word, else by how names look. */
void assay_dump_recognise(assay_dump *d)
{
    assay_run_info *info = &d->run->info;
    d->is_ggml = !strncmp(info->producer, "llama.cpp", 9) || has_part(d, "l_out-0#") ||
                 has_part(d, "attn_norm-0#");
    static const char *const fused[] = {"fused_qkv_a_proj", "gate_up_proj", "mla_attn",
                                        "self_attn.attn_mqa", "self_attn.qkv_proj"};
    d->is_vllm = !strncmp(info->producer, "vllm", 4) || !strncmp(info->producer, "sglang", 6);
    bool unsaid = strncmp(info->producer, "transformers", 12) && !d->is_ggml;
    for (size_t i = 0; unsaid && i < sizeof fused / sizeof *fused; i++)
        d->is_vllm = d->is_vllm || has_part(d, fused[i]);
    static const char *const classes[] = {"Deepseek", "GlmMoeDsa", "Kimi"};
    d->is_mla = has_part(d, "kv_a_") || has_part(d, "qkv_a_") || has_part(d, "kv_cmpr") ||
                (d->options->sizes && d->options->sizes->is_mla);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        d->is_mla = d->is_mla || !strncmp(info->model_class, classes[i], strlen(classes[i]));
    if (!info->producer[0])
        info->producer = d->is_ggml ? "llama.cpp" : d->is_vllm ? "vllm" : "transformers";
    d->family = d->is_ggml   ? ASSAY_FAMILY_GGML
                : d->is_vllm ? ASSAY_FAMILY_VLLM
                : d->is_mla  ? ASSAY_FAMILY_HF_MLA
                             : ASSAY_FAMILY_HF_PLAIN;
    if (d->is_ggml)
        info->attention_path = has_part(d, "q_nope_absorbed") ? "latent" : "expanded";
    else
        info->attention_path = "expanded";
}

/* Shape as row-major: from attribute ne (innermost first, size-one axes kept) where it is. */
assay_status assay_dump_shape(assay_h5_info *info, const assay_dump *d, const char *path)
{
    ASSAY_TRY(assay_h5_dataset(info, d->file, path));
    if (info->is_virtual)
        return assay_fail(ASSAY_BAD_FILE, "'%s' keeps its data in another file, which is refused",
                          path);
    if (!d->is_ggml)
        return ASSAY_OK;
    int64_t *ne, n;
    bool found;
    ASSAY_TRY(assay_h5_attr_ints(&ne, &n, &found, d->file, path, "ne"));
    if (!found)
        return ASSAY_OK;
    int64_t count = 1;
    bool ok = n >= 1 && n <= ASSAY_H5_MAX_DIMS;
    for (int64_t i = 0; ok && i < n; i++)
        ok = ne[i] >= 0 && !__builtin_mul_overflow(count, ne[i], &count);
    if (ok && count == info->count) {
        info->n_dims = (int)n;
        for (int64_t i = 0; i < n; i++)
            info->dims[i] = ne[n - 1 - i];
    } else {
        ok = false;
    }
    free(ne);
    return ok ? ASSAY_OK
              : assay_fail(ASSAY_BAD_FILE, "'%s': attribute ne does not fit the shape", path);
}

assay_status assay_dump_path(char out[1024], const assay_dump *d, int step, const char *name)
{
    int n = snprintf(out, 1024, "%s/%s", d->steps[step].group, name);
    return n < 1024 ? ASSAY_OK : assay_fail(ASSAY_BAD_FILE, "name '%.60s...' is too long", name);
}

assay_step_data *assay_dump_step(const assay_dump *d, int step)
{
    return &d->run->prompts[d->steps[step].prompt].steps[d->steps[step].step];
}

/* Rows of this step: input_tokens, else what a tensor that has one row per token shows. */
assay_status assay_dump_count_tokens(assay_dump *d, int step, assay_step_data *data)
{
    char path[1024], kind;
    int64_t n;
    ASSAY_TRY(assay_dump_path(path, d, step, d->is_capture ? "tokens" : "input_tokens"));
    ASSAY_TRY(assay_h5_member(&kind, d->file, path));
    if (kind == 'd') {
        const int32_t *before = data->about.tokens;
        ASSAY_TRY(assay_h5_read_ids(&data->tokens, &n, d->file, path));
        bool same = before && n == data->about.n_tokens &&
                    (n == 0 || !memcmp(before, data->tokens, (size_t)n * sizeof *before));
        if (before && !same) {
            free(data->tokens);
            return assay_fail(ASSAY_BAD_FILE, "'%s' has other tokens in '%s' than in '%s'", path,
                              d->run->files[d->index].path, d->run->files[0].path);
        }
        data->about.tokens = data->tokens;
        data->about.n_tokens = n;
        return assay_run_keep(d->run, data->tokens);
    }
    static const char *const rows[] = {"embd#0",      "attn_norm-0#0",      "l_out-0#0",
                                       "ffn_inp-0#0", "model.embed_tokens", "model.layers.0",
                                       "model.norm"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_h5_info info;
        ASSAY_TRY(assay_dump_path(path, d, step, rows[i]));
        if (assay_h5_kind(d->file, path) != 'd')
            continue;
        ASSAY_TRY(assay_dump_shape(&info, d, path));
        if (info.n_dims >= 2) {
            data->about.n_tokens = info.dims[info.n_dims - 2];
            return ASSAY_OK;
        }
    }
    data->about.n_tokens = 1;
    return ASSAY_OK;
}
