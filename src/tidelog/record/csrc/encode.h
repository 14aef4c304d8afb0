/* encode_records, encode_columns and encode_rows: records written into a bytearray; seal_batch: the
 * header before them. */
#ifndef TIDELOG_ENCODE_H
#define TIDELOG_ENCODE_H

#include "arguments.h"
#include "batches.h"
#include "bytes.h"
#include "columns.h"

#include <stdlib.h>
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

/* encode_records: tuples of Python objects in. */

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

enum { FEW_HEADERS = 8 };

static void give_headers_back(LentHeader *headers, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        give_back(&headers[index].key);
        give_back(&headers[index].value);
    }
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

/* `tuple` must outlive the headers: their bytes are not copied. */
static int borrow_headers(PyObject *tuple, Py_ssize_t count, LentHeader *headers, int64_t *size)
{
    *size = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!borrow_header(PyTuple_GetItem(tuple, index), &headers[index])) {
            give_headers_back(headers, index);
            return 0;
        }
        *size += content_size(&headers[index].key.content) +
                 content_size(&headers[index].value.content);
    }
    return 1;
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
    LentHeader few[FEW_HEADERS], *headers = few;
    int64_t size;
    int written = 0;
    PyObject *tuple = PySequence_Tuple(sequence); /* of a tuple, the same */
    if (tuple == NULL)
        return 0;
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count > FEW_HEADERS)
        headers = calloc((size_t)count, sizeof *headers);
    if (headers == NULL) {
        PyErr_NoMemory();
    } else if (borrow_headers(tuple, count, headers, &size)) {
        written = write_record(output, timestamp_delta, offset_delta, key, value, headers, count,
                               size);
        give_headers_back(headers, count);
    }
    if (headers != few)
        free(headers);
    Py_DECREF(tuple);
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

/* encode_columns and encode_rows: the columns of records_to_columns in. */

enum {
    OFFSETS,
    TIMESTAMPS,
    KEY_OFFSETS,
    KEY_VALIDITY,
    KEY_DATA,
    VALUE_OFFSETS,
    VALUE_VALIDITY,
    VALUE_DATA,
    HEADER_OFFSETS,
    HEADER_KEY_OFFSETS,
    HEADER_KEY_DATA,
    HEADER_VALUE_OFFSETS,
    HEADER_VALUE_VALIDITY,
    HEADER_VALUE_DATA,
    COLUMNS_COUNT
};

typedef struct {
    Py_buffer views[COLUMNS_COUNT];
    int held;
    int64_t rows, headers;
} Table;

static const uint8_t *column(const Table *table, int which) { return table->views[which].buf; }

static void release_table(Table *table)
{
    while (table->held > 0)
        PyBuffer_Release(&table->views[--table->held]);
}

static int table_fits(Table *table)
{
    const Py_buffer *views = table->views;
    int64_t rows = table->rows;
    if (rows < 0 || rows >= INT32_MAX)
        return 0;
    table->headers = views[HEADER_KEY_OFFSETS].len / 4 - 1;
    return views[OFFSETS].len >= rows * 8 && views[TIMESTAMPS].len >= rows * 8 &&
           views[KEY_OFFSETS].len >= rows * 4 + 4 && views[KEY_VALIDITY].len >= (rows + 7) / 8 &&
           views[VALUE_OFFSETS].len >= rows * 4 + 4 &&
           views[VALUE_VALIDITY].len >= (rows + 7) / 8 &&
           views[HEADER_OFFSETS].len >= rows * 4 + 4 && table->headers >= 0 &&
           views[HEADER_VALUE_OFFSETS].len >= table->headers * 4 + 4 &&
           views[HEADER_VALUE_VALIDITY].len >= (table->headers + 7) / 8;
}

static int take_table(PyObject *columns, Table *table)
{
    table->held = 0;
    if (!PyTuple_Check(columns) || PyTuple_Size(columns) != COLUMNS_COUNT + 1) {
        PyErr_SetString(PyExc_ValueError, "columns are a tuple of 15");
        return 0;
    }
    PyObject *rows = PyTuple_GetItem(columns, 0);
    if (!take_ints(&rows, 1, &table->rows))
        return 0;
    while (table->held < COLUMNS_COUNT) {
        if (PyObject_GetBuffer(PyTuple_GetItem(columns, table->held + 1),
                               &table->views[table->held], PyBUF_SIMPLE) < 0) {
            release_table(table);
            return 0;
        }
        table->held++;
    }
    if (table_fits(table))
        return 1;
    release_table(table);
    PyErr_SetString(PyExc_ValueError, "columns do not fit together");
    return 0;
}

/* The field of a row, or 0 when the offsets run backwards or out of the data. */
INLINE int row_content(const Table *table, int offsets, int validity, int64_t row,
                       Content *content)
{
    int data = validity < 0 ? offsets + 1 : offsets + 2;
    int64_t start = get32(column(table, offsets), row);
    int64_t end = get32(column(table, offsets), row + 1);
    if (start < 0 || start > end || end > table->views[data].len)
        return 0;
    content->start = column(table, data) + start;
    content->length = end - start;
    if (validity >= 0 && !(column(table, validity)[row >> 3] >> (row & 7) & 1)) {
        content->start = NULL;
        content->length = 0;
    } else if (content->length == 0) {
        content->start = EMPTY;
    }
    return 1;
}

INLINE int header_contents(const Table *table, int64_t header, Content *key, Content *value)
{
    return row_content(table, HEADER_KEY_OFFSETS, -1, header, key) &&
           row_content(table, HEADER_VALUE_OFFSETS, HEADER_VALUE_VALIDITY, header, value);
}

static int64_t headers_size(const Table *table, int64_t first, int64_t last)
{
    int64_t size = 0;
    Content key, value;
    for (int64_t header = first; header < last; header++) {
        if (!header_contents(table, header, &key, &value))
            return -1;
        size += content_size(&key) + content_size(&value);
    }
    return size;
}

typedef struct {
    int64_t start, stop, base_offset;
    int is_dense;
    int64_t base_timestamp, max_timestamp;
    const uint8_t *order; /* i64 row numbers; NULL when rows come as they lie */
} Rows;

enum { ROWS_WRITTEN, ROWS_UNFIT, ROWS_DELTA, ROWS_LARGE };

/* Since each row begins where the one before ends, the rows of a column together are no longer
 * than the stretch between the first and the last offset: the bound of `rows_bound` holds. */
static int write_rows(const Table *table, Rows *rows, uint8_t **place, const uint8_t *limit)
{
    uint8_t *at = *place;
    for (int64_t index = rows->start; index < rows->stop; index++) {
        Content key, value, name;
        int64_t row = rows->order == NULL ? index : get64(rows->order, index);
        int64_t timestamp = get64(column(table, TIMESTAMPS), row);
        if (index == rows->start)
            rows->base_timestamp = timestamp;
        if (timestamp > rows->max_timestamp)
            rows->max_timestamp = timestamp;
        int64_t timestamp_delta = sub64(timestamp, rows->base_timestamp);
        int64_t delta = index - rows->start;
        if (!rows->is_dense) {
            int64_t offset = get64(column(table, OFFSETS), row);
            delta = sub64(offset, rows->base_offset);
            if (delta < INT32_MIN || delta > INT32_MAX || (offset < rows->base_offset) != (delta < 0))
                return ROWS_DELTA;
        }
        int64_t first = get32(column(table, HEADER_OFFSETS), row);
        int64_t last = get32(column(table, HEADER_OFFSETS), row + 1);
        if (first < 0 || first > last || last > table->headers ||
            !row_content(table, KEY_OFFSETS, KEY_VALIDITY, row, &key) ||
            !row_content(table, VALUE_OFFSETS, VALUE_VALIDITY, row, &value))
            return ROWS_UNFIT;
        int64_t size = last == first ? 0 : headers_size(table, first, last);
        if (size < 0)
            return ROWS_UNFIT;
        size += record_body_size(timestamp_delta, delta, &key, &value, last - first);
        if (size > INT32_MAX || size + 5 > limit - at)
            return ROWS_LARGE;
        at = write_record_start(at, size, timestamp_delta, delta, &key, &value, last - first);
        for (int64_t header = first; header < last; header++) {
            if (!header_contents(table, header, &name, &value))
                return ROWS_UNFIT;
            at = write_content(at, &name);
            at = write_content(at, &value);
        }
    }
    *place = at;
    return ROWS_WRITTEN;
}

static int64_t stretch(const Table *table, int offsets, int64_t start, int64_t stop)
{
    int64_t first = get32(column(table, offsets), start);
    int64_t last = get32(column(table, offsets), stop);
    return last > first ? last - first : 0;
}

static int64_t rows_bound(const Table *table, int64_t start, int64_t stop)
{
    int64_t first = get32(column(table, HEADER_OFFSETS), start);
    int64_t last = get32(column(table, HEADER_OFFSETS), stop);
    int64_t bound = (stop - start) * (5 + 1 + 10 + 5 + 5 + 5 + 5) +
                    stretch(table, KEY_OFFSETS, start, stop) +
                    stretch(table, VALUE_OFFSETS, start, stop);
    if (0 <= first && first < last && last <= table->headers)
        bound += (last - first) * 10 + stretch(table, HEADER_KEY_OFFSETS, first, last) +
                 stretch(table, HEADER_VALUE_OFFSETS, first, last);
    return bound;
}

/* The bound of rows in any order, one after the other; -1 for a row outside the columns. Stops
 * growing beyond 2 GiB, where `write_rows` will refuse. */
static int64_t picked_bound(const Table *table, const Rows *rows)
{
    int64_t bound = 0;
    for (int64_t index = rows->start; index < rows->stop; index++) {
        int64_t row = get64(rows->order, index);
        if (row < 0 || row >= table->rows)
            return -1;
        if (bound <= INT32_MAX)
            bound += rows_bound(table, row, row + 1);
    }
    return bound;
}

static PyObject *write_output(const Table *table, Rows *rows, int64_t bound, int64_t reserve_bytes)
{
    Output output;
    int problem;
    if (!start_output(&output, reserve_bytes, bound))
        return NULL;
    uint8_t *at = output.start + output.used;
    const uint8_t *limit = output.start + output.capacity;
    Py_BEGIN_ALLOW_THREADS
    problem = write_rows(table, rows, &at, limit);
    Py_END_ALLOW_THREADS
    if (problem == ROWS_WRITTEN) {
        output.used = at - output.start;
        return finish_output(&output, rows->base_timestamp, rows->max_timestamp);
    }
    PyErr_SetString(PyExc_ValueError, problem == ROWS_UNFIT    ? "columns do not fit together"
                                      : problem == ROWS_DELTA ? "offset delta beyond 32 bits"
                                                              : "a record beyond 2 GiB");
    Py_DECREF(output.array);
    return NULL;
}

static PyObject *kernel_encode_columns(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    Table table;
    Rows rows = {.base_timestamp = -1, .max_timestamp = -1};
    int64_t range[2], reserve_bytes;
    if (!count_arguments("encode_columns", given, 5, 5) || !take_ints(arguments + 1, 2, range) ||
        !take_ints(arguments + 4, 1, &reserve_bytes))
        return NULL;
    rows.start = range[0];
    rows.stop = range[1];
    rows.is_dense = arguments[3] == Py_None;
    if (!rows.is_dense && !take_ints(arguments + 3, 1, &rows.base_offset))
        return NULL;
    if (!take_table(arguments[0], &table))
        return NULL;
    PyObject *answer = NULL;
    if (0 <= rows.start && rows.start <= rows.stop && rows.stop <= table.rows)
        answer = write_output(&table, &rows, rows_bound(&table, rows.start, rows.stop),
                              reserve_bytes);
    else
        PyErr_SetString(PyExc_ValueError, "rows outside the columns");
    release_table(&table);
    return answer;
}

static PyObject *encode_in_order(const Table *table, Rows *rows, int64_t reserve_bytes)
{
    int64_t bound = picked_bound(table, rows);
    if (bound >= 0)
        return write_output(table, rows, bound, reserve_bytes);
    PyErr_SetString(PyExc_ValueError, "rows outside the columns");
    return NULL;
}

static PyObject *kernel_encode_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Table table;
    Py_buffer order;
    Rows rows = {.is_dense = 1, .base_timestamp = -1, .max_timestamp = -1};
    int64_t numbers[3];
    if (!count_arguments("encode_rows", given, 5, 5) || !take_ints(arguments + 2, 3, numbers) ||
        !take_table(arguments[0], &table))
        return NULL;
    rows.start = numbers[0];
    rows.stop = numbers[1];
    PyObject *answer = NULL;
    if (PyObject_GetBuffer(arguments[1], &order, PyBUF_SIMPLE) == 0) {
        rows.order = order.buf;
        if (0 <= rows.start && rows.start <= rows.stop && rows.stop <= order.len / 8)
            answer = encode_in_order(&table, &rows, numbers[2]);
        else
            PyErr_SetString(PyExc_ValueError, "rows outside the columns");
        PyBuffer_Release(&order);
    }
    release_table(&table);
    return answer;
}

/* seal_batch: the header before records that are in place. */

static int seal(uint8_t *at, int64_t size, PyObject *const *numbers)
{
    static const int bits[] = {64, 32, 16, 32, 64, 64, 64, 16, 32, 32};
    int64_t values[10];
    for (int index = 0; index < 10; index++)
        if (!take_number(numbers[index], bits[index], &values[index]))
            return 0;
    store64(at, (uint64_t)values[0]);
    store32(at + 8, (uint32_t)(size - OVERHEAD));
    store32(at + 12, (uint32_t)values[1]);
    at[MAGIC_AT] = 2;
    store16(at + 21, (uint16_t)values[2]);
    store32(at + 23, (uint32_t)values[3]);
    store64(at + 27, (uint64_t)values[4]);
    store64(at + 35, (uint64_t)values[5]);
    store64(at + 43, (uint64_t)values[6]);
    store16(at + 51, (uint16_t)values[7]);
    store32(at + 53, (uint32_t)values[8]);
    store32(at + 57, (uint32_t)values[9]);
    uint32_t crc;
    if (size > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        crc = crc32c_of(at + CRC_START, (size_t)(size - CRC_START));
        Py_END_ALLOW_THREADS
    } else {
        crc = crc32c_of(at + CRC_START, (size_t)(size - CRC_START));
    }
    store32(at + 17, crc);
    return 1;
}

static PyObject *kernel_seal_batch(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    if (!count_arguments("seal_batch", given, 11, 11))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_WRITABLE) < 0)
        return NULL;
    int sealed = 0;
    if (view.len < HEADER_SIZE || view.len - OVERHEAD > INT32_MAX)
        PyErr_Format(PyExc_ValueError, "a batch of %zd bytes", view.len);
    else
        sealed = seal(view.buf, view.len, arguments + 1);
    PyBuffer_Release(&view);
    if (!sealed)
        return NULL;
    Py_RETURN_NONE;
}

#endif
