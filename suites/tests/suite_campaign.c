/*
 * What a campaign says of itself: the verdict of its rates, and how many healthy runs it plans.
 */
#include "suites/campaign_private.h"

#include "data.h"
#include "expect.h"

#include <stdio.h>

#include "engine/quant.h"

static char model[600];
static assay_result result;

static assay_campaign *open_campaign(bool quick)
{
    assay_campaign *c;
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    const char *const models[] = {model};
    assay_campaign_options options = {.models = models, .n_models = 1, .quick = quick};
    EXPECT_OK(assay_campaign_new(&c, &options));
    return c;
}

/* As if every plant had been found and named. */
static assay_campaign *all_right(void)
{
    assay_campaign *c = open_campaign(true);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->trials[i].n_plants; k++) {
            assay_outcome *o = &c->outcomes[i];
            o->visible[k] = o->detected[k] = o->class_right[k] = true;
            o->n_findings++;
        }
    return c;
}

static const char *summary_of(const char *row)
{
    for (int i = 0; i < result.n_checks; i++)
        if (!strcmp(result.checks[i].name, row))
            return result.checks[i].summary;
    return "no such row";
}

static assay_verdict report(assay_campaign *c)
{
    EXPECT_OK(assay_result_init(&result, "faults"));
    EXPECT_OK(assay_campaign_report(&result, c));
    assay_campaign_free(c);
    return assay_result_verdict(&result);
}

START_TEST(a_campaign_whose_rates_hold_passes)
{
    ck_assert_int_eq(report(all_right()), ASSAY_VERDICT_PASS);
    assay_result_clear(&result);
}
END_TEST

START_TEST(one_false_alarm_fails_the_campaign)
{
    assay_campaign *c = all_right();
    int i = 0;
    while (c->trials[i].n_plants > 0)
        i++;
    c->outcomes[i].n_findings = 1;
    ck_assert_int_eq(report(c), ASSAY_VERDICT_FAIL);
    ck_assert_msg(strstr(summary_of("clean runs"), "1 false alarm in") != NULL, "%s",
                  summary_of("clean runs"));
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_rate_that_does_not_hold_fails_the_campaign)
{
    assay_campaign *c = all_right();
    for (int i = 0; i < c->n; i += 4)
        c->outcomes[i].class_right[0] = false;
    ck_assert_int_eq(report(c), ASSAY_VERDICT_FAIL);
    ck_assert(strstr(summary_of("class"), "at least 95 %") != NULL);
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_run_that_did_not_end_leaves_the_campaign_open)
{
    assay_campaign *c = all_right();
    c->outcomes[0].status = ASSAY_IO;
    ck_assert_int_eq(report(c), ASSAY_VERDICT_INCONCLUSIVE);
    assay_result_clear(&result);
}
END_TEST

/* Every type that can be encoded; some of their runs give nothing here, all of them in the
 * campaign. */
START_TEST(healthy_runs_are_planned_in_every_block_type)
{
    assay_campaign *c = open_campaign(false);
    int n_types = 0, n_clean = 0;
    for (int i = 0; i < assay_quant_count(); i++)
        n_types += assay_quant_at(i)->encode != NULL;
    ck_assert_int_eq(c->n_models, 1 + n_types);
    for (int i = 0; i < c->n; i++) {
        const assay_trial *t = &c->trials[i];
        assay_outcome o;
        n_clean += t->n_plants == 0;
        if (t->model == 0 || i % 7 != 3)
            continue;
        EXPECT_OK(assay_campaign_run_one(&o, c, t));
        ck_assert_msg(o.n_findings == 0, "%s: %s", c->models[t->model].name, o.first);
    }
    ck_assert_int_ge(n_clean, 60 + 4 * n_types);
    assay_campaign_free(c);
}
END_TEST

EXPECT_MAIN("campaign", a_campaign_whose_rates_hold_passes, one_false_alarm_fails_the_campaign,
            a_rate_that_does_not_hold_fails_the_campaign,
            a_run_that_did_not_end_leaves_the_campaign_open,
            healthy_runs_are_planned_in_every_block_type)
