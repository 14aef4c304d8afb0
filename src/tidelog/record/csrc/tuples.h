/* records_to_tuples. */
#ifndef TIDELOG_TUPLES_H
#define TIDELOG_TUPLES_H

#include "arguments.h"
#include "columns.h"
#include "records.h"

enum { NAMES_MAX = 8, FIELDS_OF_A_ROW = 9 };

/* What the rows of a call have in common. Rows with equal timestamps share the number, and headers
 * at the same place of neighbouring records mostly have the same name: they share the string. */
typedef struct {
    PyTypeObject *type;
    allocfunc allocate;
    PyObject *topic, *partition, *no_headers; /* borrowed */
    PyObject *timestamp_type, *leader_epoch;  /* borrowed, of the part */
    PyObject *timestamp;
    int64_t timestamp_ms;
    Field name_fields[NAMES_MAX];
    PyObject *names[NAMES_MAX];
} Sharing;

static PyObject *share(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

static PyObject *shared_timestamp(Sharing *sharing, int64_t timestamp)
{
    if (sharing->timestamp == NULL || sharing->timestamp_ms != timestamp) {
        PyObject *number = PyLong_FromLongLong(timestamp);
        if (number == NULL)
            return NULL;
        Py_XDECREF(sharing->timestamp);
        sharing->timestamp = number;
        sharing->timestamp_ms = timestamp;
    }
    return share(sharing->timestamp);
}

static PyObject *decoded_name(const Field *field)
{
    return PyUnicode_DecodeUTF8((const char *)field->start, field->length, "replace");
}

static PyObject *shared_name(Sharing *sharing, int32_t place, const Field *field)
{
    if (place >= NAMES_MAX)
        return decoded_name(field);
    Field *known = &sharing->name_fields[place];
    if (sharing->names[place] == NULL || known->length != field->length ||
        memcmp(known->start, field->start, (size_t)field->length) != 0) {
        PyObject *name = decoded_name(field);
        if (name == NULL)
            return NULL;
        Py_XDECREF(sharing->names[place]);
        sharing->names[place] = name;
        *known = *field;
    }
    return share(sharing->names[place]);
}

INLINE PyObject *bytes_or_none(const Field *field)
{
    if (field->start == NULL)
        return share(Py_None);
    return PyBytes_FromStringAndSize((const char *)field->start, field->length);
}

static PyObject *header_pair(Sharing *sharing, int32_t place, const Field *key, const Field *value)
{
    PyObject *name = shared_name(sharing, place, key);
    PyObject *content = name != NULL ? bytes_or_none(value) : NULL;
    PyObject *pair = content != NULL ? PyTuple_New(2) : NULL;
    if (pair == NULL) {
        Py_XDECREF(name);
        Py_XDECREF(content);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, name);
    PyTuple_SetItem(pair, 1, content);
    PyObject_GC_UnTrack(pair);
    return pair;
}

static PyObject *header_tuple(Sharing *sharing, const Record *record)
{
    const uint8_t *at = record->headers;
    PyObject *headers = PyTuple_New(record->headers_count);
    for (int32_t place = 0; headers != NULL && place < record->headers_count; place++) {
        Field key, value;
        PyObject *pair = read_header(&at, record->end, &key, &value)
                             ? header_pair(sharing, place, &key, &value)
                             : malformed();
        if (pair == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SetItem(headers, place, pair);
    }
    if (headers != NULL)
        PyObject_GC_UnTrack(headers);
    return headers;
}

/* A row holds strings, numbers, bytes and tuples of them, so that no cycle can lead through it: it
 * need not occupy the garbage collector, which would visit millions of rows again and again. */
static PyObject *row_of(Sharing *sharing, const Record *record, int64_t offset, int64_t timestamp)
{
    PyObject *row = sharing->allocate(sharing->type, FIELDS_OF_A_ROW);
    if (row == NULL)
        return NULL;
    PyObject_GC_UnTrack(row);
    PyObject *items[FIELDS_OF_A_ROW] = {
        share(sharing->topic),
        share(sharing->partition),
        PyLong_FromLongLong(offset),
        shared_timestamp(sharing, timestamp),
        share(sharing->timestamp_type),
        bytes_or_none(&record->key),
        bytes_or_none(&record->value),
        LIKELY(record->headers_count == 0) ? share(sharing->no_headers)
                                           : header_tuple(sharing, record),
        share(sharing->leader_epoch),
    };
    int whole = 1;
    for (Py_ssize_t index = 0; index < FIELDS_OF_A_ROW; index++) {
        whole &= items[index] != NULL;
        PyTuple_SetItem(row, index, items[index]);
    }
    if (!whole)
        Py_CLEAR(row);
    return row;
}

/* 1, 0 for malformed records, -1 with an error set. */
static int append_rows(PyObject *rows, Sharing *sharing, const Part *part, int64_t first_offset)
{
    const uint8_t *at = part->view.buf, *end = at + part->view.len;
    Record record;
    for (int64_t index = 0; index < part->records_count; index++) {
        if (!read_checked_record(&at, end, &record))
            return 0;
        int64_t offset = add64(part->base_offset, record.offset_delta);
        if (offset < first_offset)
            continue;
        int64_t timestamp = part->has_append_time
                                ? part->append_time
                                : add64(part->base_timestamp, record.timestamp_delta);
        if (!append_and_release(rows, row_of(sharing, &record, offset, timestamp)))
            return -1;
    }
    return at == end;
}

/* The part inside (part, timestamp_type, leader_epoch), the other two borrowed. */
static int take_typed_part(PyObject *tuple, Part *part, Sharing *sharing)
{
    PyObject *items[3];
    if (!take_items(tuple, 3, items))
        return 0;
    sharing->timestamp_type = items[1];
    sharing->leader_epoch = items[2];
    if (!PyLong_Check(items[1]) || (items[2] != Py_None && !PyLong_Check(items[2]))) {
        PyErr_SetString(PyExc_TypeError, "timestamp_type is an int, leader_epoch too or None");
        return 0;
    }
    return take_part(items[0], part);
}

static int append_parts(PyObject *rows, Sharing *sharing, PyObject *list, int64_t first_offset)
{
    int64_t bytes = 0, ignored;
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t index = 0; index < count; index++) {
        Part part;
        if (!take_typed_part(PyList_GetItem(list, index), &part, sharing))
            return 0;
        int64_t part_bytes = part.view.len;
        int appended = -1;
        if (measure_parts(&part, 1, &ignored, &ignored))
            appended = append_rows(rows, sharing, &part, first_offset);
        /* Names are compared with those of the record before: not beyond the part's bytes. */
        for (int place = 0; place < NAMES_MAX; place++)
            Py_CLEAR(sharing->names[place]);
        PyBuffer_Release(&part.view);
        if (appended == 0)
            malformed();
        bytes += part_bytes;
        if (appended != 1)
            return 0;
        if (bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "records beyond 2 GiB");
            return 0;
        }
    }
    return 1;
}

/* ConsumerRecord of _results.py: a class of Python, so that users find methods and a type there. */
static PyTypeObject *row_type(void)
{
    static PyObject *type;
    if (type == NULL) {
        PyObject *module = PyImport_ImportModule("tidelog.record._results");
        type = module != NULL ? PyObject_GetAttrString(module, "ConsumerRecord") : NULL;
        Py_XDECREF(module);
    }
    return (PyTypeObject *)type;
}

static PyObject *kernel_records_to_tuples(PyObject *module, PyObject *const *arguments,
                                          Py_ssize_t given)
{
    (void)module;
    int64_t first_offset;
    Sharing sharing = {0};
    if (!count_arguments("records_to_tuples", given, 4, 4) ||
        !take_ints(arguments + 3, 1, &first_offset))
        return NULL;
    if (!PyUnicode_Check(arguments[1]) || !PyLong_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "topic is a str and partition an int");
        return NULL;
    }
    sharing.topic = arguments[1];
    sharing.partition = arguments[2];
    sharing.type = row_type();
    if (sharing.type == NULL)
        return NULL;
    sharing.allocate = (allocfunc)PyType_GetSlot(sharing.type, Py_tp_alloc);
    PyObject *list = PySequence_List(arguments[0]);
    PyObject *no_headers = list != NULL ? PyTuple_New(0) : NULL;
    PyObject *rows = no_headers != NULL ? PyList_New(0) : NULL;
    sharing.no_headers = no_headers;
    if (rows != NULL && !append_parts(rows, &sharing, list, first_offset))
        Py_CLEAR(rows);
    Py_XDECREF(sharing.timestamp);
    Py_XDECREF(no_headers);
    Py_XDECREF(list);
    return rows;
}

#endif
