/* Varints, records, and the walk that checks all records of a v2 batch. */
#ifndef TIDELOG_RECORDS_H
#define TIDELOG_RECORDS_H

#include "bytes.h"

#include <stddef.h>

enum { OK, NO_BATCH, BAD_SIZE, BAD_MAGIC, OLD_FORMAT, BAD_CRC, BAD_RECORDS };
enum { WALKED = 1, NULL_KEY = 2, SPARSE_OFFSETS = 4 };

#define RECORD_SIZE_MIN 7

INLINE int read_varint(const uint8_t **at, const uint8_t *end, int32_t *value)
{
    const uint8_t *next = *at;
    if (next >= end)
        return 0;
    uint32_t raw = *next++;
    if (raw >= 0x80) {
        raw &= 0x7f;
        for (int shift = 7;; shift += 7) {
            if (next >= end)
                return 0;
            uint32_t byte = *next++;
            raw |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
            if (shift == 28)
                return 0;
        }
    }
    *at = next;
    *value = (int32_t)(raw >> 1 ^ (0u - (raw & 1)));
    return 1;
}

INLINE int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    const uint8_t *next = *at;
    if (next >= end)
        return 0;
    uint64_t raw = *next++;
    if (raw >= 0x80) {
        raw &= 0x7f;
        for (int shift = 7;; shift += 7) {
            if (next >= end)
                return 0;
            uint64_t byte = *next++;
            raw |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
            if (shift == 63)
                return 0;
        }
    }
    *at = next;
    *value = (int64_t)(raw >> 1 ^ (0u - (raw & 1)));
    return 1;
}

typedef struct {
    const uint8_t *start; /* NULL for a null field */
    int32_t length;
} Field;

INLINE int read_field(const uint8_t **at, const uint8_t *end, Field *field)
{
    int32_t length;
    if (!read_varint(at, end, &length))
        return 0;
    if (length < 0) {
        field->start = NULL;
        field->length = 0;
        return 1;
    }
    if (length > end - *at)
        return 0;
    field->start = *at;
    field->length = length;
    *at += length;
    return 1;
}

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t headers_count;
    Field key;
    Field value;
    const uint8_t *headers;
    const uint8_t *end;
} Record;

/* Reads the record at *at and moves there past its end; its headers are left to the caller. */
INLINE int read_record(const uint8_t **at, const uint8_t *end, Record *record)
{
    int32_t length;
    if (!read_varint(at, end, &length) || length < 1 || length > end - *at)
        return 0;
    const uint8_t *body = *at + 1;
    const uint8_t *body_end = *at + length;
    if (!read_varlong(&body, body_end, &record->timestamp_delta) ||
        !read_varint(&body, body_end, &record->offset_delta) ||
        !read_field(&body, body_end, &record->key) ||
        !read_field(&body, body_end, &record->value) ||
        !read_varint(&body, body_end, &record->headers_count))
        return 0;
    if (record->headers_count < 0 || record->headers_count > body_end - body)
        return 0;
    record->headers = body;
    record->end = body_end;
    *at = body_end;
    return 1;
}

INLINE int read_header(const uint8_t **at, const uint8_t *end, Field *key, Field *value)
{
    return read_field(at, end, key) && key->start != NULL && read_field(at, end, value);
}

static int headers_fit(const Record *record)
{
    const uint8_t *at = record->headers;
    Field key, value;
    for (int32_t index = 0; index < record->headers_count; index++)
        if (!read_header(&at, record->end, &key, &value))
            return 0;
    return at == record->end;
}

INLINE int read_checked_record(const uint8_t **at, const uint8_t *end, Record *record)
{
    if (!read_record(at, end, record))
        return 0;
    if (LIKELY(record->headers_count == 0))
        return record->headers == record->end;
    return headers_fit(record);
}

typedef struct {
    int64_t min_timestamp;
    int64_t largest_timestamp;
    int64_t delta_of_largest;
    int64_t flags;
} Walk;

static const Walk NOT_WALKED = {-1, -1, -1, 0};

static int walk_records(const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_timestamp,
                        Walk *walk)
{
    Walk seen = {-1, -1, -1, WALKED};
    Record record;
    *walk = NOT_WALKED;
    if (count < 0)
        return BAD_RECORDS;
    for (int64_t index = 0; index < count; index++) {
        if (!read_checked_record(&at, end, &record))
            return BAD_RECORDS;
        int64_t timestamp = add64(base_timestamp, record.timestamp_delta);
        if (timestamp != -1 && (seen.min_timestamp == -1 || timestamp < seen.min_timestamp))
            seen.min_timestamp = timestamp;
        if (timestamp > seen.largest_timestamp) {
            seen.largest_timestamp = timestamp;
            seen.delta_of_largest = record.offset_delta;
        }
        if (record.key.start == NULL)
            seen.flags |= NULL_KEY;
        if (record.offset_delta != index)
            seen.flags |= SPARSE_OFFSETS;
    }
    if (at != end)
        return BAD_RECORDS;
    *walk = seen;
    return OK;
}

#endif
