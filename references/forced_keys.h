/*
 * Keys that attention has read and the run did not keep. A value of fewer rows is put into the pass
 * with the oracle's own in the others (forced_part.h); what an engine had there is not known, and
 * differs by more than the rounding of one op: attention over such rows is not judged.
 */
#ifndef ASSAY_REFERENCES_FORCED_KEYS_H
#define ASSAY_REFERENCES_FORCED_KEYS_H

#include "references/forced.h"

/* Whether attention over the keys lies in the interval of a value: a NaN of a masked row may reach
 * any other (0 * NaN). */
bool assay_covers_attention(assay_pass *pass, int step, assay_point point, int layer);

/* Whether attention in the interval of a value reads keys, its own or an indexer's, that go back to
 * rows that were not kept. Keys that were kept whole go back to none. */
bool assay_lacks_keys(assay_pass *pass, const assay_run *run, int prompt, int step,
                      const assay_seen *seen);

#endif
