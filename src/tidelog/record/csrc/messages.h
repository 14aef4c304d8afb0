/* check_messages, messages_to_records, records_to_messages: the formats of magic 0 and 1. */
#ifndef TIDELOG_MESSAGES_H
#define TIDELOG_MESSAGES_H

#include "arguments.h"
#include "batches.h"
#include "encode.h"
#include "results.h"

enum { NEW_FORMAT = 9, TOO_LARGE = 10 };
enum { COMPRESSED = 8, MIXED_MAGIC = 16, APPEND_TIME = 32, NO_TIMESTAMP = 64 };
enum { V0_FIELDS_AT = 18, V1_FIELDS_AT = 26, CUT = -1 };

#define V0_OVERHEAD 26
#define V1_OVERHEAD 34

typedef struct {
    const uint8_t *start;
    int64_t size;
    int magic, attributes;
    int64_t offset, timestamp;
} Message;

/* OK; CUT when less than a whole entry is left; or what is wrong with the entry. */
INLINE int read_message(const uint8_t *at, int64_t left, Message *message)
{
    if (left < OVERHEAD)
        return CUT;
    int64_t size = (int32_t)load32(at + 8);
    if (size < V0_SIZE_MIN)
        return BAD_SIZE;
    if (left <= MAGIC_AT)
        return CUT;
    int magic = at[MAGIC_AT];
    if (magic > 1)
        return magic == 2 ? NEW_FORMAT : BAD_MAGIC;
    if (size > left - OVERHEAD)
        return CUT;
    if (magic == 1 && size < V1_SIZE_MIN)
        return BAD_SIZE;
    message->start = at;
    message->size = size + OVERHEAD;
    message->magic = magic;
    message->attributes = at[17];
    message->offset = (int64_t)load64(at);
    message->timestamp = magic ? (int64_t)load64(at + 18) : -1;
    return OK;
}

INLINE int read_sized(const uint8_t **at, const uint8_t *end, Content *field)
{
    if (end - *at < 4)
        return 0;
    int32_t length = (int32_t)load32(*at);
    *at += 4;
    field->start = NULL;
    field->length = 0;
    if (length < 0)
        return 1;
    if (length > end - *at)
        return 0;
    field->start = *at;
    field->length = length;
    *at += length;
    return 1;
}

/* Bytes between the value and the end of the entry are not minded. */
INLINE int read_fields(const Message *message, Content *key, Content *value)
{
    const uint8_t *at = message->start + (message->magic ? V1_FIELDS_AT : V0_FIELDS_AT);
    const uint8_t *end = message->start + message->size;
    return read_sized(&at, end, key) && read_sized(&at, end, value);
}

typedef struct {
    int64_t status, position, count, magic, first_offset, last_offset;
    int64_t min_timestamp, largest_timestamp, flags;
} MessagesCheck;

INLINE void count_message(const Message *message, MessagesCheck *check)
{
    if (check->count++ == 0) {
        check->magic = message->magic;
        check->first_offset = message->offset;
    } else if (message->magic != check->magic) {
        check->flags |= MIXED_MAGIC;
    }
    check->last_offset = message->offset;
    if (message->attributes & 7)
        check->flags |= COMPRESSED;
    if (message->magic && message->attributes & 8)
        check->flags |= APPEND_TIME;
    int64_t timestamp = message->timestamp;
    if (timestamp == -1)
        check->flags |= NO_TIMESTAMP;
    else if (check->min_timestamp == -1 || timestamp < check->min_timestamp)
        check->min_timestamp = timestamp;
    if (timestamp > check->largest_timestamp)
        check->largest_timestamp = timestamp;
}

INLINE int message_problem(const Message *message, int verify_crc, int64_t message_bytes_max)
{
    if (message->size > message_bytes_max)
        return TOO_LARGE;
    if (verify_crc && crc32_of(message->start + MAGIC_AT, (size_t)(message->size - MAGIC_AT)) !=
                          load32(message->start + OVERHEAD))
        return BAD_CRC;
    return OK;
}

static void check_message_set(const uint8_t *data, int64_t position, int64_t end, int verify_crc,
                              int64_t message_bytes_max, int one_run, MessagesCheck *check)
{
    Message message;
    Content key, value;
    int fits = 1, status;
    for (;; position += message.size) {
        status = read_message(data + position, end - position, &message);
        if (status != OK)
            break;
        if (one_run && (message.attributes & 7 || (check->count && message.magic != check->magic)))
            break;
        status = message_problem(&message, verify_crc, message_bytes_max);
        if (status != OK)
            break;
        count_message(&message, check);
        if (!read_fields(&message, &key, &value))
            fits = 0;
        else if (key.start == NULL)
            check->flags |= NULL_KEY;
    }
    check->position = position;
    check->status = one_run || status == CUT ? OK : status;
    if (check->status == OK && !fits)
        check->status = BAD_RECORDS;
}

static PyObject *kernel_check_messages(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[5];
    MessagesCheck check = {0, 0, 0, -1, -1, -1, -1, -1, 0};
    if (!count_arguments("check_messages", given, 6, 6) || !take_ints(arguments + 1, 5, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t position = numbers[0], end = numbers[1];
    int in_range = require_range(&view, position, end);
    if (in_range && end - position > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        check_message_set(view.buf, position, end, numbers[2] != 0, numbers[3], numbers[4] != 0,
                          &check);
        Py_END_ALLOW_THREADS
    } else if (in_range) {
        check_message_set(view.buf, position, end, numbers[2] != 0, numbers[3], numbers[4] != 0,
                          &check);
    }
    PyBuffer_Release(&view);
    if (!in_range)
        return NULL;
    int64_t values[9] = {check.status,       check.position,      check.count,
                         check.magic,        check.first_offset,  check.last_offset,
                         check.min_timestamp, check.largest_timestamp, check.flags};
    return named_ints(&MESSAGES_CHECK, values, 9);
}

typedef struct {
    int is_dense, has_append_time;
    int64_t base_offset, append_time;
    int64_t base_timestamp, max_timestamp;
} UpConversion;

enum { UP_DONE, UP_MALFORMED, UP_DELTA };

/* A v2 record is at most 6 bytes longer than the entry of magic 0 it comes from. */
static int64_t up_bound(int64_t length) { return length + (length / V0_OVERHEAD + 1) * 6; }

static int write_up(const uint8_t *at, const uint8_t *end, UpConversion *up, uint8_t **place)
{
    Message message;
    uint8_t *out = *place;
    for (int64_t index = 0; at < end; index++, at += message.size) {
        Content key, value;
        if (read_message(at, end - at, &message) != OK || message.attributes & 7 ||
            !read_fields(&message, &key, &value))
            return UP_MALFORMED;
        int64_t timestamp = up->has_append_time ? up->append_time : message.timestamp;
        if (index == 0)
            up->base_timestamp = timestamp;
        if (timestamp > up->max_timestamp)
            up->max_timestamp = timestamp;
        int64_t delta = up->is_dense ? index : sub64(message.offset, up->base_offset);
        if (delta < INT32_MIN || delta > INT32_MAX)
            return UP_DELTA;
        int64_t timestamp_delta = sub64(timestamp, up->base_timestamp);
        out = write_record_start(out, record_body_size(timestamp_delta, delta, &key, &value, 0),
                                 timestamp_delta, delta, &key, &value, 0);
    }
    *place = out;
    return UP_DONE;
}

static PyObject *up_converted(const Py_buffer *view, int64_t position, int64_t end,
                              UpConversion *up, int64_t reserve_bytes)
{
    Output output;
    int problem;
    if (!require_range(view, position, end) ||
        !start_output(&output, reserve_bytes, up_bound(end - position)))
        return NULL;
    const uint8_t *data = view->buf;
    uint8_t *at = output.start + output.used;
    Py_BEGIN_ALLOW_THREADS
    problem = write_up(data + position, data + end, up, &at);
    Py_END_ALLOW_THREADS
    if (problem == UP_DONE) {
        output.used = at - output.start;
        return finish_output(&output, up->base_timestamp, up->max_timestamp);
    }
    PyErr_SetString(PyExc_ValueError, problem == UP_DELTA ? "offset delta beyond 32 bits"
                                                          : "malformed messages");
    Py_DECREF(output.array);
    return NULL;
}

/* An int, or None. */
static int take_optional(PyObject *argument, int *is_given, int64_t *value)
{
    *value = 0;
    *is_given = argument != Py_None;
    return !*is_given || take_ints(&argument, 1, value);
}

static PyObject *kernel_messages_to_records(PyObject *module, PyObject *const *arguments,
                                            Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    UpConversion up = {.base_timestamp = -1, .max_timestamp = -1};
    int64_t range[2], reserve_bytes;
    int has_base_offset;
    if (!count_arguments("messages_to_records", given, 6, 6) ||
        !take_ints(arguments + 1, 2, range) ||
        !take_optional(arguments[3], &has_base_offset, &up.base_offset) ||
        !take_optional(arguments[4], &up.has_append_time, &up.append_time) ||
        !take_ints(arguments + 5, 1, &reserve_bytes))
        return NULL;
    up.is_dense = !has_base_offset;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = up_converted(&view, range[0], range[1], &up, reserve_bytes);
    PyBuffer_Release(&view);
    return answer;
}

typedef struct {
    int64_t records_count, base_offset, base_timestamp, append_time;
    int has_append_time, magic, is_relative;
    int64_t first_offset;
    int64_t count, start_offset, last_offset, max_timestamp;
} DownConversion;

enum { DOWN_DONE, DOWN_MALFORMED, DOWN_LARGE };

INLINE uint8_t *write_sized(uint8_t *at, const Field *field)
{
    if (field->start == NULL) {
        store32(at, 0xffffffffu);
        return at + 4;
    }
    store32(at, (uint32_t)field->length);
    memcpy(at + 4, field->start, (size_t)field->length);
    return at + 4 + field->length;
}

INLINE uint8_t *write_message(uint8_t *at, const DownConversion *down, int64_t offset,
                              int64_t timestamp, const Record *record)
{
    uint8_t *body = at + MAGIC_AT, *next = body;
    *next++ = (uint8_t)down->magic;
    *next++ = down->magic && down->has_append_time ? 8 : 0;
    if (down->magic) {
        store64(next, (uint64_t)timestamp);
        next += 8;
    }
    next = write_sized(next, &record->key);
    next = write_sized(next, &record->value);
    store64(at, (uint64_t)offset);
    store32(at + 8, (uint32_t)(next - at - OVERHEAD));
    store32(at + OVERHEAD, crc32_of(body, (size_t)(next - body)));
    return next;
}

static int write_down(const uint8_t *at, const uint8_t *end, DownConversion *down, uint8_t **place)
{
    Record record;
    uint8_t *out = *place;
    for (int64_t index = 0; index < down->records_count; index++) {
        if (!read_checked_record(&at, end, &record))
            return DOWN_MALFORMED;
        if ((int64_t)record.key.length + record.value.length > INT32_MAX - V1_OVERHEAD)
            return DOWN_LARGE;
        int64_t offset = add64(down->base_offset, record.offset_delta);
        if (offset < down->first_offset)
            continue;
        int64_t timestamp = down->has_append_time
                                ? down->append_time
                                : add64(down->base_timestamp, record.timestamp_delta);
        if (down->count++ == 0)
            down->start_offset = down->is_relative ? offset : 0;
        down->last_offset = offset;
        if (timestamp > down->max_timestamp)
            down->max_timestamp = timestamp;
        out = write_message(out, down, sub64(offset, down->start_offset), timestamp, &record);
    }
    *place = out;
    return at == end ? DOWN_DONE : DOWN_MALFORMED;
}

static PyObject *down_converted(const Py_buffer *view, DownConversion *down)
{
    Output output;
    int problem;
    if (down->records_count < 0 || down->records_count > view->len / RECORD_SIZE_MIN)
        return malformed();
    if (!start_output(&output, 0,
                      view->len + down->records_count * (V1_OVERHEAD - RECORD_SIZE_MIN)))
        return NULL;
    const uint8_t *data = view->buf;
    uint8_t *at = output.start;
    Py_BEGIN_ALLOW_THREADS
    problem = write_down(data, data + view->len, down, &at);
    Py_END_ALLOW_THREADS
    if (problem == DOWN_DONE && PyByteArray_Resize(output.array, at - output.start) == 0)
        return Py_BuildValue("NLLL", output.array, (long long)down->count,
                             (long long)down->last_offset, (long long)down->max_timestamp);
    if (problem == DOWN_LARGE)
        PyErr_SetString(PyExc_ValueError, "a record beyond 2 GiB");
    else if (problem == DOWN_MALFORMED)
        malformed();
    Py_DECREF(output.array);
    return NULL;
}

static PyObject *kernel_records_to_messages(PyObject *module, PyObject *const *arguments,
                                            Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    DownConversion down = {.last_offset = -1, .max_timestamp = -1};
    PyObject *part[5];
    int64_t records[3], target[3];
    if (!count_arguments("records_to_messages", given, 4, 4) ||
        !take_items(arguments[0], 5, part) || !take_ints(part + 1, 3, records) ||
        !take_optional(part[4], &down.has_append_time, &down.append_time) ||
        !take_ints(arguments + 1, 3, target))
        return NULL;
    down.records_count = records[0];
    down.base_offset = records[1];
    down.base_timestamp = records[2];
    down.magic = target[0] != 0;
    down.is_relative = target[1] != 0;
    down.first_offset = target[2];
    if (PyObject_GetBuffer(part[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = down_converted(&view, &down);
    PyBuffer_Release(&view);
    return answer;
}

#endif
