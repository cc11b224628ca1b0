#include "references/names.h"

#include <ctype.h>
#include <string.h>

static const assay_name_row table[] = {
#define N(family, name, point, axes, take, order, hand_over, when)                                 \
    {ASSAY_FAMILY_##family,                                                                        \
     name,                                                                                         \
     ASSAY_POINT_##point,                                                                          \
     {axes, take, order},                                                                          \
     hand_over,                                                                                    \
     when,                                                                                         \
     NULL,                                                                                         \
     0},
#define S(family, name, reason)                                                                    \
    {ASSAY_FAMILY_##family, name, ASSAY_POINT_COUNT, {"", "", ""}, 0, NULL, reason, 0},
#include "references/names.def"
#undef N
#undef S
};

int assay_name_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_name_row *assay_name_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_name_count());
    return &table[index];
}

bool assay_name_matches(const char *pattern, const char *name, int *layer)
{
    *layer = -1;
    for (; *pattern; pattern++) {
        if (pattern[0] == '{' && pattern[1] == '}') {
            int n = 0, digits = 0;
            while (isdigit((unsigned char)*name) && digits++ < 6)
                n = n * 10 + (*name++ - '0');
            if (digits == 0 || digits > 5)
                return false;
            *layer = n;
            pattern++;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return *name == '\0';
}

bool assay_family_has(assay_family row, assay_family file)
{
    return row == file || (row == ASSAY_FAMILY_HF &&
                           (file == ASSAY_FAMILY_HF_MLA || file == ASSAY_FAMILY_HF_PLAIN));
}

/* Common beginning and end, with {} for the number's place: enough to offer the likely name. */
static size_t likeness(const char *a, const char *b)
{
    size_t n = 0, m = 0, la = strlen(a), lb = strlen(b), least = la < lb ? la : lb;
    while (n < least && (a[n] == b[n] || (a[n] == '{' && isdigit((unsigned char)b[n]))))
        n++;
    while (m < least - n && a[la - 1 - m] == b[lb - 1 - m])
        m++;
    return n + m;
}

const char *assay_name_nearest(assay_family family, const char *name)
{
    const char *best = "";
    size_t score = 0;
    for (int i = 0; i < assay_name_count(); i++) {
        size_t s = likeness(table[i].name, name);
        if (assay_family_has(table[i].family, family) && s > score) {
            score = s;
            best = table[i].name;
        }
    }
    return best;
}
