/* list_transactional. */
#ifndef TIDELOG_TRANSACTIONAL_H
#define TIDELOG_TRANSACTIONAL_H

#include "cleaning.h"
#include "scan.h"

#define TRANSACTIONAL_COLUMNS 7

static int note_transactional(const uint8_t *data, const Batch *batch, Bytes *rows)
{
    int64_t type, epoch;
    read_control(data + batch->position, batch, &type, &epoch);
    int64_t values[TRANSACTIONAL_COLUMNS] = {
        batch->last_offset, batch->attributes,    batch->producer_id, batch->producer_epoch,
        batch->base_timestamp, batch->records_count, type};
    uint8_t *place = grow(rows, sizeof values);
    if (place == NULL)
        return 0;
    memcpy(place, values, sizeof values);
    return 1;
}

static int list_transactional(const uint8_t *data, int64_t position, int64_t end, Bytes *rows)
{
    Batch batch;
    while (position < end && read_batch(data, position, end, &batch) == AT_END &&
           batch.size <= end - position) {
        if (has_verdict(&batch) && !note_transactional(data, &batch, rows))
            return 0;
        position += batch.size;
    }
    return 1;
}

static PyObject *kernel_list_transactional(PyObject *module, PyObject *const *arguments,
                                           Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[2];
    Bytes rows = {0};
    PyObject *answer = NULL;
    if (!count_arguments("list_transactional", given, 3, 3) ||
        !take_ints(arguments + 1, 2, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (require_range(&view, numbers[0], numbers[1])) {
        int done;
        Py_BEGIN_ALLOW_THREADS
        done = list_transactional(view.buf, numbers[0], numbers[1], &rows);
        Py_END_ALLOW_THREADS
        answer = done ? list_of_rows(&TRANSACTIONAL_BATCH, &rows, TRANSACTIONAL_COLUMNS) : PyErr_NoMemory();
    }
    free(rows.data);
    PyBuffer_Release(&view);
    return answer;
}

#endif
