/* records_to_columns. */
#ifndef TIDELOG_COLUMNS_H
#define TIDELOG_COLUMNS_H

#include "arguments.h"
#include "bytes.h"
#include "records.h"
#include "results.h"

#define ANSWER_SIZE 15

typedef struct {
    Py_buffer view;
    int64_t records_count, base_offset, base_timestamp, append_time;
    int has_append_time;
} Part;

typedef struct {
    Bytes key_offsets, key_data, value_offsets, value_valid, value_data;
    int64_t count;
} Headers;

typedef struct {
    uint8_t *offsets, *timestamps, *header_offsets;
    uint8_t *key_offsets, *key_validity, *key_data;
    uint8_t *value_offsets, *value_validity, *value_data;
    int32_t key_bytes, value_bytes;
    int64_t row;
    Headers headers;
} Columns;

INLINE void put32(uint8_t *column, int64_t row, int32_t value)
{
    memcpy(column + row * 4, &value, 4);
}

INLINE void put64(uint8_t *column, int64_t row, int64_t value)
{
    memcpy(column + row * 8, &value, 8);
}

INLINE int32_t get32(const uint8_t *column, int64_t row)
{
    int32_t value;
    memcpy(&value, column + row * 4, 4);
    return value;
}

INLINE int64_t get64(const uint8_t *column, int64_t row)
{
    int64_t value;
    memcpy(&value, column + row * 8, 8);
    return value;
}

INLINE void put_field(const Field *field, uint8_t *data, int32_t *bytes, uint8_t *validity,
                      int64_t row)
{
    if (LIKELY(field->start != NULL)) {
        memcpy(data + *bytes, field->start, (size_t)field->length);
        *bytes += field->length;
        validity[row >> 3] |= (uint8_t)(1u << (row & 7));
    }
}

static int put_bytes(Bytes *bytes, const void *data, size_t length)
{
    uint8_t *place = grow(bytes, length);
    if (place == NULL)
        return 0;
    if (length)
        memcpy(place, data, length);
    return 1;
}

static int put_end(Bytes *offsets, const Bytes *data)
{
    int32_t end = (int32_t)data->length;
    return put_bytes(offsets, &end, 4);
}

static int put_headers(Headers *headers, const Record *record)
{
    const uint8_t *at = record->headers;
    for (int32_t index = 0; index < record->headers_count; index++) {
        Field key, value;
        if (!read_header(&at, record->end, &key, &value))
            return 0;
        uint8_t valid = value.start != NULL;
        if (!put_bytes(&headers->key_data, key.start, (size_t)key.length) ||
            !put_end(&headers->key_offsets, &headers->key_data) ||
            !put_bytes(&headers->value_data, value.start, (size_t)value.length) ||
            !put_end(&headers->value_offsets, &headers->value_data) ||
            !put_bytes(&headers->value_valid, &valid, 1))
            return 0;
        headers->count++;
    }
    return 1;
}

/* 1, 0 for malformed records, -1 when memory ran out. */
static int put_part(Columns *columns, const Part *part)
{
    const uint8_t *at = part->view.buf, *end = at + part->view.len;
    Record record;
    for (int64_t index = 0; index < part->records_count; index++) {
        if (!read_checked_record(&at, end, &record))
            return 0;
        int64_t row = columns->row++;
        put64(columns->offsets, row, add64(part->base_offset, record.offset_delta));
        put64(columns->timestamps, row,
              part->has_append_time ? part->append_time
                                    : add64(part->base_timestamp, record.timestamp_delta));
        put_field(&record.key, columns->key_data, &columns->key_bytes, columns->key_validity, row);
        put32(columns->key_offsets, row + 1, columns->key_bytes);
        put_field(&record.value, columns->value_data, &columns->value_bytes,
                  columns->value_validity, row);
        put32(columns->value_offsets, row + 1, columns->value_bytes);
        if (record.headers_count && !put_headers(&columns->headers, &record))
            return -1;
        put32(columns->header_offsets, row + 1, (int32_t)columns->headers.count);
    }
    return at == end;
}

static void release_parts(Part *parts, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++)
        PyBuffer_Release(&parts[index].view);
    free(parts);
}

static int take_part(PyObject *tuple, Part *part)
{
    PyObject *items[5];
    int64_t numbers[3];
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) {
        PyErr_SetString(PyExc_ValueError, "a part is a tuple of 5");
        return 0;
    }
    for (Py_ssize_t index = 0; index < 5; index++)
        items[index] = PyTuple_GetItem(tuple, index);
    if (!take_ints(items + 1, 3, numbers))
        return 0;
    part->records_count = numbers[0];
    part->base_offset = numbers[1];
    part->base_timestamp = numbers[2];
    part->has_append_time = items[4] != Py_None;
    part->append_time = 0;
    if (part->has_append_time && !take_ints(items + 4, 1, &part->append_time))
        return 0;
    return PyObject_GetBuffer(items[0], &part->view, PyBUF_SIMPLE) == 0;
}

static Part *take_parts(PyObject *list, Py_ssize_t *count)
{
    Py_ssize_t expected = PyList_Size(list);
    Part *parts = calloc((size_t)expected + 1, sizeof *parts);
    *count = 0;
    if (parts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    while (*count < expected) {
        if (!take_part(PyList_GetItem(list, *count), &parts[*count])) {
            release_parts(parts, *count);
            return NULL;
        }
        ++*count;
    }
    return parts;
}

/* Rows and bytes of all parts; rows are believed only as far as the bytes can hold them. */
static int measure_parts(const Part *parts, Py_ssize_t count, int64_t *rows, int64_t *bytes)
{
    *rows = *bytes = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t length = parts[index].view.len;
        if (parts[index].records_count < 0 ||
            parts[index].records_count > length / RECORD_SIZE_MIN) {
            malformed();
            return 0;
        }
        *rows += parts[index].records_count;
        *bytes += length;
        if (*bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "records beyond 2 GiB");
            return 0;
        }
    }
    return 1;
}

/* The buffer of an earlier answer, if nobody else refers to it and it can have the size; or NULL. */
static PyObject *spare_column(PyObject *spare, Py_ssize_t place, int64_t bytes)
{
    PyObject *column = spare != Py_None ? PyTuple_GetItem(spare, place) : NULL;
    if (column == NULL || !PyByteArray_Check(column) || Py_REFCNT(column) != 1)
        return NULL;
    if (PyByteArray_Resize(column, (Py_ssize_t)bytes) < 0) {
        PyErr_Clear();
        return NULL;
    }
    Py_INCREF(column);
    return column;
}

static uint8_t *new_column(PyObject *answer, PyObject *spare, Py_ssize_t place, int64_t bytes,
                           int zeroed)
{
    PyObject *column = spare_column(spare, place, bytes);
    if (column == NULL)
        column = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (column == NULL)
        return NULL;
    uint8_t *data = (uint8_t *)PyByteArray_AsString(column);
    if (zeroed)
        memset(data, 0, (size_t)bytes);
    if (PyTuple_SetItem(answer, place, column) < 0)
        return NULL;
    return data;
}

static int new_columns(PyObject *answer, PyObject *spare, Columns *columns, int64_t rows,
                       int64_t bytes)
{
    int64_t bits = (rows + 7) / 8;
    return (columns->offsets = new_column(answer, spare, 1, rows * 8, 0)) != NULL &&
           (columns->timestamps = new_column(answer, spare, 2, rows * 8, 0)) != NULL &&
           (columns->key_offsets = new_column(answer, spare, 3, rows * 4 + 4, 0)) != NULL &&
           (columns->key_validity = new_column(answer, spare, 4, bits, 1)) != NULL &&
           (columns->key_data = new_column(answer, spare, 5, bytes, 0)) != NULL &&
           (columns->value_offsets = new_column(answer, spare, 6, rows * 4 + 4, 0)) != NULL &&
           (columns->value_validity = new_column(answer, spare, 7, bits, 1)) != NULL &&
           (columns->value_data = new_column(answer, spare, 8, bytes, 0)) != NULL &&
           (columns->header_offsets = new_column(answer, spare, 9, rows * 4 + 4, 0)) != NULL;
}

static int put_column(PyObject *answer, Py_ssize_t place, const Bytes *bytes)
{
    PyObject *column =
        PyByteArray_FromStringAndSize((const char *)bytes->data, (Py_ssize_t)bytes->length);
    return column != NULL && PyTuple_SetItem(answer, place, column) == 0;
}

static int put_header_columns(PyObject *answer, Headers *headers)
{
    if (!put_column(answer, 10, &headers->key_offsets) ||
        !put_column(answer, 11, &headers->key_data) ||
        !put_column(answer, 12, &headers->value_offsets) ||
        !put_column(answer, 14, &headers->value_data))
        return 0;
    uint8_t *validity = new_column(answer, Py_None, 13, (headers->count + 7) / 8, 1);
    if (validity == NULL)
        return 0;
    for (int64_t row = 0; row < headers->count; row++)
        validity[row >> 3] |= (uint8_t)(headers->value_valid.data[row] << (row & 7));
    return 1;
}

static int fill_columns(PyObject *answer, Columns *columns, const Part *parts, Py_ssize_t count)
{
    int filled = 1;
    Headers *headers = &columns->headers;
    put32(columns->key_offsets, 0, 0);
    put32(columns->value_offsets, 0, 0);
    put32(columns->header_offsets, 0, 0);
    if (!put_end(&headers->key_offsets, &headers->key_data) ||
        !put_end(&headers->value_offsets, &headers->value_data))
        filled = -1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t index = 0; filled == 1 && index < count; index++)
        filled = put_part(columns, &parts[index]);
    Py_END_ALLOW_THREADS
    if (filled == 0)
        malformed();
    else if (filled < 0)
        PyErr_NoMemory();
    PyObject *rows = filled == 1 ? PyLong_FromLongLong(columns->row) : NULL;
    return rows != NULL && PyTuple_SetItem(answer, 0, rows) == 0 &&
           PyByteArray_Resize(PyTuple_GetItem(answer, 5), columns->key_bytes) == 0 &&
           PyByteArray_Resize(PyTuple_GetItem(answer, 8), columns->value_bytes) == 0 &&
           put_header_columns(answer, headers);
}

static int is_answer_or_none(PyObject *spare)
{
    if (spare == Py_None || (PyTuple_Check(spare) && PyTuple_Size(spare) == ANSWER_SIZE))
        return 1;
    PyErr_SetString(PyExc_ValueError, "spare is an earlier answer");
    return 0;
}

static PyObject *kernel_records_to_columns(PyObject *module, PyObject *const *arguments,
                                           Py_ssize_t arguments_count)
{
    (void)module;
    if (!count_arguments("records_to_columns", arguments_count, 1, 2))
        return NULL;
    PyObject *spare = arguments_count == 2 ? arguments[1] : Py_None;
    if (!is_answer_or_none(spare))
        return NULL;
    Py_ssize_t count;
    int64_t rows, bytes;
    Columns columns = {0};
    PyObject *list = PySequence_List(arguments[0]);
    if (list == NULL)
        return NULL;
    Part *parts = take_parts(list, &count);
    PyObject *answer = NULL;
    if (parts != NULL && measure_parts(parts, count, &rows, &bytes))
        answer = PyStructSequence_New(RECORD_COLUMNS.type);
    if (answer != NULL && (!new_columns(answer, spare, &columns, rows, bytes) ||
                           !fill_columns(answer, &columns, parts, count)))
        Py_CLEAR(answer);
    free(columns.headers.key_offsets.data);
    free(columns.headers.key_data.data);
    free(columns.headers.value_offsets.data);
    free(columns.headers.value_valid.data);
    free(columns.headers.value_data.data);
    if (parts != NULL)
        release_parts(parts, count);
    Py_DECREF(list);
    return answer;
}

#endif
