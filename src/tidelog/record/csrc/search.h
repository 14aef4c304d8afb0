/* find_offset, find_timestamp, find_record. */
#ifndef TIDELOG_SEARCH_H
#define TIDELOG_SEARCH_H

#include "arguments.h"
#include "batches.h"

static PyObject *find_batch(PyObject *buffer, int64_t position, int64_t end, int64_t target_offset,
                            int64_t target_timestamp)
{
    Py_buffer view;
    Batch batch;
    int64_t found = 0;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!require_range(&view, position, end)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    while (position < end) {
        int why = read_batch(view.buf, position, end, &batch);
        if (why != AT_END) {
            found = why == INCOMPLETE ? 0 : -1;
            break;
        }
        if (batch.last_offset >= target_offset && batch.max_timestamp >= target_timestamp) {
            found = 1;
            break;
        }
        position += batch.size;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    int64_t values[5] = {found, position, 0, 0, 0};
    if (found == 1) {
        values[2] = batch.size;
        values[3] = batch.base_offset;
        values[4] = batch.last_offset;
    }
    return tuple_of_ints(values, 5);
}

static PyObject *kernel_find_offset(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    int64_t numbers[3];
    if (!count_arguments("find_offset", given, 4, 4) || !take_ints(arguments + 1, 3, numbers))
        return NULL;
    return find_batch(arguments[0], numbers[0], numbers[1], numbers[2], INT64_MIN);
}

static PyObject *kernel_find_timestamp(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    int64_t numbers[4];
    if (!count_arguments("find_timestamp", given, 5, 5) || !take_ints(arguments + 1, 4, numbers))
        return NULL;
    return find_batch(arguments[0], numbers[0], numbers[1], numbers[3], numbers[2]);
}

static PyObject *kernel_find_record(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[5];
    if (!count_arguments("find_record", given, 6, 6) || !take_ints(arguments + 1, 5, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf, *end = at + view.len;
    int64_t answer[2];
    int found = 0, fits = numbers[0] >= 0;
    Record record;
    for (int64_t index = 0; fits && !found && index < numbers[0]; index++) {
        fits = read_checked_record(&at, end, &record);
        if (fits) {
            answer[0] = add64(numbers[1], record.offset_delta);
            answer[1] = add64(numbers[2], record.timestamp_delta);
            found = answer[1] >= numbers[3] && answer[0] >= numbers[4];
        }
    }
    if (fits && !found)
        fits = at == end;
    PyBuffer_Release(&view);
    if (!fits)
        return malformed();
    if (found)
        return tuple_of_ints(answer, 2);
    Py_RETURN_NONE;
}

#endif
