/*
 * A user's name map: rows as in names.def, from a YAML file. A name that one of these rows matches
 * is not looked up in names.def.
 *
 *     maps:
 *       - name: 'decoder\.(\d+)\.attn\.query'  # regular expression (PCRE2) over the whole name;
 *                                              # its first group is the layer
 *         point: attn.q_rope
 *         axes: HTK            # as it lies; left out: as the point (layout.h)
 *         take: R=K[-R:]
 *         order: pairs
 *         hand_over: 0
 *         shard: H             # axis split over ranks; none: replicated;
 *                              # left out: found out from the values
 *       - name: '.*\.rotary_emb'
 *         skip: table of angles
 *
 * Unknown and repeated keys, unknown points and layouts are refused with line and column.
 */
#ifndef ASSAY_REFERENCES_NAME_MAP_H
#define ASSAY_REFERENCES_NAME_MAP_H

#include "references/names.h"

typedef struct assay_name_map assay_name_map;

/* Fails: ASSAY_IO, ASSAY_BAD_FILE, ASSAY_NO_MEMORY. */
assay_status assay_name_map_open(assay_name_map **out, const char *path);
void assay_name_map_close(assay_name_map *map);
int assay_name_map_count(const assay_name_map *map);
/* *out: row `index`, or NULL: it does not match, or gives up on the name. *layer: of the first
 * group, -1 without one. Fails: ASSAY_NO_MEMORY. */
assay_status assay_name_map_match(const assay_name_row **out, int *layer, const assay_name_map *map,
                                  int index, const char *name);

#endif
