/* crc32c, check_batch, check_records, list_batches. */
#ifndef TIDELOG_CHECK_H
#define TIDELOG_CHECK_H

#include "arguments.h"
#include "batches.h"
#include "results.h"

typedef uint32_t (*Crc)(uint32_t, const uint8_t *, size_t);

static PyObject *checksum_of(Crc update, PyObject *const *arguments, Py_ssize_t given)
{
    Py_buffer view;
    uint32_t crc = 0;
    if (!count_arguments("crc32c", given, 1, 2))
        return NULL;
    if (given == 2) {
        crc = (uint32_t)PyLong_AsUnsignedLongLongMask(arguments[1]);
        if (PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        crc = ~update(~crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    } else {
        crc = ~update(~crc, view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *kernel_crc32c(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    return checksum_of(crc32c_update, arguments, given);
}

/* What serves where the instruction is missing; by name, so that tests reach it everywhere. */
static PyObject *kernel_crc32c_by_table(PyObject *module, PyObject *const *arguments,
                                        Py_ssize_t given)
{
    (void)module;
    return checksum_of(crc32c_by_table, arguments, given);
}

static PyObject *header_problem(int status, int64_t size, int64_t magic)
{
    int64_t values[16] = {status, size, 0, magic};
    return tuple_of_ints(values, 16);
}

static PyObject *checked(const uint8_t *at, int64_t length)
{
    if (length < OVERHEAD)
        return header_problem(NO_BATCH, 0, 0);
    int64_t size = (int32_t)load32(at + 8);
    if (size < V0_SIZE_MIN)
        return header_problem(BAD_SIZE, 0, 0);
    size += OVERHEAD;
    if (length <= MAGIC_AT)
        return header_problem(NO_BATCH, 0, 0);
    if (at[MAGIC_AT] > 2)
        return header_problem(BAD_MAGIC, 0, 0);
    if (length < size)
        return header_problem(NO_BATCH, 0, 0);
    if (at[MAGIC_AT] < 2)
        return header_problem(OLD_FORMAT, size, at[MAGIC_AT]);
    if (size < HEADER_SIZE)
        return header_problem(BAD_SIZE, 0, 0);

    Batch batch;
    Walk walk = NOT_WALKED;
    int status;
    if (size > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        status = check_v2(at, size, &batch, &walk);
        Py_END_ALLOW_THREADS
    } else {
        status = check_v2(at, size, &batch, &walk);
    }
    int64_t values[16] = {status,
                          size,
                          batch.base_offset,
                          batch.magic,
                          batch.attributes,
                          (int32_t)load32(at + 23),
                          batch.base_timestamp,
                          batch.max_timestamp,
                          batch.producer_id,
                          batch.producer_epoch,
                          batch.base_sequence,
                          batch.records_count,
                          walk.min_timestamp,
                          walk.largest_timestamp,
                          walk.delta_of_largest,
                          walk.flags};
    return tuple_of_ints(values, 16);
}

static PyObject *kernel_check_batch(PyObject *module, PyObject *data)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = checked(view.buf, view.len);
    PyBuffer_Release(&view);
    return answer;
}

static PyObject *kernel_check_records(PyObject *module, PyObject *const *arguments,
                                      Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[2];
    Walk walk;
    int status;
    if (!count_arguments("check_records", given, 3, 3) || !take_ints(arguments + 1, 2, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf;
    Py_BEGIN_ALLOW_THREADS
    status = walk_records(at, at + view.len, numbers[0], numbers[1], &walk);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    int64_t values[5] = {status, walk.min_timestamp, walk.largest_timestamp, walk.delta_of_largest,
                         walk.flags};
    return tuple_of_ints(values, 5);
}

static int append_batch(PyObject *list, const Batch *batch)
{
    int64_t values[13] = {batch->position,       batch->size,          batch->magic,
                          batch->attributes,     batch->base_offset,   batch->last_offset,
                          batch->leader_epoch,   batch->base_timestamp, batch->max_timestamp,
                          batch->producer_id,    batch->producer_epoch, batch->base_sequence,
                          batch->records_count};
    return append_and_release(list, named_ints(&BATCH_ROW, values, 13));
}

static PyObject *kernel_list_batches(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[3];
    if (!count_arguments("list_batches", given, 4, 4) || !take_ints(arguments + 1, 3, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t position = numbers[0], end = numbers[1], batches_max = numbers[2];
    PyObject *rows = require_range(&view, position, end) ? PyList_New(0) : NULL;
    int why = AT_END;
    int64_t count = 0;
    while (rows != NULL && position < end) {
        Batch batch;
        if (count >= batches_max) {
            why = AT_LIMIT;
            break;
        }
        why = read_batch(view.buf, position, end, &batch);
        if (why == AT_END && batch.size > end - position)
            why = INCOMPLETE;
        if (why != AT_END)
            break;
        if (!append_batch(rows, &batch))
            Py_CLEAR(rows);
        position += batch.size;
        count++;
    }
    PyBuffer_Release(&view);
    if (rows == NULL)
        return NULL;
    return Py_BuildValue("LiN", (long long)position, why, rows);
}

#endif
