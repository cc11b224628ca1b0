/*
 * Writes $ASSAY_SEEDS/<target>/..., the first inputs of every fuzz target, made by the forgers of
 * the tests: the right files, and those that are wrong in one named way. (The forgers assert with
 * Check, so this is a Check program.)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "data.h"
#include "expect.h"
#include "forge_gguf.h"
#include "forge_mini.h"
#include "forge_packed.h"
#include "forge_result.h"
#include "forge_safetensors.h"
#include "forge_vocab.h"
#include "probes/capture.h"
#include "probes/hdf5_write.h"

static char at[4096];
static const char *root;

static const char *seed(const char *target, const char *name)
{
    snprintf(at, sizeof at, "%s/fuzz_%s", root, target);
    if (mkdir(at, 0777) && errno != EEXIST)
        abort();
    snprintf(at, sizeof at, "%s/fuzz_%s/%s", root, target, name);
    return at;
}

static void put(const char *target, const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(seed(target, name), "wb");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file))
        abort();
}

static void copy(const char *target, const char *name, const char *path)
{
    FILE *file = fopen(path, "rb");
    static char bytes[1 << 22];
    if (!file)
        abort();
    put(target, name, bytes, fread(bytes, 1, sizeof bytes, file));
    fclose(file);
}

static void models(void)
{
    forge_file file;
    forge_options plain = {0}, old = {.version = 2, .alignment = 64};
    forge_gguf_build(&file, &plain);
    forge_gguf_write(&file, seed("gguf", "plain"));
    forge_gguf_free(&file);
    forge_gguf_build(&file, &old);
    forge_gguf_write(&file, seed("gguf", "version2"));
    forge_gguf_free(&file);
    for (int kind = MINI_GLM_DSA; kind <= MINI_DEEPSEEK32; kind++) {
        char name[16];
        snprintf(name, sizeof name, "mini%d", kind);
        forge_plain m = {0};
        forge_mini(&m, (mini_kind)kind, 2);
        forge_plain_write(&m, seed("gguf", name));
    }
    for (int i = 0; i < forge_gguf_n_damages(); i++) {
        char path[4096], name[16];
        if (forge_gguf_damage(i)->file >= 0)
            continue;
        forge_gguf_damaged(path, sizeof path, forge_gguf_damage(i), data_scratch("."));
        snprintf(name, sizeof name, "damage%d", i);
        copy("gguf", name, path);
    }
}

static void vocabularies(void)
{
    static const char *const tokens[] = {"a",
                                         "b",
                                         "ab",
                                         "<0x0A>",
                                         "<c>",
                                         "\xC4\xA0",
                                         ("\xE2\x96\x81"
                                          "a")};
    static const float scores[] = {0, -1, -2, -3, -4, -5, -6};
    static const int32_t types[] = {1, 1, 1, 6, 3, 1, 1};
    static const char *const merges[] = {"a b"};
    for (int spm = 0; spm < 2; spm++) {
        forge_vocab v = {.model = spm ? "llama" : "gpt2", .pre = spm ? NULL : "gpt-2"};
        v.tokens = tokens, v.n_tokens = 7, v.types = types, v.n_types = 7;
        v.scores = scores, v.n_scores = spm ? 7 : 0;
        v.merges = merges, v.n_merges = spm ? 0 : 1;
        v.numbers[0].key = "unknown_token_id", v.numbers[0].value = 0;
        assay_tokenizer *tokenizer = NULL;
        assay_tokenizer_free(forge_vocab_tokenizer(&tokenizer, &v, NULL) ? NULL : tokenizer);
        copy("gguf", spm ? "vocabulary_spm" : "vocabulary_bpe", data_scratch("vocab.gguf"));
    }
}

static void checkpoints(void)
{
    forge_plain m = {0};
    forge_mini(&m, MINI_DEEPSEEK2, 2);
    const char *path = data_scratch("mini.gguf");
    forge_plain_write(&m, path);
    assay_gguf *file;
    assay_hparams hp;
    if (assay_gguf_open(&file, path) || assay_hparams_read(&hp, file))
        abort();
    forge_checkpoint c = {0};
    forge_checkpoint_of(&c, file, &hp, false);
    for (int fp8 = 0; fp8 < 2; fp8++) {
        char folder[4096], one[4200];
        snprintf(folder, sizeof folder, "%s", data_scratch(fp8 ? "fp8" : "f32"));
        mkdir(folder, 0777);
        forge_checkpoint_write(&c, folder, 1, fp8);
        snprintf(one, sizeof one, "%s/model.safetensors", folder);
        copy("safetensors", fp8 ? "fp8" : "f32", one);
    }
    forge_checkpoint_free(&c);
    assay_gguf_close(file);
    static const char index[] =
        "{\"metadata\": {\"total_size\": 4}, \"weight_map\": {\"a\": \"m-1.safetensors\"}}";
    put("safetensors_index", "plain", index, sizeof index - 1);
}

static void own_capture(const char *tier)
{
    static const assay_capture_about about = {
        .producer = "assay", .architecture = "glm-dsa", .dtype = "f32", .path = "latent"};
    assay_capture_options options = {.tier = tier};
    static const int32_t tokens[2] = {3, 4};
    float x[2][8] = {{1, -2, 3, 0, NAN, 5, 6, 7}};
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){2, 8});
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, seed("capture", tier), &about, &options));
    EXPECT_OK(assay_capture_prompt(c, "count", "Count", tokens, 2));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 2));
    EXPECT_OK(assay_capture_value(c, "embed", "TD", &b, ASSAY_DTYPE_F32, 1e-7));
    EXPECT_OK(assay_capture_value(c, "blk.0.out", "TD", &b, ASSAY_DTYPE_BF16, -1));
    EXPECT_OK(assay_capture_greedy(c, tokens, 2));
    EXPECT_OK(assay_capture_finish(c));
}

static void dump(const char *producer, const char *value, int n_dims, const int64_t *dims)
{
    hid_t file = H5Fcreate(seed("capture", producer), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    static const float zeros[16];
    static const int32_t tokens[2] = {3, 4};
    const int64_t two[] = {2};
    char path[128];
    EXPECT_OK(assay_h5_put_text(file, "/", "producer", producer));
    EXPECT_OK(assay_h5_put_text(file, "/", "dtype", "torch.float32"));
    EXPECT_OK(assay_h5_make_group(file, "/count"));
    EXPECT_OK(assay_h5_make_group(file, "/count/step0000"));
    EXPECT_OK(assay_h5_put_dataset(file, "/count/tokens", H5T_NATIVE_INT32, 1, two, tokens));
    EXPECT_OK(assay_h5_put_dataset(file, "/count/step0000/input_tokens", H5T_NATIVE_INT32, 1, two,
                                   tokens));
    snprintf(path, sizeof path, "/count/step0000/%s", value);
    EXPECT_OK(assay_h5_put_dataset(file, path, H5T_NATIVE_FLOAT, n_dims, dims, zeros));
    H5Fclose(file);
}

static void captures(void)
{
    own_capture("full");
    own_capture("stats");
    own_capture("sketch");
    own_capture("rows");
    copy("capture", "packed", seed("capture", "full"));
    forge_packed(seed("capture", "packed"), H5T_NATIVE_FLOAT);
    dump("transformers", "model.norm", 3, (int64_t[]){1, 2, 8});
    dump("llama.cpp", "l_out-0#0", 2, (int64_t[]){2, 8});
}

static void texts(void)
{
    static const char *const map =
        "maps:\n  - name: 'decoder\\.(\\d+)\\.attn\\.query'\n    point: attn.q_rope\n    axes: "
        "HTK\n"
        "    take: R=K[-R:]\n    order: pairs\n    hand_over: 0\n    shard: H\n"
        "  - name: '.*\\.rotary_emb'\n    skip: table of angles\n";
    static const char *const list =
        "checklist: ci\nabout: x\nchecks: [file, weights]\nranks: 2\nmax_kl: 0.1\nexpect:\n"
        "  - prompt: \"Count\"\n    text: \" 6\"\naccept:\n  - class: BUFFER\n    point: blk.*\n"
        "    reason: r\n    owner: o\n    expires: 2027-01-31\n";
    static const char *const words[] = {"layer=0,7,global point=attn.q*,moe.topk step=0-1",
                                        "phantom-output:layer=1,value=0.5",
                                        "file-order:layer=3,head=1,rank=0,step=2,sequence=0",
                                        "blk.3.attn.q_a.partial",
                                        "blk.3.attn.q.early1.rank2",
                                        "logits"};
    static const char *const spoken[] = {
        "\001Count from 6 to 10:", "\004<|endoftext|>\xE4\xBD\xA0\n", "\002\xFF\xFE 12345\t\t'S x"};
    put("name_map", "all", map, strlen(map));
    put("checklist", "all", list, strlen(list));
    char name[16];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        snprintf(name, sizeof name, "%zu", i);
        put("words", name, words[i], strlen(words[i]));
    }
    for (size_t i = 0; i < sizeof spoken / sizeof *spoken; i++) {
        snprintf(name, sizeof name, "%zu", i);
        put("text", name, spoken[i], strlen(spoken[i]));
    }
    put("archive", "array",
        "\x93NUMPY\x01\0\x46\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
        "            \n\0\0\0\0\0\0\0\0",
        88);
}

static void results(void)
{
    void (*const forges[])(assay_result *) = {forge_result_two, forge_result_clean,
                                              forge_result_hostile};
    for (int i = 0; i < 3; i++) {
        assay_result result;
        forges[i](&result);
        char name[16], *text = forge_rendered("json", &result, 100);
        snprintf(name, sizeof name, "%d", i);
        put("result", name, text, strlen(text));
        free(text);
        assay_result_clear(&result);
    }
}

START_TEST(seeds_are_written)
{
    root = getenv("ASSAY_SEEDS");
    ck_assert_msg(root != NULL, "ASSAY_SEEDS must name a folder");
    ck_assert(mkdir(root, 0777) == 0 || errno == EEXIST);
    models();
    vocabularies();
    checkpoints();
    captures();
    texts();
    results();
}
END_TEST

EXPECT_MAIN("seeds", seeds_are_written)
