/* encode_offset_commits: the records of one commit of a group, keys and values included. */
#ifndef TIDELOG_OFFSET_COMMITS_H
#define TIDELOG_OFFSET_COMMITS_H

#include "arguments.h"
#include "bytes.h"
#include "encode.h"

enum {
    KEY_TYPE = 1,
    VALUE_VERSION = 3,
    VALUE_VERSION_WITH_EXPIRY = 1,
    NO_EXPIRY = -1,
    STRING_BYTES_MAX = 32767,
    COMMIT_FIELDS = 7,
    RECORD_OVERHEAD_MAX = 40, /* varints, attributes, header count */
};

/* An int16 length and UTF-8, as the key and the value have them. */
static int borrow_string(PyObject *object, Content *content)
{
    Py_ssize_t length = 0;
    if (!PyUnicode_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "group, topic and metadata are strings");
        return 0;
    }
    content->start = (const uint8_t *)PyUnicode_AsUTF8AndSize(object, &length);
    content->length = length;
    if (content->start == NULL)
        return 0;
    if (length > STRING_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "a string of %zd bytes", length);
        return 0;
    }
    return 1;
}

INLINE uint8_t *write_string(uint8_t *at, const Content *content)
{
    store16(at, (uint16_t)content->length);
    memcpy(at + 2, content->start, (size_t)content->length);
    return at + 2 + content->length;
}

static int encode_offset_commit(Output *output, const Content *group, PyObject *row,
                                int64_t offset_delta)
{
    PyObject *items[COMMIT_FIELDS];
    Content topic, metadata;
    int64_t partition, offset, leader_epoch, commit_timestamp, expire_timestamp;
    if (!take_items(row, COMMIT_FIELDS, items) || !borrow_string(items[0], &topic) ||
        !take_number(items[1], 32, &partition) || !take_number(items[2], 64, &offset) ||
        !take_number(items[3], 32, &leader_epoch) || !borrow_string(items[4], &metadata) ||
        !take_number(items[5], 64, &commit_timestamp) ||
        !take_number(items[6], 64, &expire_timestamp))
        return 0;
    int expires = expire_timestamp != NO_EXPIRY;
    int64_t key_size = 10 + group->length + topic.length;
    int64_t value_size = 20 + metadata.length;
    value_size += expires ? 8 : 4;
    int64_t body_size = 2 + varint_size(offset_delta) + varint_size(key_size) + key_size +
                        varint_size(value_size) + value_size + 1;
    uint8_t *at = reserve(output, body_size + RECORD_OVERHEAD_MAX);
    if (at == NULL)
        return 0;
    at = write_varint(at, body_size);
    *at++ = 0; /* attributes */
    *at++ = 0; /* timestamp delta */
    at = write_varint(at, offset_delta);
    at = write_varint(at, key_size);
    store16(at, KEY_TYPE);
    at = write_string(at + 2, group);
    at = write_string(at, &topic);
    store32(at, (uint32_t)partition);
    at = write_varint(at + 4, value_size);
    store16(at, expires ? VALUE_VERSION_WITH_EXPIRY : VALUE_VERSION);
    store64(at + 2, (uint64_t)offset);
    at += 10;
    if (!expires) {
        store32(at, (uint32_t)leader_epoch);
        at += 4;
    }
    at = write_string(at, &metadata);
    store64(at, (uint64_t)commit_timestamp);
    at += 8;
    if (expires) {
        store64(at, (uint64_t)expire_timestamp);
        at += 8;
    }
    *at++ = 0; /* headers */
    output->used = at - output->start;
    return 1;
}

static PyObject *kernel_encode_offset_commits(PyObject *module, PyObject *const *arguments,
                                              Py_ssize_t given)
{
    (void)module;
    int64_t first_delta, reserve_bytes;
    Content group;
    Output output;
    if (!count_arguments("encode_offset_commits", given, 4, 4) ||
        !borrow_string(arguments[0], &group) || !take_number(arguments[2], 31, &first_delta) ||
        !take_ints(arguments + 3, 1, &reserve_bytes))
        return NULL;
    PyObject *rows = arguments[1];
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "rows are a list");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(rows);
    if (!start_output(&output, reserve_bytes, count * (group.length + 128)))
        return NULL;
    for (Py_ssize_t index = 0; index < count; index++)
        if (!encode_offset_commit(&output, &group, PyList_GetItem(rows, index),
                                  first_delta + index)) {
            Py_DECREF(output.array);
            return NULL;
        }
    if (PyByteArray_Resize(output.array, (Py_ssize_t)output.used) < 0)
        Py_CLEAR(output.array);
    return output.array;
}

#endif
