#include "suites/check.h"

/* The engine of this version is one rank: asked for more, the row says so and is no pass. */
assay_status assay_check_ranks(assay_check_row *row, assay_check_context *context)
{
    if (context->options->n_ranks < 2)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "one rank (--ranks N)");
    return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE,
                           "the engine runs on one rank only; row shards judges the cut of the "
                           "weights for %d",
                           context->options->n_ranks);
}
