/* What map_batches and filter_batches have in common: the walk over whole batches in order, and the
 * verdicts on those that belong to transactions. */
#ifndef TIDELOG_CLEANING_H
#define TIDELOG_CLEANING_H

#include "batches.h"
#include "messages.h"
#include "offset_map.h"
#include "results.h"

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

/* A BatchWalk of _results.py, but for its two buffers. */
static int take_walk(PyObject *argument, Walker *walker, PyObject **buffer, PyObject **verdicts)
{
    PyObject *items[6];
    int64_t numbers[4];
    if (!take_items(argument, 6, items) || !take_ints(items + 2, 4, numbers))
        return 0;
    *buffer = items[0];
    *verdicts = items[1];
    walker->position = numbers[0];
    walker->end = numbers[1];
    walker->next_offset = numbers[2];
    walker->verify_crc = numbers[3];
    return 1;
}

/* A KeyOffsets of _results.py; its two buffers, slots and hash key, go to `buffers`. */
static int take_map(PyObject *argument, OffsetMap *map, int64_t *latest_offset, PyObject **buffers)
{
    PyObject *items[5];
    int64_t numbers[3];
    if (!take_items(argument, 5, items) || !take_ints(items + 2, 3, numbers))
        return 0;
    buffers[0] = items[0];
    buffers[1] = items[1];
    map->entries = numbers[0];
    map->entries_max = numbers[1];
    *latest_offset = numbers[2];
    return 1;
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
