/* Records written into a bytearray. */
#ifndef TIDELOG_OUTPUT_H
#define TIDELOG_OUTPUT_H

#include "arguments.h"
#include "bytes.h"

#include <string.h>

INLINE uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? ~(uint64_t)0 : 0);
}

INLINE int64_t varint_size(int64_t value)
{
    uint64_t rest = zigzag(value);
    int64_t size = 1;
    while (rest >= 0x80) {
        rest >>= 7;
        size++;
    }
    return size;
}

INLINE uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t rest = zigzag(value);
    while (rest >= 0x80) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

/* What an empty field points to: NULL would mean a null one. */
static const uint8_t EMPTY[1];

typedef struct {
    const uint8_t *start; /* NULL for a null field */
    int64_t length;
} Content;

INLINE int64_t content_size(const Content *content)
{
    if (content->start == NULL)
        return 1;
    return varint_size(content->length) + content->length;
}

INLINE uint8_t *write_content(uint8_t *at, const Content *content)
{
    if (content->start == NULL) {
        *at++ = 1;
        return at;
    }
    at = write_varint(at, content->length);
    memcpy(at, content->start, (size_t)content->length);
    return at + content->length;
}

INLINE uint8_t *write_record_start(uint8_t *at, int64_t body_size, int64_t timestamp_delta,
                                   int64_t offset_delta, const Content *key, const Content *value,
                                   int64_t headers_count)
{
    at = write_varint(at, body_size);
    *at++ = 0;
    at = write_varint(at, timestamp_delta);
    at = write_varint(at, offset_delta);
    at = write_content(at, key);
    at = write_content(at, value);
    return write_varint(at, headers_count);
}

INLINE int64_t record_body_size(int64_t timestamp_delta, int64_t offset_delta, const Content *key,
                                const Content *value, int64_t headers_count)
{
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + content_size(key) +
           content_size(value) + varint_size(headers_count);
}

/* A bytearray that grows; `at` is where the next byte goes. */
typedef struct {
    PyObject *array;
    uint8_t *start;
    int64_t used, capacity;
} Output;

static int start_output(Output *output, int64_t reserve_bytes, int64_t capacity)
{
    if (reserve_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "reserve_bytes is negative");
        return 0;
    }
    if (capacity > INT64_MAX / 2 - reserve_bytes) {
        PyErr_NoMemory();
        return 0;
    }
    output->capacity = reserve_bytes + capacity;
    output->array = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)output->capacity);
    if (output->array == NULL)
        return 0;
    output->start = (uint8_t *)PyByteArray_AsString(output->array);
    output->used = reserve_bytes;
    memset(output->start, 0, (size_t)reserve_bytes);
    return 1;
}

static uint8_t *reserve(Output *output, int64_t more)
{
    if (more > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a record beyond 2 GiB");
        return NULL;
    }
    if (more > output->capacity - output->used) {
        int64_t capacity = output->capacity * 2 + more;
        if (PyByteArray_Resize(output->array, (Py_ssize_t)capacity) < 0)
            return NULL;
        output->start = (uint8_t *)PyByteArray_AsString(output->array);
        output->capacity = capacity;
    }
    return output->start + output->used;
}

static PyObject *finish_output(Output *output, int64_t base_timestamp, int64_t max_timestamp)
{
    if (PyByteArray_Resize(output->array, (Py_ssize_t)output->used) < 0) {
        Py_CLEAR(output->array);
        return NULL;
    }
    return Py_BuildValue("NLL", output->array, (long long)base_timestamp,
                         (long long)max_timestamp);
}

#endif
