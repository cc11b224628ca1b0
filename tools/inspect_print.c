#include <stdio.h>
#include <string.h>

#include "tools/inspect.h"

#define TENSORS_SHOWN 24 /* without --verbose */

static const char *str(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text ? text : "unknown";
}

static long long num(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}

static void print_list(const char *open, const json_t *list, const char *close)
{
    const json_t *one;
    size_t i;
    fputs(open, stdout);
    json_array_foreach(list, i, one)
    {
        fputs(i ? ", " : "", stdout);
        json_dumpf(one, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    }
    fputs(close, stdout);
}

static void print_keys(const json_t *keys)
{
    const json_t *key;
    size_t i;
    printf("\nKeys\n");
    json_array_foreach(keys, i, key)
    {
        const json_t *value = json_object_get(key, "value");
        printf("  %-44s %-6s ", str(key, "name"), str(key, "type"));
        if (!json_is_array(value)) {
            json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
            putchar('\n');
            continue;
        }
        long long count = num(key, "count");
        printf("%lld x %s ", count, str(key, "element"));
        print_list("[", value, count > (long long)json_array_size(value) ? ", ...]\n" : "]\n");
    }
}

static void print_tensors(const json_t *tensors, bool verbose)
{
    const json_t *t;
    size_t i, n = json_array_size(tensors);
    printf("\nTensors (%zu; dimensions innermost first)\n", n);
    json_array_foreach(tensors, i, t)
    {
        if (!verbose && i == TENSORS_SHOWN && n > TENSORS_SHOWN + 1) {
            printf("  ... %zu more (--verbose)\n", n - i);
            break;
        }
        printf("  %-36s %-7s ", str(t, "name"), str(t, "type"));
        print_list("[", json_object_get(t, "ne"), "]");
        printf("  %lld bytes at %lld", num(t, "bytes"), num(t, "offset"));
        printf(num(t, "file") ? " of file %lld\n" : "\n", num(t, "file"));
    }
}

static void print_gguf(const json_t *found, bool verbose)
{
    const json_t *one;
    const char *name;
    size_t i;
    json_array_foreach(json_object_get(found, "files"), i, one)
    {
        printf("%s: GGUF v%lld, %lld bytes, data from byte %lld\n", str(one, "path"),
               num(found, "version"), num(one, "bytes"), num(one, "data_start"));
    }
    json_object_foreach((json_t *)json_object_get(found, "types"), name, one)
    {
        printf("  %-7s %5lld tensors %12lld bytes\n", name, num(one, "tensors"), num(one, "bytes"));
    }
    print_keys(json_object_get(found, "keys"));
    print_tensors(json_object_get(found, "tensors"), verbose);
}

static void print_points(const json_t *points)
{
    const json_t *p;
    size_t i;
    json_array_foreach(points, i, p)
    {
        printf("      %-30s ", str(p, "point"));
        print_list("[", json_object_get(p, "dims"), "]");
        printf(" %s", str(p, "origin"));
        if (json_object_get(p, "rank"))
            printf(", rank %lld", num(p, "rank"));
        if (json_object_get(p, "hand_over"))
            printf(", earlier by %lld", num(p, "hand_over"));
        if (json_object_get(p, "nonfinite"))
            printf(", %lld not finite", num(p, "nonfinite"));
        if (!json_is_true(json_object_get(p, "values")))
            printf(", statistics only");
        printf("  (%s)\n", str(p, "source"));
    }
}

static void print_step(size_t index, const json_t *step, const json_t *points)
{
    const json_t *p;
    size_t i, n_bare = 0;
    json_array_foreach(points, i, p)
    {
        n_bare += !json_is_true(json_object_get(p, "values"));
    }
    printf("    step %zu: %s of %lld token%s from position %lld, %zu values", index,
           str(step, "phase"), num(step, "n_tokens"), plural(num(step, "n_tokens")),
           num(step, "first_position"), json_array_size(points));
    if (n_bare)
        printf(", %zu of them as statistics only", n_bare);
    putchar('\n');
}

static void print_capture(const json_t *found, bool verbose)
{
    const json_t *p, *step, *note;
    size_t i, s;
    const char *version = json_string_value(json_object_get(found, "producer_version"));
    printf("%s: capture by %s%s%s, architecture %s, %s, path %s, %lld rank%s%s%s\n",
           str(found, "path"), str(found, "producer"), version && *version ? " " : "",
           version ? version : "", str(found, "architecture"), str(found, "dtype"),
           str(found, "attention_path"), num(found, "ranks"), num(found, "ranks") == 1 ? "" : "s",
           json_is_true(json_object_get(found, "reference")) ? ", a reference" : "",
           json_is_true(json_object_get(found, "complete")) ? "" : ", INCOMPLETE");
    printf("  model SHA-256 %s; profile %s; %lld datasets not mapped\n", str(found, "model_sha256"),
           str(found, "profile"), num(found, "unmapped"));
    json_array_foreach(json_object_get(found, "notes"), i, note)
    {
        printf("  %s\n", json_string_value(note));
    }
    json_array_foreach(json_object_get(found, "prompts"), i, p)
    {
        const json_t *steps = json_object_get(p, "steps");
        long long n_steps = (long long)json_array_size(steps);
        printf("  prompt '%s': %lld token%s, %lld step%s, %lld greedy id%s\n", str(p, "name"),
               num(p, "n_tokens"), plural(num(p, "n_tokens")), n_steps, plural(n_steps),
               num(p, "n_greedy"), plural(num(p, "n_greedy")));
        json_array_foreach(steps, s, step)
        {
            const json_t *points = json_object_get(step, "points");
            if (s < 3 || verbose)
                print_step(s, step, points);
            if (verbose)
                print_points(points);
        }
    }
}

void assay_inspect_print(const json_t *found, bool verbose)
{
    if (!strcmp(str(found, "kind"), "gguf"))
        print_gguf(found, verbose);
    else
        print_capture(found, verbose);
}
