/*
 * Dumps of other engines: one group per step, one dataset per tensor, named as the engine names it.
 *
 *   /<prompt>/step0000/<name>   several prompts, or
 *   /step0000/<name>            one prompt, called "default", or
 *   /prompts/<prompt>/steps/0000/<name>   a capture of ours whose attribute naming is "modules"
 *                                         (tools/python/assay_torch.py)
 *
 * Passes over a file: list all names; learn the sizes that shapes show; map every name by
 * names.def. Values stay where they are.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/name_map.h"
#include "references/run_private.h"

#define MAX_STEPS 100000

typedef struct step_names {
    const char *group; /* "/count/step0000" */
    int prompt, step;
    assay_h5_names names;
} step_names;

typedef struct dump {
    assay_run *run;
    const assay_run_options *options;
    const assay_name_map *map; /* a user's; NULL: none */
    hid_t file;
    int index; /* of the file */
    assay_family family;
    bool is_ggml, is_vllm, is_mla;
    bool is_capture;   /* naming = modules */
    step_names *steps; /* of all prompts, in order */
    int n_steps;
    int n_listed; /* prompts */
    int n_prompt; /* the prompt that is being listed, and its steps so far */
    int n_new;
    char **all; /* every name of the file once, sorted */
    int n_all;
    assay_sizes sizes;
    /* of the prompt at work */
    assay_prompt_data *prompt;
    int first_step;
} dump;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_name(const dump *d, const char *name)
{
    return d->n_all && bsearch(&name, d->all, (size_t)d->n_all, sizeof *d->all, by_text);
}

static bool has_part(const dump *d, const char *part)
{
    for (int i = 0; i < d->n_all; i++)
        if (strstr(d->all[i], part))
            return true;
    return false;
}

/* `name` with {} replaced by the layer. */
static bool has_layer_name(const dump *d, const char *name, size_t length, int layer)
{
    char text[256];
    size_t at = 0;
    for (size_t i = 0; i < length && at + 16 < sizeof text; i++) {
        if (name[i] == '{' && i + 1 < length && name[i + 1] == '}') {
            at += (size_t)snprintf(text + at, sizeof text - at, "%d", layer);
            i++;
        } else {
            text[at++] = name[i];
        }
    }
    text[at] = '\0';
    return has_name(d, text);
}

static bool is_moe(const dump *d, int layer)
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

static bool holds(const dump *d, const char *when, int layer)
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

static assay_status read_about(dump *d)
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

static assay_status add_step(dump *d, const char *format, const char *prompt, const char *step)
{
    step_names *steps = realloc(d->steps, (size_t)(d->n_steps + 1) * sizeof *steps);
    if (!steps)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
    d->steps = steps;
    if (d->n_steps == MAX_STEPS)
        return assay_fail(ASSAY_BAD_FILE, "more than %d steps", MAX_STEPS);
    step_names *s = &d->steps[d->n_steps++];
    *s = (step_names){.prompt = d->n_prompt, .step = d->n_new++};
    ASSAY_TRY(assay_run_text(&s->group, d->run, format, prompt, step));
    return assay_h5_list(&s->names, d->file, s->group);
}

static bool is_step(const dump *d, const char *name)
{
    if (d->is_capture)
        return isdigit((unsigned char)name[0]);
    return !strncmp(name, "step", 4) && isdigit((unsigned char)name[4]);
}

/* All steps of one prompt; group "" is the root. */
static assay_status list_prompt(dump *d, const char *name, const char *group,
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

static bool any_step(const dump *d, const assay_h5_names *members)
{
    for (int i = 0; i < members->n; i++)
        if (is_step(d, members->items[i]))
            return true;
    return false;
}

static assay_status list_prompts(dump *d)
{
    assay_h5_names root = {NULL, 0}, members = {NULL, 0};
    const char *base = d->is_capture ? "/prompts" : "", *tail = d->is_capture ? "/steps" : "";
    ASSAY_TRY(assay_h5_list(&root, d->file, d->is_capture ? base : "/"));
    assay_status s = ASSAY_OK;
    if (any_step(d, &root)) {
        s = list_prompt(d, "default", "", &root);
        goto out;
    }
    for (int i = 0; i < root.n; i++) {
        char group[512];
        snprintf(group, sizeof group, "%s/%.480s%s", base, root.items[i], tail);
        if (assay_h5_kind(d->file, group) != 'g')
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

static assay_status unite_names(dump *d)
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
static void recognise(dump *d)
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
static assay_status shape_of(assay_h5_info *info, const dump *d, const char *path)
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

static assay_status dataset_path(char out[1024], const dump *d, int step, const char *name)
{
    int n = snprintf(out, 1024, "%s/%s", d->steps[step].group, name);
    return n < 1024 ? ASSAY_OK : assay_fail(ASSAY_BAD_FILE, "name '%.60s...' is too long", name);
}

static assay_step_data *step_data(const dump *d, int step)
{
    return &d->run->prompts[d->steps[step].prompt].steps[d->steps[step].step];
}

/* Rows of this step: input_tokens, else what a tensor that has one row per token shows. */
static assay_status count_tokens(dump *d, int step, assay_step_data *data)
{
    char path[1024];
    int64_t n;
    ASSAY_TRY(dataset_path(path, d, step, d->is_capture ? "tokens" : "input_tokens"));
    if (assay_h5_kind(d->file, path) == 'd') {
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
        ASSAY_TRY(dataset_path(path, d, step, rows[i]));
        if (assay_h5_kind(d->file, path) != 'd')
            continue;
        ASSAY_TRY(shape_of(&info, d, path));
        if (info.n_dims >= 2) {
            data->about.n_tokens = info.dims[info.n_dims - 2];
            return ASSAY_OK;
        }
    }
    data->about.n_tokens = 1;
    return ASSAY_OK;
}

/* Rows of names.def that hold for a name; calls `use` for each. *known: some row has the name. */
typedef assay_status use_row(dump *d, int step, const char *name, const assay_name_row *row,
                             int layer, const assay_h5_info *info);

static assay_status each_row(bool *known, dump *d, int step, const char *name,
                             const assay_h5_info *info, use_row *use)
{
    *known = false;
    for (int i = 0; i < assay_name_map_count(d->map); i++) {
        int layer;
        const assay_name_row *row = assay_name_map_match(d->map, i, name, &layer);
        if (!row)
            continue;
        *known = true;
        if (!row->reason && use)
            ASSAY_TRY(use(d, step, name, row, layer, info));
    }
    if (*known)
        return ASSAY_OK;
    for (int i = 0; i < assay_name_count(); i++) {
        const assay_name_row *row = assay_name_at(i);
        int layer;
        if (!assay_family_has(row->family, d->family) ||
            !assay_name_matches(row->name, name, &layer))
            continue;
        if (row->reason) {
            *known = true;
            continue;
        }
        if (!holds(d, row->when, layer))
            continue;
        *known = true;
        if (use)
            ASSAY_TRY(use(d, step, name, row, layer, info));
    }
    return ASSAY_OK;
}

static assay_status learn(dump *d, int step, const char *name, const assay_name_row *row, int layer,
                          const assay_h5_info *info)
{
    (void)name;
    (void)layer;
    const char *axes = row->layout.axes;
    if (!axes[0] || axes[0] == '>')
        axes = assay_point_at(row->point)->axes;
    assay_sizes_learn(&d->sizes, axes, info->dims, info->n_dims,
                      step_data(d, step)->about.n_tokens);
    return ASSAY_OK;
}

static void take_hints(dump *d)
{
    const assay_run_sizes *s = d->options->sizes;
    if (!s)
        return;
    const struct {
        char letter;
        int size;
    } rows[] = {{'H', s->n_head},  {'G', s->n_head_kv}, {'N', s->d_nope},      {'R', s->d_rope},
                {'V', s->d_value}, {'L', s->n_rank_kv}, {'I', s->index_n_head}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].size > 0 && !d->sizes.of[(int)rows[i].letter])
            d->sizes.of[(int)rows[i].letter] = rows[i].size;
}

static assay_status learn_sizes(dump *d)
{
    for (int s = 0; s < d->n_steps; s++) {
        ASSAY_TRY(count_tokens(d, s, step_data(d, s)));
        for (int i = 0; i < d->steps[s].names.n; i++) {
            const char *name = d->steps[s].names.items[i];
            char path[1024];
            ASSAY_TRY(dataset_path(path, d, s, name));
            bool known;
            ASSAY_TRY(each_row(&known, d, s, name, NULL, NULL));
            if (!known || assay_h5_kind(d->file, path) != 'd')
                continue;
            assay_h5_info info;
            ASSAY_TRY(shape_of(&info, d, path));
            ASSAY_TRY(each_row(&known, d, s, name, &info, learn));
        }
    }
    d->is_mla = d->is_mla || d->sizes.of['L'] || d->sizes.of['C'];
    assay_sizes_close(&d->sizes, d->is_mla);
    take_hints(d);
    assay_sizes_close(&d->sizes, d->is_mla);
    return ASSAY_OK;
}

/* 16-bit words are of the format that attribute origin names; `rows`: only some were kept. */
static assay_status read_origin(dump *d, assay_entry *e, const char *path)
{
    const char *origin;
    ASSAY_TRY(assay_run_attr(&origin, d->run, d->file, path, "origin", "f32"));
    assay_dtype type = assay_dtype_from_name(origin);
    if (type == ASSAY_DTYPE_COUNT)
        return assay_fail(ASSAY_BAD_FILE, "'%s': origin '%s' is not a known number format", path,
                          origin);
    bool half = type == ASSAY_DTYPE_F16 || type == ASSAY_DTYPE_BF16;
    if (e->source.info.is_unsigned16 != half)
        return assay_fail(ASSAY_BAD_FILE, "'%s': origin '%s' does not fit the stored type", path,
                          origin);
    if (half)
        e->source.packed = type;
    if (!assay_point_at(e->seen.point)->is_ids)
        e->seen.origin = type;
    e->seen.has_values = H5Aexists_by_name(d->file, path, "rows", H5P_DEFAULT) <= 0;
    return ASSAY_OK;
}

/* The tensor beside it that is added. */
static assay_status add_second(dump *d, assay_entry *e)
{
    assay_source *second;
    const char *text;
    ASSAY_TRY(assay_alloc(&second, 1, sizeof *second, "source"));
    ASSAY_TRY(assay_run_keep(d->run, second));
    ASSAY_TRY(assay_run_text(&text, d->run, "%s.out1", e->source.path));
    second->path = (char *)text;
    second->file = e->source.file;
    second->packed = e->source.packed;
    ASSAY_TRY(shape_of(&second->info, d, text));
    if (second->info.count != e->source.info.count || !second->info.is_number)
        return assay_fail(ASSAY_BAD_FILE, "'%s' and '%s' do not have one shape", e->source.path,
                          text);
    e->second = second;
    return ASSAY_OK;
}

static int shard_axis(const assay_name_row *row)
{
    const char *axes = assay_point_at(row->point)->axes;
    const char *where = row->shard ? strchr(axes, row->shard) : NULL;
    if (row->shard == '-')
        return -1;
    return where ? (int)(where - axes) : ASSAY_SHARD_UNKNOWN;
}

static assay_status fill_entry(dump *d, int step, const char *path, const assay_name_row *row,
                               int layer, const assay_h5_info *info, const assay_plan *plan)
{
    assay_step_data *data = step_data(d, step);
    assay_entry *e;
    ASSAY_TRY(assay_step_add(&e, data));
    e->seen = assay_seen_blank();
    e->seen.point = row->point;
    e->seen.layer = layer;
    e->seen.rank = d->run->info.n_ranks > 1 ? d->run->files[d->index].rank : -1;
    e->shard_axis = shard_axis(row);
    e->source.file = d->index;
    e->seen.hand_over = row->hand_over;
    e->seen.n_dims = plan->n_out;
    e->seen.origin = info->dtype >= ASSAY_DTYPE_I8 ? ASSAY_DTYPE_I32 : d->run->info.dtype;
    e->seen.has_values = true;
    memcpy(e->seen.dims, plan->dims, sizeof plan->dims);
    e->plan = *plan;
    e->source.info = *info;
    e->source.packed = ASSAY_DTYPE_COUNT;
    if (d->is_capture)
        ASSAY_TRY(read_origin(d, e, path));
    const char *text;
    ASSAY_TRY(assay_run_text(&text, d->run, "%s", path));
    e->source.path = (char *)text;
    e->seen.source = strrchr(text, '/') + 1;
    return plan->adds_out1 ? add_second(d, e) : ASSAY_OK;
}

static assay_status map_row(dump *d, int step, const char *name, const assay_name_row *row,
                            int layer, const assay_h5_info *info)
{
    char path[1024];
    ASSAY_TRY(dataset_path(path, d, step, name));
    const assay_point_info *point = assay_point_at(row->point);
    bool is_ids = info->dtype >= ASSAY_DTYPE_I8 && info->dtype < ASSAY_DTYPE_COUNT &&
                  !(d->is_capture && info->is_unsigned16);
    if (point->per_layer != (layer >= 0))
        return assay_run_add_unmapped(d->run, "%s: %s", path,
                                      layer < 0 ? "the name does not say the layer"
                                                : "the name says a layer, the point has none");
    if (!info->is_number || (point->is_ids && !is_ids))
        return assay_run_add_unmapped(d->run, "%s: not %s", path,
                                      point->is_ids ? "whole numbers" : "real numbers");
    assay_plan plan;
    assay_status s = assay_layout_plan(&plan, &row->layout, point->axes, info->dims, info->n_dims,
                                       &d->sizes, &d->run->profile);
    if (s == ASSAY_BAD_SHAPE)
        return assay_run_add_unmapped(d->run, "%s: %s", path, assay_error_text());
    ASSAY_TRY(s);
    return fill_entry(d, step, path, row, layer, info, &plan);
}

/* Greedy id of the last row of a step's logits; -1 when it kept none. */
static assay_status argmax_of(int32_t *out, const dump *d, int step)
{
    const assay_step_data *data = &d->prompt->steps[step];
    *out = -1;
    for (int i = 0; i < data->n_entries; i++) {
        const assay_seen *seen = &data->entries[i].seen;
        if (seen->point != ASSAY_POINT_LOGITS || seen->hand_over)
            continue;
        int64_t rows = seen->dims[0], wide = seen->dims[1], best = 0;
        double *x;
        ASSAY_TRY(assay_alloc(&x, (size_t)(rows * wide), sizeof *x, "logits"));
        assay_status s = assay_run_read(x, d->run, seen);
        const double *last = x + (rows > 0 ? rows - 1 : 0) * wide;
        for (int64_t k = 1; s == ASSAY_OK && rows > 0 && k < wide; k++)
            if (last[k] > last[best] || isnan(last[best]))
                best = k;
        free(x);
        ASSAY_TRY(s);
        *out = (int32_t)best;
    }
    return ASSAY_OK;
}

/* Tokens of steps that do not say them: the prompt, then what greedy choice gives. */
static assay_status guess_tokens(dump *d)
{
    assay_prompt_data *p = d->prompt;
    int32_t *greedy;
    bool is_greedy = true, is_told = true;
    for (int s = 0; s < p->n_steps; s++)
        is_told = is_told && p->steps[s].about.tokens;
    if (is_told)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&greedy, (size_t)p->n_steps, sizeof *greedy, "tokens"));
    ASSAY_TRY(assay_run_keep(d->run, greedy));
    for (int s = 0; s < p->n_steps; s++) {
        assay_run_step *about = &p->steps[s].about;
        if (!about->tokens && s == 0 && p->about.n_tokens == about->n_tokens)
            about->tokens = p->about.tokens;
        if (!about->tokens && s > 0 && about->n_tokens == 1 && greedy[s - 1] >= 0)
            about->tokens = &greedy[s - 1];
        if (!p->about.greedy)
            ASSAY_TRY(argmax_of(&greedy[s], d, s));
        is_greedy = is_greedy && greedy[s] >= 0;
        if (s > 0 && about->tokens && greedy[s - 1] >= 0)
            is_greedy = is_greedy && about->n_tokens == 1 && about->tokens[0] == greedy[s - 1];
    }
    if (!p->about.greedy && is_greedy) {
        p->about.greedy = greedy;
        p->about.n_greedy = p->n_steps;
    }
    return ASSAY_OK;
}

static assay_status read_prompt(dump *d, const char *group)
{
    assay_run_prompt *about = &d->prompt->about;
    assay_run *run = d->run;
    const char *at = group[0] ? group : "/";
    ASSAY_TRY(assay_run_attr(&about->text, run, d->file, at, "text", NULL));
    ASSAY_TRY(assay_run_attr(&about->greedy_text, run, d->file, at, "greedy_text", NULL));
    ASSAY_TRY(assay_run_ids_attr(&about->greedy, &about->n_greedy, run, d->file, at, "greedy"));
    char path[1024];
    snprintf(path, sizeof path, "%.1000s/tokens", group);
    if (assay_h5_kind(d->file, path) == 'd') {
        int32_t *tokens;
        ASSAY_TRY(assay_h5_read_ids(&tokens, &about->n_tokens, d->file, path));
        about->tokens = tokens;
        return assay_run_keep(run, tokens);
    }
    return ASSAY_OK;
}

static assay_status map_step(dump *d, int step, int64_t *position)
{
    assay_step_data *data = step_data(d, step);
    bool found;
    /* a later step of several tokens is a further chunk of the prompt */
    data->about.is_prefill = step == d->first_step || data->about.n_tokens > 1;
    ASSAY_TRY(assay_h5_attr_int(position, &found, d->file, d->steps[step].group,
                                d->is_capture ? "first_position" : "position"));
    if (*position < 0 || *position > INT32_MAX || data->about.n_tokens > INT32_MAX)
        return assay_fail(ASSAY_BAD_FILE, "'%s': position %lld is out of range",
                          d->steps[step].group, (long long)*position);
    data->about.first_position = *position;
    d->sizes.of['T'] = data->about.n_tokens;
    d->sizes.of['S'] = *position + data->about.n_tokens;
    *position += data->about.n_tokens;
    const assay_h5_names *names = &d->steps[step].names;
    for (int i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        if (!strcmp(name, d->is_capture ? "tokens" : "input_tokens"))
            continue;
        char path[1024];
        bool known;
        ASSAY_TRY(dataset_path(path, d, step, name));
        if (assay_h5_kind(d->file, path) != 'd') {
            ASSAY_TRY(assay_run_add_unmapped(d->run, "%s: not a dataset", path));
            continue;
        }
        assay_h5_info info;
        ASSAY_TRY(shape_of(&info, d, path));
        ASSAY_TRY(each_row(&known, d, step, name, &info, map_row));
        if (!known)
            ASSAY_TRY(assay_run_add_unmapped(d->run, "%s: unknown name (nearest: %s)", path,
                                             assay_name_nearest(d->family, name)));
    }
    return ASSAY_OK;
}

static assay_status map_prompts(dump *d)
{
    int at = 0;
    for (int p = 0; p < d->run->n_prompts; p++) {
        d->prompt = &d->run->prompts[p];
        d->first_step = at;
        char group[1024];
        snprintf(group, sizeof group, "%s", d->n_steps ? d->steps[at].group : "");
        *strrchr(group, '/') = '\0';
        if (d->is_capture)
            *strrchr(group, '/') = '\0';
        if (d->index == 0)
            ASSAY_TRY(read_prompt(d, group));
        int64_t position = 0;
        for (int s = 0; s < d->prompt->n_steps; s++)
            ASSAY_TRY(map_step(d, at + s, &position));
        at += d->prompt->n_steps;
        if (d->index > 0)
            continue;
        ASSAY_TRY(guess_tokens(d));
        if (!d->prompt->about.tokens && d->prompt->n_steps) {
            d->prompt->about.tokens = d->prompt->steps[0].about.tokens;
            d->prompt->about.n_tokens =
                d->prompt->about.tokens ? d->prompt->steps[0].about.n_tokens : 0;
        }
    }
    return ASSAY_OK;
}

static void clear(dump *d)
{
    for (int i = 0; i < d->n_steps; i++)
        assay_h5_names_clear(&d->steps[i].names);
    free(d->steps);
    free(d->all);
}

static assay_status choose_profile(assay_run *run, const char *name)
{
    const assay_profile *profile =
        name ? assay_profile_find(name)
             : assay_profile_for(run->info.producer, run->info.model_class);
    if (!profile)
        return assay_fail(ASSAY_USAGE, "unknown profile '%s'", name);
    run->profile = *profile;
    return ASSAY_OK;
}

assay_status assay_run_open_foreign(assay_run *run, int file, const assay_run_options *options)
{
    dump d = {.run = run, .options = options, .file = run->files[file].id, .index = file};
    assay_status s;
    d.is_capture = assay_h5_kind(d.file, "/prompts") == 'g';
    assay_name_map *map = NULL;
    if (options->names)
        ASSAY_TRY(assay_name_map_open(&map, options->names));
    d.map = map;
    if (file == 0)
        ASSAY_GO(read_about(&d));
    ASSAY_GO(list_prompts(&d));
    if (d.n_listed != run->n_prompts) {
        s = assay_fail(ASSAY_BAD_FILE, "'%s' has %d prompts, '%s' has %d", run->files[file].path,
                       d.n_listed, run->files[0].path, run->n_prompts);
        goto out;
    }
    ASSAY_GO(unite_names(&d));
    recognise(&d);
    ASSAY_GO(choose_profile(run, options->profile));
    ASSAY_GO(learn_sizes(&d));
    ASSAY_GO(map_prompts(&d));
out:
    clear(&d);
    assay_name_map_close(map);
    return s;
}
