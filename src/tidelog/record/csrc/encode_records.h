/* encode_records: tuples of Python objects in. */
#ifndef TIDELOG_ENCODE_RECORDS_H
#define TIDELOG_ENCODE_RECORDS_H

#include "output.h"

#include <stdlib.h>

/* A Python object lent to a Content; bytes need no buffer. */
typedef struct {
    Content content;
    Py_buffer view;
    int held;
} Lent;

static int borrow(PyObject *object, Lent *lent)
{
    lent->held = 0;
    lent->content.start = NULL;
    lent->content.length = 0;
    if (object == Py_None)
        return 1;
    if (PyBytes_Check(object)) {
        lent->content.start = (const uint8_t *)PyBytes_AsString(object);
        lent->content.length = PyBytes_Size(object);
        return 1;
    }
    if (PyObject_GetBuffer(object, &lent->view, PyBUF_SIMPLE) < 0)
        return 0;
    lent->held = 1;
    lent->content.start = lent->view.len ? lent->view.buf : EMPTY;
    lent->content.length = lent->view.len;
    return 1;
}

static int borrow_name(PyObject *object, Lent *lent)
{
    if (PyUnicode_Check(object)) {
        Py_ssize_t length = 0;
        lent->held = 0;
        lent->content.start = (const uint8_t *)PyUnicode_AsUTF8AndSize(object, &length);
        lent->content.length = length;
        return lent->content.start != NULL;
    }
    if (object == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a header's name is None");
        return 0;
    }
    return borrow(object, lent);
}

static void give_back(Lent *lent)
{
    if (lent->held)
        PyBuffer_Release(&lent->view);
    lent->held = 0;
}

typedef struct {
    Lent key, value;
} LentHeader;

static void give_headers_back(LentHeader *headers, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        give_back(&headers[index].key);
        give_back(&headers[index].value);
    }
    free(headers);
}

static int borrow_header(PyObject *pair, LentHeader *header)
{
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_ValueError, "a header is a tuple of 2");
        return 0;
    }
    if (!borrow_name(PyTuple_GetItem(pair, 0), &header->key))
        return 0;
    if (!borrow(PyTuple_GetItem(pair, 1), &header->value)) {
        give_back(&header->key);
        return 0;
    }
    return 1;
}

/* `list` must outlive the headers: their bytes are not copied. */
static LentHeader *borrow_headers(PyObject *list, Py_ssize_t count, int64_t *size)
{
    LentHeader *headers = calloc((size_t)count + 1, sizeof *headers);
    *size = 0;
    if (headers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!borrow_header(PyList_GetItem(list, index), &headers[index])) {
            give_headers_back(headers, index);
            return NULL;
        }
        *size += content_size(&headers[index].key.content) +
                 content_size(&headers[index].value.content);
    }
    return headers;
}

static int write_record(Output *output, int64_t timestamp_delta, int64_t offset_delta,
                        const Content *key, const Content *value, const LentHeader *headers,
                        Py_ssize_t headers_count, int64_t headers_size)
{
    int64_t body_size =
        record_body_size(timestamp_delta, offset_delta, key, value, headers_count) + headers_size;
    uint8_t *at = reserve(output, body_size + 10);
    if (at == NULL)
        return 0;
    at = write_record_start(at, body_size, timestamp_delta, offset_delta, key, value,
                            headers_count);
    for (Py_ssize_t index = 0; index < headers_count; index++) {
        at = write_content(at, &headers[index].key.content);
        at = write_content(at, &headers[index].value.content);
    }
    output->used = at - output->start;
    return 1;
}

static int encode_with_headers(Output *output, int64_t timestamp_delta, int64_t offset_delta,
                               const Content *key, const Content *value, PyObject *sequence)
{
    Py_ssize_t count;
    int64_t size;
    PyObject *list = PySequence_List(sequence);
    if (list == NULL)
        return 0;
    count = PyList_Size(list);
    LentHeader *headers = borrow_headers(list, count, &size);
    int written = headers != NULL && write_record(output, timestamp_delta, offset_delta, key,
                                                  value, headers, count, size);
    if (headers != NULL)
        give_headers_back(headers, count);
    Py_DECREF(list);
    return written;
}

static int encode_record(Output *output, PyObject *record, int64_t offset_delta,
                         int64_t *base_timestamp, int64_t *max_timestamp)
{
    Lent key, value;
    if (!PyTuple_Check(record) || PyTuple_Size(record) != 4) {
        PyErr_SetString(PyExc_ValueError, "a record is a tuple of 4");
        return 0;
    }
    int64_t timestamp = PyLong_AsLongLong(PyTuple_GetItem(record, 3));
    if (timestamp == -1 && PyErr_Occurred())
        return 0;
    if (offset_delta == 0)
        *base_timestamp = timestamp;
    if (timestamp > *max_timestamp)
        *max_timestamp = timestamp;
    int64_t timestamp_delta = sub64(timestamp, *base_timestamp);
    if (!borrow(PyTuple_GetItem(record, 0), &key))
        return 0;
    if (!borrow(PyTuple_GetItem(record, 1), &value)) {
        give_back(&key);
        return 0;
    }
    PyObject *headers = PyTuple_GetItem(record, 2);
    int written;
    if ((PyTuple_Check(headers) && PyTuple_Size(headers) == 0) ||
        (PyList_Check(headers) && PyList_Size(headers) == 0))
        written = write_record(output, timestamp_delta, offset_delta, &key.content,
                               &value.content, NULL, 0, 0);
    else
        written = encode_with_headers(output, timestamp_delta, offset_delta, &key.content,
                                      &value.content, headers);
    give_back(&key);
    give_back(&value);
    return written;
}

static PyObject *kernel_encode_records(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    int64_t reserve_bytes, base_timestamp = -1, max_timestamp = -1;
    Output output;
    if (!count_arguments("encode_records", given, 2, 2) ||
        !take_ints(arguments + 1, 1, &reserve_bytes))
        return NULL;
    PyObject *list = PySequence_List(arguments[0]);
    if (list == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (!start_output(&output, reserve_bytes, count * 64)) {
        Py_DECREF(list);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        if (!encode_record(&output, PyList_GetItem(list, index), index, &base_timestamp,
                           &max_timestamp)) {
            Py_CLEAR(output.array);
            break;
        }
    Py_DECREF(list);
    if (output.array == NULL)
        return NULL;
    return finish_output(&output, base_timestamp, max_timestamp);
}

#endif
