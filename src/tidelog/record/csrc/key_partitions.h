/* key_partitions: where Kafka's producers send the keys of an Arrow binary column. */
#ifndef TIDELOG_KEY_PARTITIONS_H
#define TIDELOG_KEY_PARTITIONS_H

#include "arguments.h"
#include "columns.h"

/* MurmurHash2 with the seed of Kafka's producers. */
INLINE uint32_t murmur2(const uint8_t *at, int64_t length)
{
    const uint32_t mix = 0x5bd1e995;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)length;
    for (; length >= 4; at += 4, length -= 4) {
        uint32_t word =
            (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
        word *= mix;
        word ^= word >> 24;
        word *= mix;
        hash = (hash * mix) ^ word;
    }
    if (length == 3)
        hash ^= (uint32_t)at[2] << 16;
    if (length >= 2)
        hash ^= (uint32_t)at[1] << 8;
    if (length >= 1) {
        hash ^= at[0];
        hash *= mix;
    }
    hash ^= hash >> 13;
    hash *= mix;
    return hash ^ hash >> 15;
}

typedef struct {
    Py_buffer offsets, validity, data; /* validity.buf is NULL when no key is null */
    int64_t start, count, partitions_count;
} Keys;

static int keys_fit(const Keys *keys)
{
    if (keys->start < 0 || keys->start > INT32_MAX || keys->count < 0 || keys->count > INT32_MAX ||
        keys->partitions_count < 1 || keys->partitions_count > INT32_MAX)
        return 0;
    int64_t end = keys->start + keys->count;
    return keys->offsets.len / 4 > end &&
           (keys->validity.buf == NULL || keys->validity.len >= (end + 7) / 8);
}

/* 0 when the offsets run backwards or out of the data. */
static int put_partitions(const Keys *keys, uint8_t *partitions)
{
    const uint8_t *data = keys->data.buf, *validity = keys->validity.buf;
    for (int64_t index = 0; index < keys->count; index++) {
        int64_t row = keys->start + index;
        int32_t partition = -1;
        if (validity == NULL || validity[row >> 3] >> (row & 7) & 1) {
            int64_t start = get32(keys->offsets.buf, row);
            int64_t end = get32(keys->offsets.buf, row + 1);
            if (start < 0 || start > end || end > keys->data.len)
                return 0;
            uint32_t hash = murmur2(data + start, end - start) & INT32_MAX;
            partition = (int32_t)(hash % (uint32_t)keys->partitions_count);
        }
        put32(partitions, index, partition);
    }
    return 1;
}

static PyObject *partitions_of(const Keys *keys)
{
    PyObject *answer = NULL;
    int done = keys_fit(keys);
    if (done) {
        answer = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(keys->count * 4));
        if (answer == NULL)
            return NULL;
        uint8_t *partitions = (uint8_t *)PyByteArray_AsString(answer);
        Py_BEGIN_ALLOW_THREADS
        done = put_partitions(keys, partitions);
        Py_END_ALLOW_THREADS
    }
    if (done)
        return answer;
    Py_CLEAR(answer);
    PyErr_SetString(PyExc_ValueError, "keys do not fit together");
    return NULL;
}

static PyObject *kernel_key_partitions(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    Keys keys = {0};
    int64_t numbers[3];
    if (!count_arguments("key_partitions", given, 6, 6) || !take_ints(arguments + 3, 3, numbers))
        return NULL;
    keys.start = numbers[0];
    keys.count = numbers[1];
    keys.partitions_count = numbers[2];
    int is_nullable = arguments[1] != Py_None;
    PyObject *answer = NULL;
    if (PyObject_GetBuffer(arguments[0], &keys.offsets, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!is_nullable || PyObject_GetBuffer(arguments[1], &keys.validity, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(arguments[2], &keys.data, PyBUF_SIMPLE) == 0) {
            answer = partitions_of(&keys);
            PyBuffer_Release(&keys.data);
        }
        if (is_nullable)
            PyBuffer_Release(&keys.validity);
    }
    PyBuffer_Release(&keys.offsets);
    return answer;
}

#endif
