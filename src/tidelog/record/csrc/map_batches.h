/* map_batches. */
#ifndef TIDELOG_MAP_BATCHES_H
#define TIDELOG_MAP_BATCHES_H

#include "cleaning.h"

typedef struct {
    Walker walker;
    OffsetMap map;
    int64_t start_offset, latest_offset, records;
} Mapping;

static int map_key(Mapping *mapping, const uint8_t *key, int64_t length, int64_t offset)
{
    if (key == NULL || offset < mapping->start_offset)
        return AT_END;
    if (!put_in_map(&mapping->map, key, length, offset))
        return MAP_FULL;
    mapping->latest_offset = offset;
    return AT_END;
}

static int map_records(Mapping *mapping, const Batch *batch)
{
    const uint8_t *at = mapping->walker.data + batch->position + HEADER_SIZE;
    const uint8_t *end = mapping->walker.data + batch->position + batch->size;
    Record record;
    if (batch->records_count < 0)
        return BAD_RECORDS;
    for (int64_t index = 0; index < batch->records_count; index++) {
        if (!read_checked_record(&at, end, &record) || !offset_fits(batch, &record))
            return BAD_RECORDS;
        int why = map_key(mapping, record.key.start, record.key.length,
                          batch->base_offset + record.offset_delta);
        if (why != AT_END)
            return why;
    }
    if (at != end)
        return BAD_RECORDS;
    mapping->records += batch->records_count;
    return AT_END;
}

static int map_message(Mapping *mapping, const Batch *batch)
{
    Content key, value;
    if (!read_message_fields(mapping->walker.data + batch->position, batch, &key, &value))
        return BAD_RECORDS;
    mapping->records++;
    return map_key(mapping, key.start, key.length, batch->base_offset);
}

static int map_batch(Mapping *mapping, const Batch *batch)
{
    int verdict = verdict_on(&mapping->walker, batch);
    if (verdict == TOO_FEW_VERDICTS)
        return TOO_FEW_VERDICTS;
    if (verdict != FILTER_RECORDS || batch->last_offset < mapping->start_offset)
        return AT_END;
    if (batch->attributes & 7)
        return NEEDS_INFLATION;
    return batch->magic == 2 ? map_records(mapping, batch) : map_message(mapping, batch);
}

static int map_all(Mapping *mapping)
{
    Walker *walker = &mapping->walker;
    Batch batch;
    while (walker->position < walker->end) {
        int why = next_batch(walker, &batch);
        if (why == AT_END)
            why = map_batch(mapping, &batch);
        if (why != AT_END)
            return why;
        if (batch.last_offset >= mapping->start_offset)
            mapping->latest_offset = batch.last_offset;
        step_over(walker, &batch);
    }
    return AT_END;
}

static PyObject *map_into(const Py_buffer *views, Mapping *mapping)
{
    Walker *walker = &mapping->walker;
    if (!require_range(&views[0], walker->position, walker->end) ||
        !open_map(&views[1], &views[2], &mapping->map))
        return NULL;
    walker->data = views[0].buf;
    walker->verdicts = views[3].buf;
    walker->verdicts_count = views[3].len;
    int why;
    Py_BEGIN_ALLOW_THREADS
    why = map_all(mapping);
    Py_END_ALLOW_THREADS
    if (why == TOO_FEW_VERDICTS)
        return too_few_verdicts();
    int64_t values[7] = {walker->position,       why,
                         walker->next_offset,    mapping->map.entries,
                         mapping->latest_offset, walker->verdicts_used,
                         mapping->records};
    return named_ints(&MAPPED, values, 7);
}

static PyObject *kernel_map_batches(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    static const int flags[4] = {PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_SIMPLE, PyBUF_SIMPLE};
    Py_buffer views[4];
    PyObject *buffers[4];
    Mapping mapping = {0};
    PyObject *answer = NULL;
    if (!count_arguments("map_batches", given, 3, 3) ||
        !take_walk(arguments[0], &mapping.walker, &buffers[0], &buffers[3]) ||
        !take_map(arguments[1], &mapping.map, &mapping.latest_offset, &buffers[1]) ||
        !take_ints(arguments + 2, 1, &mapping.start_offset))
        return NULL;
    int taken = take_buffers(buffers, flags, 4, views);
    if (taken == 4)
        answer = map_into(views, &mapping);
    release_buffers(views, taken);
    return answer;
}

#endif
