/*
 * VOCAB: no home of the forced pass shows it, since every op is right on the ids it got. It is
 * found where the ids of a prompt are compared with its text (reports/diagnose_vocab.c).
 */
#include "reports/home.h"
#include <math.h>

const assay_fault_kind assay_fault_kinds_vocab[] = {{.name = "token-shift",
                                                     .about = "the embedding of the next id",
                                                     .weakest = NAN,
                                                     .strongest = NAN,
                                                     .seam = ASSAY_SEAM_TOKEN_SHIFT,
                                                     .value = 1,
                                                     .home = "embed"},
                                                    {0}};

assay_status assay_fault_match_vocab(assay_home *home)
{
    (void)home;
    return ASSAY_OK;
}
