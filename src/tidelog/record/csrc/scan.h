/* scan_log. */
#ifndef TIDELOG_SCAN_H
#define TIDELOG_SCAN_H

#include "arguments.h"
#include "batches.h"
#include "bytes.h"
#include "results.h"

typedef struct {
    int64_t values[11];
} Producer;

typedef struct {
    int64_t leader_epoch, base_offset;
} Epoch;

typedef struct {
    /* what does not change */
    const uint8_t *data;
    int64_t end, file_position, segment_base_offset, index_interval_bytes, verify_crc;
    int64_t batches_max, bytes_max;
    /* what moves with the walk */
    int64_t position, next_offset, bytes_since_last_index_entry, max_timestamp;
    int64_t offset_of_max_timestamp, last_time_index_timestamp, leader_epoch, batches_count;
    Bytes offset_index, time_index, epochs, producers;
} Scan;

static int note_producer(Scan *scan, const Batch *batch)
{
    Producer producer = {{batch->producer_id, batch->producer_epoch, batch->base_sequence, -1,
                          batch->base_offset, batch->last_offset, batch->max_timestamp,
                          batch->attributes, scan->file_position + batch->position, -1, -1}};
    if (batch->base_sequence != -1)
        producer.values[3] =
            (batch->base_sequence + (batch->last_offset - batch->base_offset)) & INT32_MAX;
    read_control(scan->data + batch->position, batch, &producer.values[9], &producer.values[10]);
    uint8_t *place = grow(&scan->producers, sizeof producer);
    if (place == NULL)
        return 0;
    memcpy(place, &producer, sizeof producer);
    return 1;
}

static int note_epoch(Scan *scan, const Batch *batch)
{
    Epoch epoch = {batch->leader_epoch, batch->base_offset};
    scan->leader_epoch = batch->leader_epoch;
    uint8_t *place = grow(&scan->epochs, sizeof epoch);
    if (place == NULL)
        return 0;
    memcpy(place, &epoch, sizeof epoch);
    return 1;
}

static int note_index_entry(Scan *scan, const Batch *batch)
{
    uint8_t *place = grow(&scan->offset_index, 8);
    if (place == NULL)
        return 0;
    store32(place, (uint32_t)sub64(batch->last_offset, scan->segment_base_offset));
    store32(place + 4, (uint32_t)(scan->file_position + batch->position));
    scan->bytes_since_last_index_entry = 0;
    if (scan->max_timestamp <= scan->last_time_index_timestamp)
        return 1;
    place = grow(&scan->time_index, 12);
    if (place == NULL)
        return 0;
    store64(place, (uint64_t)scan->max_timestamp);
    store32(place + 8,
            (uint32_t)sub64(scan->offset_of_max_timestamp, scan->segment_base_offset));
    scan->last_time_index_timestamp = scan->max_timestamp;
    return 1;
}

static int offsets_hold(const Scan *scan, const Batch *batch)
{
    return scan->next_offset <= batch->base_offset && batch->base_offset <= batch->last_offset &&
           batch->last_offset < INT64_MAX && batch->last_offset >= scan->segment_base_offset &&
           (uint64_t)sub64(batch->last_offset, scan->segment_base_offset) <= INT32_MAX &&
           scan->file_position <= INT32_MAX - batch->position;
}

static int note_batch(Scan *scan, const Batch *batch)
{
    if (batch->max_timestamp > scan->max_timestamp) {
        scan->max_timestamp = batch->max_timestamp;
        scan->offset_of_max_timestamp = batch->last_offset;
    }
    if (scan->bytes_since_last_index_entry > scan->index_interval_bytes &&
        !note_index_entry(scan, batch))
        return 0;
    scan->bytes_since_last_index_entry =
        add64(scan->bytes_since_last_index_entry, batch->size);
    if (batch->leader_epoch > scan->leader_epoch && !note_epoch(scan, batch))
        return 0;
    if (batch->producer_id >= 0 && !note_producer(scan, batch))
        return 0;
    scan->next_offset = batch->last_offset + 1;
    scan->batches_count++;
    scan->position += batch->size;
    return 1;
}

/* Why it stopped, or -1 when memory ran out. */
static int scan_batches(Scan *scan)
{
    Batch batch;
    while (scan->position < scan->end) {
        if (scan->batches_count >= scan->batches_max || scan->position >= scan->bytes_max)
            return AT_LIMIT;
        int why = read_batch(scan->data, scan->position, scan->end, &batch);
        if (why != AT_END)
            return why;
        if (batch.size > scan->end - scan->position)
            return INCOMPLETE;
        if (scan->verify_crc && !crc_holds(scan->data, &batch))
            return BAD_CRC;
        if (!offsets_hold(scan, &batch))
            return BAD_OFFSET;
        if (!note_batch(scan, &batch))
            return -1;
    }
    return AT_END;
}

/* Plain tuples where `result` is NULL. */
static PyObject *list_of_rows(const Result *result, const Bytes *bytes, Py_ssize_t columns)
{
    PyObject *list = PyList_New(0);
    const int64_t *rows = (const int64_t *)(const void *)bytes->data;
    size_t count = bytes->length / ((size_t)columns * sizeof(int64_t));
    for (size_t row = 0; list != NULL && row < count; row++) {
        const int64_t *values = rows + row * (size_t)columns;
        if (!append_and_release(list, result == NULL ? tuple_of_ints(values, columns)
                                                     : named_ints(result, values, columns)))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *bytes_of(const Bytes *bytes)
{
    const char *data = bytes->data ? (const char *)bytes->data : "";
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)bytes->length);
}

static PyObject *scan_answer(const Scan *scan, int why)
{
    int64_t state[9] = {scan->segment_base_offset,
                        scan->index_interval_bytes,
                        add64(scan->file_position, scan->position),
                        scan->next_offset,
                        scan->max_timestamp,
                        scan->offset_of_max_timestamp,
                        scan->bytes_since_last_index_entry,
                        scan->last_time_index_timestamp,
                        scan->leader_epoch};
    PyObject *values[8] = {PyLong_FromLongLong(scan->position),
                           PyLong_FromLong(why),
                           named_ints(&SCAN_STATE, state, 9),
                           PyLong_FromLongLong(scan->batches_count),
                           bytes_of(&scan->offset_index),
                           bytes_of(&scan->time_index),
                           list_of_rows(NULL, &scan->epochs, 2),
                           list_of_rows(&PRODUCER_BATCH, &scan->producers, 11)};
    return named_objects(&LOG_SCAN, values, 8);
}

static PyObject *kernel_scan_log(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    PyObject *items[9];
    int64_t end, state[9], limits[3];
    PyObject *answer = NULL;
    if (!count_arguments("scan_log", given, 6, 6) || !take_ints(arguments + 1, 1, &end) ||
        !take_items(arguments[2], 9, items) || !take_ints(items, 9, state) ||
        !take_ints(arguments + 3, 3, limits))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Scan scan = {.data = view.buf,
                 .end = end,
                 .segment_base_offset = state[0],
                 .index_interval_bytes = state[1],
                 .file_position = state[2],
                 .next_offset = state[3],
                 .max_timestamp = state[4],
                 .offset_of_max_timestamp = state[5],
                 .bytes_since_last_index_entry = state[6],
                 .last_time_index_timestamp = state[7],
                 .leader_epoch = state[8],
                 .verify_crc = limits[0],
                 .batches_max = limits[1],
                 .bytes_max = limits[2]};
    if (scan.file_position < 0) {
        PyErr_SetString(PyExc_ValueError, "file_position is negative");
    } else if (require_range(&view, 0, scan.end)) {
        int why;
        Py_BEGIN_ALLOW_THREADS
        why = scan_batches(&scan);
        Py_END_ALLOW_THREADS
        answer = why < 0 ? PyErr_NoMemory() : scan_answer(&scan, why);
    }
    free(scan.offset_index.data);
    free(scan.time_index.data);
    free(scan.epochs.data);
    free(scan.producers.data);
    PyBuffer_Release(&view);
    return answer;
}

#endif
