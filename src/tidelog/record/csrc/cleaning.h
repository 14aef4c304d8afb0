/* What map_batches and filter_batches have in common: the walk over whole batches in order, and the
 * verdicts on those that belong to transactions. */
#ifndef TIDELOG_CLEANING_H
#define TIDELOG_CLEANING_H

#include "batches.h"
#include "messages.h"
#include "offset_map.h"

enum { NEEDS_INFLATION = 11, MAP_FULL = 12, OUTPUT_FULL = 13, TOO_FEW_VERDICTS = -2 };
enum { FILTER_RECORDS, DELETE_BATCH, EMPTY_BATCH, KEEP_BATCH, SET_HORIZON };
enum { APPEND_TIME_BIT = 0x08, TRANSACTION_BITS = 0x30, CONTROL_BIT = 0x20, HORIZON_BIT = 0x40 };

typedef struct {
    const uint8_t *data;
    int64_t position, end, next_offset, verify_crc;
    const uint8_t *verdicts;
    int64_t verdicts_count, verdicts_used;
} Walker;

/* The batch at the walker's position, whole and sound; or why there is none. */
static int next_batch(const Walker *walker, Batch *batch)
{
    int why = read_batch(walker->data, walker->position, walker->end, batch);
    if (why != AT_END)
        return why;
    if (batch->size > walker->end - walker->position)
        return INCOMPLETE;
    if (walker->verify_crc && !crc_holds(walker->data, batch))
        return BAD_CRC;
    if (batch->base_offset < walker->next_offset || batch->last_offset < batch->base_offset ||
        batch->last_offset == INT64_MAX)
        return BAD_OFFSET;
    return AT_END;
}

INLINE int has_verdict(const Batch *batch)
{
    return batch->magic == 2 && (batch->attributes & TRANSACTION_BITS);
}

/* Only batches that belong to transactions have one of their own. */
static int verdict_on(const Walker *walker, const Batch *batch)
{
    if (!has_verdict(batch))
        return FILTER_RECORDS;
    if (walker->verdicts_used >= walker->verdicts_count)
        return TOO_FEW_VERDICTS;
    return walker->verdicts[walker->verdicts_used];
}

static void step_over(Walker *walker, const Batch *batch)
{
    walker->verdicts_used += has_verdict(batch);
    walker->next_offset = batch->last_offset + 1;
    walker->position += batch->size;
}

INLINE int offset_fits(const Batch *batch, const Record *record)
{
    return record->offset_delta >= 0 &&
           record->offset_delta <= batch->last_offset - batch->base_offset;
}

/* Key and value of an uncompressed message of an old format. */
static int read_message_fields(const uint8_t *at, const Batch *batch, Content *key, Content *value)
{
    const uint8_t *field = at + (batch->magic == 0 ? V0_FIELDS_AT : V1_FIELDS_AT);
    const uint8_t *end = at + batch->size;
    return read_sized(&field, end, key) && read_sized(&field, end, value);
}

static PyObject *too_few_verdicts(void)
{
    PyErr_SetString(PyExc_ValueError, "a transactional batch without a verdict");
    return NULL;
}

/* Takes the buffers of arguments[0], [1], ... in turn; the number of those taken. */
static int take_buffers(PyObject *const *arguments, const int *flags, int count, Py_buffer *views)
{
    int taken = 0;
    while (taken < count && PyObject_GetBuffer(arguments[taken], &views[taken], flags[taken]) == 0)
        taken++;
    return taken;
}

static void release_buffers(Py_buffer *views, int count)
{
    while (count > 0)
        PyBuffer_Release(&views[--count]);
}

#endif
