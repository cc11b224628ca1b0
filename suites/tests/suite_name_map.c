/* Users' name maps, and a dump of an engine that no built-in row knows. */
#include "references/name_map.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "probes/hdf5_write.h"
#include "references/run.h"

static const char *write_map(const char *text)
{
    const char *path = data_scratch("map.yaml");
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    return path;
}

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "is empty"},
    {"- a\n", "line 1, column 1: expected the key 'maps'"},
    {"map:\n  - a\n", "line 1, column 1: unknown key (known: maps) 'map'"},
    {"maps: 3\n", "line 1, column 7: expected a list"},
    {"maps:\n  - 3\n", "line 2, column 5: expected a mapping"},
    {"maps:\n  - name: a\n    pint: embed\n", "line 3, column 5: unknown key"},
    {"maps:\n  - name: a\n    name: b\n", "line 3, column 5: a second 'name'"},
    {"maps:\n  - name: 'a('\n    point: embed\n", "line 2, column 11: regular expression 'a('"},
    {"maps:\n  - name: a\n    point: attn.qq\n", "nearest: attn.q"},
    {"maps:\n  - name: a\n", "line 2, column 5: a row needs either 'point or skip'"},
    {"maps:\n  - point: embed\n", "line 2, column 5: a row lacks its key 'name'"},
    {"maps:\n  - name: a\n    point: embed\n    skip: why\n", "not both"},
    {"maps:\n  - name: a\n    point: embed\n    axes: [T, D]\n",
     "line 4, column 11: expected a text"},
    {"maps:\n  - name: a\n    point: embed\n    axes: td\n", "axes 'td'"},
    {"maps:\n  - name: a\n    point: embed\n    axes: TD\n    take: D[\n", "take 'D['"},
    {"maps:\n  - name: a\n    point: embed\n    order: sideways\n", "order 'sideways' is unknown"},
    {"maps:\n  - name: a\n    point: embed\n    hand_over: -1\n", "hand_over must be"},
    {"maps:\n  - name: a\n    point: embed\n    shard: heads\n", "shard must be"},
    {"maps:\n  - name: a\n    point: embed\n    skip: ''\n", "skip needs a reason"},
    {"maps:\n  - name: a\n  point: [\n", "line"},
    {"maps:\n  - name: *x\n", "line 2"},
};

START_TEST(name_map_refuses_mistakes_with_line_and_column)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *path = write_map(wrong[i].text);
        assay_name_map *map;
        assay_status s = assay_name_map_open(&map, path);
        ck_assert_msg(s == ASSAY_BAD_FILE, "map %zu (%s): status %d", i, wrong[i].says, (int)s);
        EXPECT_SAYS(wrong[i].says);
        EXPECT_SAYS("map.yaml");
    }
    assay_name_map *map;
    EXPECT_FAILS(ASSAY_IO, assay_name_map_open(&map, "/nowhere/map.yaml"));
}
END_TEST

static const assay_name_row *match(int *layer, const assay_name_map *map, int index,
                                   const char *name)
{
    const assay_name_row *row;
    EXPECT_OK(assay_name_map_match(&row, layer, map, index, name));
    return row;
}

START_TEST(name_map_matches_whole_names_and_takes_the_layer)
{
    assay_name_map *map;
    EXPECT_OK(assay_name_map_open(&map, write_map("maps:\n"
                                                  "  - name: 'dec\\.(\\d+)\\.q'\n"
                                                  "    point: attn.q\n"
                                                  "  - name: '.*'\n"
                                                  "    skip: other things\n")));
    int layer;
    ck_assert_int_eq(assay_name_map_count(map), 2);
    const assay_name_row *row = match(&layer, map, 0, "dec.12.q");
    ck_assert_ptr_nonnull(row);
    ck_assert_int_eq(row->point, ASSAY_POINT_Q);
    ck_assert_int_eq(layer, 12);
    ck_assert_ptr_null(match(&layer, map, 0, "dec.12.qq"));
    ck_assert_ptr_null(match(&layer, map, 0, "x.dec.12.q"));
    ck_assert_ptr_null(match(&layer, map, 0, "dec.999999.qx"));
    row = match(&layer, map, 1, "anything");
    ck_assert_str_eq(row->reason, "other things");
    assay_name_map_close(map);
    assay_name_map_close(NULL);
}
END_TEST

START_TEST(name_map_bounds_patterns_that_never_end)
{
    assay_name_map *map;
    EXPECT_OK(
        assay_name_map_open(&map, write_map("maps:\n  - name: '(a+)+b'\n    point: embed\n")));
    int layer;
    ck_assert_ptr_null(match(&layer, map, 0, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac"));
    assay_name_map_close(map);
}
END_TEST

/* An engine with names of its own: queries [H, T, K] half-split on the last R, by the map. */
START_TEST(name_map_reads_a_dump_that_no_built_in_row_knows)
{
    const char *path = data_scratch("own.h5");
    assay_h5_quiet();
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    float q[2 * 3 * 6], kv[3 * 5], latent[3];
    for (int i = 0; i < 36; i++)
        q[i] = (float)i;
    for (int i = 0; i < 15; i++)
        kv[i] = (float)i;
    memset(latent, 0, sizeof latent);
    static const int32_t tokens[3] = {1, 2, 3};
    EXPECT_OK(assay_h5_make_group(file, "/step0000"));
    EXPECT_OK(assay_h5_put_dataset(file, "/step0000/input_tokens", H5T_NATIVE_INT32, 1,
                                   (int64_t[]){3}, tokens));
    EXPECT_OK(assay_h5_put_dataset(file, "/step0000/dec.4.q", H5T_NATIVE_FLOAT, 3,
                                   (int64_t[]){2, 3, 6}, q));
    EXPECT_OK(assay_h5_put_dataset(file, "/step0000/dec.4.kv", H5T_NATIVE_FLOAT, 2,
                                   (int64_t[]){3, 5}, kv));
    EXPECT_OK(assay_h5_put_dataset(file, "/step0000/dec.4.latent", H5T_NATIVE_FLOAT, 2,
                                   (int64_t[]){3, 1}, latent));
    EXPECT_OK(
        assay_h5_put_dataset(file, "/step0000/junk", H5T_NATIVE_FLOAT, 1, (int64_t[]){3}, latent));
    H5Fclose(file);
    const char *map = write_map("maps:\n"
                                "  - name: 'dec\\.(\\d+)\\.q'\n"
                                "    point: attn.q_rope\n"
                                "    axes: HTK\n"
                                "    take: R=K[-R:]\n"
                                "    order: pairs-all\n"
                                "  - name: 'dec\\.(\\d+)\\.kv'\n"
                                "    point: attn.kv_a\n"
                                "  - name: 'dec\\.(\\d+)\\.latent'\n"
                                "    point: attn.kv_latent\n"
                                "  - name: junk\n"
                                "    skip: nothing of ours\n");
    assay_run_options options = assay_run_options_default();
    options.names = map;
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, &options));
    ck_assert_msg(assay_run_about(run)->n_unmapped == 0, "%s", assay_run_unmapped_at(run, 0));
    const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_Q_ROPE, 4);
    ck_assert_ptr_nonnull(seen);
    ck_assert_int_eq(seen->dims[2], 4);
    double x[24];
    EXPECT_OK(assay_run_read(x, run, seen));
    /* token 1, head 1: stored 26 ... 29 behind two nope channels 24, 25; half-split 26 27 | 28 29
     */
    static const double want[4] = {26, 28, 27, 29};
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(x[(1 * 2 + 1) * 4 + i], want[i]);
    assay_run_close(run);
    options.names = NULL;
    EXPECT_OK(assay_run_open(&run, &path, 1, &options));
    ck_assert_int_eq(assay_run_about(run)->n_unmapped, 4);
    assay_run_close(run);
}
END_TEST

EXPECT_MAIN("name_map", name_map_refuses_mistakes_with_line_and_column,
            name_map_matches_whole_names_and_takes_the_layer,
            name_map_bounds_patterns_that_never_end,
            name_map_reads_a_dump_that_no_built_in_row_knows)
