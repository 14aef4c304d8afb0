/* scan_log. */
#ifndef TIDELOG_SCAN_H
#define TIDELOG_SCAN_H

#include "arguments.h"
#include "batches.h"
#include "control.h"
#include "growing.h"

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
    int64_t start = scan->position;
    Batch batch;
    while (scan->position < scan->end) {
        if (scan->batches_count >= scan->batches_max || scan->position - start >= scan->bytes_max)
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

static PyObject *list_of_rows(const Bytes *bytes, Py_ssize_t columns)
{
    PyObject *list = PyList_New(0);
    const int64_t *rows = (const int64_t *)(const void *)bytes->data;
    size_t count = bytes->length / ((size_t)columns * sizeof(int64_t));
    for (size_t row = 0; list != NULL && row < count; row++)
        if (!append_and_release(list, tuple_of_ints(rows + row * (size_t)columns, columns)))
            Py_CLEAR(list);
    return list;
}

static PyObject *scan_answer(const Scan *scan, int why)
{
    PyObject *epochs = list_of_rows(&scan->epochs, 2);
    PyObject *producers = epochs == NULL ? NULL : list_of_rows(&scan->producers, 11);
    if (producers == NULL) {
        Py_XDECREF(epochs);
        return NULL;
    }
    return Py_BuildValue(
        "LiLLLLLLLy#y#NN", (long long)scan->position, why, (long long)scan->next_offset,
        (long long)scan->max_timestamp, (long long)scan->offset_of_max_timestamp,
        (long long)scan->bytes_since_last_index_entry, (long long)scan->last_time_index_timestamp,
        (long long)scan->leader_epoch, (long long)scan->batches_count,
        scan->offset_index.data ? (const char *)scan->offset_index.data : "",
        (Py_ssize_t)scan->offset_index.length,
        scan->time_index.data ? (const char *)scan->time_index.data : "",
        (Py_ssize_t)scan->time_index.length, epochs, producers);
}

static PyObject *kernel_scan_log(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[14];
    PyObject *answer = NULL;
    if (!count_arguments("scan_log", given, 15, 15) || !take_ints(arguments + 1, 14, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Scan scan = {.data = view.buf,
                 .position = numbers[0],
                 .end = numbers[1],
                 .file_position = numbers[2],
                 .segment_base_offset = numbers[3],
                 .next_offset = numbers[4],
                 .index_interval_bytes = numbers[5],
                 .bytes_since_last_index_entry = numbers[6],
                 .max_timestamp = numbers[7],
                 .offset_of_max_timestamp = numbers[8],
                 .last_time_index_timestamp = numbers[9],
                 .leader_epoch = numbers[10],
                 .verify_crc = numbers[11],
                 .batches_max = numbers[12],
                 .bytes_max = numbers[13]};
    if (scan.file_position < 0) {
        PyErr_SetString(PyExc_ValueError, "file_position is negative");
    } else if (require_range(&view, scan.position, scan.end)) {
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
