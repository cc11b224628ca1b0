/*
 * Every plantable kind on the shipped model: planted by the engine, captured, diagnosed: that
 * class, at its home, and no other.
 */
#include "data.h"
#include "expect.h"

#include <stdio.h>

#include "reports/diagnose.h"
#include "suites/campaign.h"

static assay_campaign *campaign;

/* One test process takes every fourth trial, so that four run beside each other. */
static void run_part(int part)
{
    char path[600];
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    const char *const models[] = {path};
    assay_campaign_options options = {.models = models, .n_models = 1, .quick = true};
    EXPECT_OK(assay_campaign_new(&campaign, &options));
    int n_plants = 0, n_clean = 0, n_wrong = 0;
    char wrong[2000] = "";
    size_t at = 0;
    for (int i = part; i < assay_campaign_n(campaign); i += 4) {
        const assay_trial *t = assay_campaign_trial(campaign, i);
        assay_outcome o;
        EXPECT_OK(assay_campaign_run_one(&o, campaign, t));
        ck_assert_double_gt(o.passes, 1);
        ck_assert_double_le(o.passes, ASSAY_DIAGNOSE_PASSES);
        n_clean += t->n_plants == 0;
        n_plants += t->n_plants;
        bool right = o.n_elsewhere == 0;
        for (int k = 0; k < t->n_plants; k++)
            right = right && (!o.visible[k] || o.class_right[k]);
        if (right)
            continue;
        n_wrong++;
        if (at < sizeof wrong - 400)
            at += (size_t)snprintf(wrong + at, sizeof wrong - at, "\n%s in layer %d: %s",
                                   t->n_plants ? t->plants[0].kind : "nothing planted",
                                   t->n_plants ? t->plants[0].layer : -1, o.first);
    }
    assay_campaign_free(campaign);
    ck_assert_int_gt(n_plants, 15);
    ck_assert_int_gt(n_clean, 0);
    ck_assert_msg(n_wrong == 0, "%d of %d plants are not named right:%s", n_wrong, n_plants, wrong);
}

START_TEST(planted_faults_are_named_with_class_and_place_first_quarter)
{
    run_part(0);
}
END_TEST

START_TEST(planted_faults_are_named_with_class_and_place_second_quarter)
{
    run_part(1);
}
END_TEST

START_TEST(planted_faults_are_named_with_class_and_place_third_quarter)
{
    run_part(2);
}
END_TEST

START_TEST(planted_faults_are_named_with_class_and_place_last_quarter)
{
    run_part(3);
}
END_TEST

START_TEST(every_class_has_a_definition_and_an_advice)
{
    ck_assert_int_eq(assay_fault_count(), 29);
    for (int i = 0; i < assay_fault_count(); i++) {
        const assay_fault *f = assay_fault_at(i);
        ck_assert(f->definition[0] && f->advice[0]);
        ck_assert_ptr_eq(assay_fault_find(f->name), f);
        for (const assay_fault_kind *k = f->kinds; k->name; k++) {
            int fault;
            ck_assert_ptr_eq(assay_fault_kind_find(k->name, &fault), k);
            ck_assert_int_eq(fault, i);
            ck_assert_msg(k->home && k->home[0], "kind %s has no home", k->name);
        }
    }
}
END_TEST

START_TEST(plants_are_read_with_their_selectors)
{
    assay_plant p;
    EXPECT_OK(assay_plant_parse(&p, "softmax-scale:layer=2,head=1,value=1.05"));
    ck_assert_str_eq(p.kind, "softmax-scale");
    ck_assert_int_eq(p.layer, 2);
    ck_assert_int_eq(p.head, 1);
    ck_assert_int_eq(p.step, -1);
    EXPECT_NEAR(p.value, 1.05, 1e-15);
    EXPECT_FAILS(ASSAY_USAGE, assay_plant_parse(&p, "file-ordr"));
    EXPECT_SAYS("nearest: file-order,");
    EXPECT_FAILS(ASSAY_USAGE, assay_plant_parse(&p, "file-order:depth=3"));
    EXPECT_SAYS("depth");
    EXPECT_FAILS(ASSAY_USAGE, assay_plant_parse(&p, "file-order:layer=x"));
    EXPECT_FAILS(ASSAY_USAGE, assay_plant_parse(&p, "file-order:layer"));
}
END_TEST

EXPECT_MAIN("faults", every_class_has_a_definition_and_an_advice,
            plants_are_read_with_their_selectors,
            planted_faults_are_named_with_class_and_place_first_quarter,
            planted_faults_are_named_with_class_and_place_second_quarter,
            planted_faults_are_named_with_class_and_place_third_quarter,
            planted_faults_are_named_with_class_and_place_last_quarter)
