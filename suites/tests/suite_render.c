#include "reports/render.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "forge_result.h"
#include "reports/text.h"

static const char golden_two[] =
    "FAIL  diagnose two.h5: 2 findings; 209 of 212 points judged; 1.5 s\n"
    " 1. BUFFER at blk.1.attn.proj: the output projection reads a buffer that the\n"
    "    attention kernel never wrote: every element is zero\n"
    "    last good point before it: blk.1.attn.kernel_out\n"
    " 2. FUSED-ORDER at blk.3.attn.q_a: the two parts of the fused projection stand\n"
    "    in the wrong order\n"
    "    last good point before it: blk.3.attn.in_norm\n"
    "\n"
    " 1. BUFFER, phantom output\n"
    "   where      blk.1.attn.proj\n"
    "              layer 1; steps 0-12; prompt count\n"
    "   op         output projection\n"
    "   error      relative 1, gain 0, floor 0.004\n"
    "   first bad  [0, 0]: got 0, expected 0.125\n"
    "   how sure   confidence 0.99; explains 100 % of the added error\n"
    "   evidence   3072 of 3072 elements are exactly zero\n"
    "              blk.1.attn.kernel_out is right\n"
    "   what to do hand the kernel's own output to its reader\n"
    "   see it     assay diagnose two.h5 --model glm5-tiny-bf16.gguf\n"
    "\n"
    " 2. FUSED-ORDER, parts exchanged\n"
    "   where      blk.3.attn.q_a\n"
    "              layer 3; step 0; prompts count, text\n"
    "   points     blk.3.attn.q_a, blk.3.attn.kv_a\n"
    "   op         q_a projection (part 0 of the fused q_a + kv_a)\n"
    "   error      relative 1.41, cosine -0.02, gain -0.03, floor 0.004\n"
    "   fitted     permutation [1, 0]\n"
    "   how sure   confidence 0.98; explains 99.98 % of the added error\n"
    "   what to do concatenate q_a before kv_a\n"
    "   see it     assay diagnose two.h5 --model glm5-tiny-bf16.gguf\n"
    "\n"
    "notes\n"
    " - same model: unproven, the dump has no hash\n";

START_TEST(text_first_lines_say_what_and_where)
{
    assay_result result;
    forge_result_two(&result);
    char *text = forge_rendered("text", &result, 80);
    ck_assert_str_eq(text, golden_two);
    char *line = text;
    for (int i = 0; i < 10 && line; i++)
        line = strchr(line, '\n') + 1;
    *line = '\0';
    ck_assert_ptr_nonnull(strstr(text, "BUFFER at blk.1.attn.proj"));
    ck_assert_ptr_nonnull(strstr(text, "FUSED-ORDER at blk.3.attn.q_a"));
    ck_assert_ptr_nonnull(strstr(text, "last good point before it: blk.3.attn.in_norm"));
    free(text);
    assay_result_clear(&result);
}
END_TEST

START_TEST(text_keeps_to_the_width_but_never_cuts_a_command)
{
    assay_result result;
    forge_result_two(&result);
    for (int width = 40; width <= 120; width += 8) {
        char *text = forge_rendered("text", &result, width), *rest = NULL;
        for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            if (!strstr(line, "assay diagnose"))
                ck_assert_msg(assay_text_width(line) <= width, "%d: %s", width, line);
            else
                ck_assert_ptr_nonnull(strstr(line, "--model glm5-tiny-bf16.gguf"));
        free(text);
    }
    assay_result_clear(&result);
}
END_TEST

START_TEST(text_of_a_clean_run_lists_the_checks)
{
    assay_result result;
    forge_result_clean(&result);
    char *text = forge_rendered("text", &result, 100);
    ck_assert_str_eq(text, "PASS  check glm5-tiny-Q4_K_M.gguf: nothing found; 1 of 1 checks "
                           "passed, 1 skipped; 212 of 212 points\n"
                           "      judged; 18.2 s\n"
                           "\n"
                           "check  verdict  seconds  what was seen\n"
                           "path   PASS         0.2  latent = expanded, worst 3.1e-6\n"
                           "graph  SKIP         0.2  no GPU was asked for\n");
    free(text);
    assay_result_clear(&result);
}
END_TEST

START_TEST(text_has_color_only_when_asked_and_quiet_is_short)
{
    assay_result result;
    char *text = NULL;
    size_t n = 0;
    forge_result_two(&result);
    char *plain = forge_rendered("text", &result, 0);
    ck_assert_ptr_null(strchr(plain, '\033'));
    FILE *memory = open_memstream(&text, &n);
    EXPECT_OK(assay_renderer_find("text")->render(
        memory, &result, &(assay_render_options){.color = true, .quiet = true}));
    fclose(memory);
    ck_assert_ptr_nonnull(strstr(text, "\033[1;31mFAIL\033[0m"));
    ck_assert_ptr_null(strstr(text, "evidence"));
    free(text);
    free(plain);
    assay_result_clear(&result);
}
END_TEST

START_TEST(text_of_strangers_cannot_drive_the_terminal)
{
    assay_result result;
    forge_result_hostile(&result);
    char *text = forge_rendered("text", &result, 80);
    for (const char *p = text; *p;) {
        uint32_t code = assay_text_next(&p);
        ck_assert_msg(code == '\n' || (code >= 0x20 && (code < 0x7F || code >= 0xA0)),
                      "control character U+%04X", code);
        ck_assert_uint_ne(code, 0x202E);
    }
    free(text);
    assay_result_clear(&result);
}
END_TEST

START_TEST(text_decoder_replaces_what_is_not_utf8)
{
    static const struct {
        const char *in, *out;
    } rows[] = {{"caf\xc3\xa9", "caf\xc3\xa9"},
                {"\xff", "\xef\xbf\xbd"},
                {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *out = assay_text_utf8(rows[i].in);
        ck_assert_str_eq(out, rows[i].out);
        free(out);
    }
}
END_TEST

/* Runs a program; true when it exits with 0. *missing: it is not installed. */
static bool runs(bool *missing, char *const argv[])
{
    pid_t pid = fork();
    if (!pid) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(126);
        execvp(argv[0], argv);
        _exit(127);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    *missing = WIFEXITED(status) && (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 77);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char validator[] =
    "import sys, json\n"
    "try:\n"
    "    import jsonschema\n"
    "except ImportError:\n"
    "    sys.exit(77)\n"
    "jsonschema.validate(json.load(open(sys.argv[1])), json.load(open(sys.argv[2])))\n";

static void expect_valid_json(const char *folder, const char *file, const char *schema)
{
    char path[1024];
    bool missing;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    bool good =
        runs(&missing, (char *[]){"python3", "-c", (char *)validator, path, (char *)schema, NULL});
    ck_assert_msg(good || missing, "%s does not validate", path);
}

static void expect_valid_xml(const char *folder)
{
    char path[1024];
    bool missing, good;
    const char *schema = data_large("schemas/JUnit.xsd");
    snprintf(path, sizeof path, "%s/junit.xml", folder);
    if (schema)
        good = runs(&missing,
                    (char *[]){"xmllint", "--noout", "--schema", (char *)schema, path, NULL});
    else
        good = runs(&missing, (char *[]){"xmllint", "--noout", path, NULL});
    ck_assert_msg(good || missing, "%s does not validate", path);
}

static void source_file(char out[512], const char *name)
{
    const char *dir = getenv("ASSAY_SOURCE_DIR");
    snprintf(out, 512, "%s/%s", dir ? dir : ".", name);
}

static void expect_valid(void (*forge)(assay_result *), const char *name)
{
    assay_result result;
    char schema[512], folder[512];
    forge(&result);
    snprintf(folder, sizeof folder, "%s", data_scratch(name));
    EXPECT_OK(assay_render_folder(folder, &result, &(assay_render_options){0}));
    source_file(schema, "reports/result.schema.json");
    expect_valid_json(folder, "result.json", schema);
    const char *sarif = data_large("schemas/sarif-schema-2.1.0.json");
    if (sarif)
        expect_valid_json(folder, "report.sarif", sarif);
    expect_valid_xml(folder);
    assay_result_clear(&result);
}

static void forge_empty(assay_result *result)
{
    EXPECT_OK(assay_result_init(result, "compare"));
}

START_TEST(every_format_is_valid_for_an_independent_validator)
{
    expect_valid(forge_result_two, "two");
    expect_valid(forge_result_clean, "clean");
    expect_valid(forge_empty, "empty");
    expect_valid(forge_result_hostile, "hostile");
}
END_TEST

START_TEST(folder_holds_every_file_and_no_leftover)
{
    assay_result result;
    forge_result_two(&result);
    char folder[512], path[1024];
    snprintf(folder, sizeof folder, "%s", data_scratch("folder"));
    for (int twice = 0; twice < 2; twice++)
        EXPECT_OK(assay_render_folder(folder, &result, &(assay_render_options){0}));
    int n = 0;
    snprintf(path, sizeof path, "ls -A %s | wc -l", folder);
    FILE *pipe = popen(path, "r");
    ck_assert_int_eq(fscanf(pipe, "%d", &n), 1);
    pclose(pipe);
    ck_assert_int_eq(n, assay_renderer_count());
    snprintf(path, sizeof path, "%s/more/folders", folder);
    EXPECT_OK(assay_render_folder(path, &result, &(assay_render_options){0}));
    snprintf(path, sizeof path, "%s/result.json/folder", folder);
    EXPECT_FAILS(ASSAY_IO, assay_render_folder(path, &result, &(assay_render_options){0}));
    EXPECT_SAYS("result.json/folder");
    assay_result_clear(&result);
}
END_TEST

START_TEST(junit_counts_findings_as_failures_and_open_rows_as_errors)
{
    assay_result result;
    forge_result_hostile(&result);
    char *text = forge_rendered("junit", &result, 0);
    ck_assert_ptr_nonnull(strstr(text, "tests=\"4\" failures=\"2\" errors=\"1\" skipped=\"1\""));
    free(text);
    assay_result_clear(&result);
    forge_empty(&result);
    text = forge_rendered("junit", &result, 0);
    ck_assert_ptr_nonnull(strstr(text, "tests=\"1\" failures=\"0\" errors=\"1\""));
    free(text);
    assay_result_clear(&result);
}
END_TEST

START_TEST(sarif_names_the_capture_and_the_point)
{
    assay_result result;
    forge_result_two(&result);
    char *text = forge_rendered("sarif", &result, 0);
    json_t *json = json_loads(text, 0, NULL), *run, *first;
    run = json_array_get(json_object_get(json, "runs"), 0);
    first = json_array_get(json_object_get(run, "results"), 0);
    const char *uri = NULL, *point = NULL, *rule = NULL;
    ck_assert_int_eq(json_unpack(first, "{s:s, s:[{s:{s:{s:s}}, s:[{s:s}]}]}", "ruleId", &rule,
                                 "locations", "physicalLocation", "artifactLocation", "uri", &uri,
                                 "logicalLocations", "fullyQualifiedName", &point),
                     0);
    ck_assert_str_eq(rule, "BUFFER");
    ck_assert_str_eq(uri, "runs/two.h5");
    ck_assert_str_eq(point, "blk.1.attn.proj");
    json_decref(json);
    free(text);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("render", text_first_lines_say_what_and_where,
            text_keeps_to_the_width_but_never_cuts_a_command, text_of_a_clean_run_lists_the_checks,
            text_has_color_only_when_asked_and_quiet_is_short,
            text_of_strangers_cannot_drive_the_terminal, text_decoder_replaces_what_is_not_utf8,
            every_format_is_valid_for_an_independent_validator,
            folder_holds_every_file_and_no_leftover,
            junit_counts_findings_as_failures_and_open_rows_as_errors,
            sarif_names_the_capture_and_the_point)
