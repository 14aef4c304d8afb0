/* Headers of batches of any magic, the check of a v2 batch as a whole, and what a control batch
 * says. */
#ifndef TIDELOG_BATCHES_H
#define TIDELOG_BATCHES_H

#include "checksum.h"
#include "records.h"

enum { AT_END = 0, INCOMPLETE = 1, BAD_OFFSET = 7, AT_LIMIT = 8 };
enum {
    OVERHEAD = 12,
    MAGIC_AT = 16,
    V0_SIZE_MIN = 14,
    V1_SIZE_MIN = 22,
    HEADER_SIZE = 61,
    CRC_START = 21
};

typedef struct {
    int64_t position, size, magic, attributes, base_offset, last_offset, leader_epoch;
    int64_t base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence;
    int64_t records_count;
} Batch;

static void read_v2_header(const uint8_t *at, Batch *batch)
{
    batch->magic = 2;
    batch->base_offset = (int64_t)load64(at);
    batch->leader_epoch = (int32_t)load32(at + 12);
    batch->attributes = (int16_t)load16(at + 21);
    batch->last_offset = add64(batch->base_offset, (int32_t)load32(at + 23));
    batch->base_timestamp = (int64_t)load64(at + 27);
    batch->max_timestamp = (int64_t)load64(at + 35);
    batch->producer_id = (int64_t)load64(at + 43);
    batch->producer_epoch = (int16_t)load16(at + 51);
    batch->base_sequence = (int32_t)load32(at + 53);
    batch->records_count = (int32_t)load32(at + 57);
}

static int read_legacy_header(const uint8_t *at, int64_t left, int64_t size, Batch *batch)
{
    int64_t timestamp = -1;
    if (batch->magic == 1) {
        if (size < V1_SIZE_MIN)
            return BAD_SIZE;
        if (left < 26)
            return INCOMPLETE;
        timestamp = (int64_t)load64(at + 18);
    } else if (left < 18) {
        return INCOMPLETE;
    }
    batch->attributes = at[17];
    batch->base_offset = batch->last_offset = (int64_t)load64(at);
    batch->leader_epoch = batch->producer_id = batch->producer_epoch = batch->base_sequence = -1;
    batch->base_timestamp = batch->max_timestamp = timestamp;
    batch->records_count = batch->attributes & 7 ? -1 : 1;
    return AT_END;
}

/* The header of the batch at `position`, of which only the header need lie before `end`. */
static int read_batch(const uint8_t *data, int64_t position, int64_t end, Batch *batch)
{
    const uint8_t *at = data + position;
    int64_t left = end - position;
    if (left < MAGIC_AT + 1)
        return INCOMPLETE;
    int64_t size = (int32_t)load32(at + 8);
    if (size < V0_SIZE_MIN)
        return BAD_SIZE;
    if (at[MAGIC_AT] > 2)
        return BAD_MAGIC;
    batch->position = position;
    batch->size = size + OVERHEAD;
    batch->magic = at[MAGIC_AT];
    if (batch->magic < 2)
        return read_legacy_header(at, left, size, batch);
    if (batch->size < HEADER_SIZE)
        return BAD_SIZE;
    if (left < HEADER_SIZE)
        return INCOMPLETE;
    read_v2_header(at, batch);
    return AT_END;
}

static int crc_holds(const uint8_t *data, const Batch *batch)
{
    const uint8_t *at = data + batch->position;
    size_t size = (size_t)batch->size;
    if (batch->magic == 2)
        return crc32c_of(at + CRC_START, size - CRC_START) == load32(at + 17);
    return crc32_of(at + MAGIC_AT, size - MAGIC_AT) == load32(at + OVERHEAD);
}

static int check_v2(const uint8_t *at, int64_t size, Batch *batch, Walk *walk)
{
    batch->position = 0;
    batch->size = size;
    read_v2_header(at, batch);
    if (!crc_holds(at, batch))
        return BAD_CRC;
    if (batch->attributes & 7)
        return OK;
    return walk_records(at + HEADER_SIZE, at + size, batch->records_count, batch->base_timestamp,
                        walk);
}

/* (control type, coordinator epoch) of a control batch's first record; -1 what is not there. */
static void read_control(const uint8_t *at, const Batch *batch, int64_t *type, int64_t *epoch)
{
    const uint8_t *next = at + HEADER_SIZE, *end = at + batch->size;
    int32_t length, offset_delta;
    int64_t timestamp_delta;
    Field key, value;
    *type = *epoch = -1;
    if ((batch->attributes & 0x27) != 0x20 || batch->records_count < 1)
        return;
    if (!read_varint(&next, end, &length) || next >= end)
        return;
    next++;
    if (!read_varlong(&next, end, &timestamp_delta) || !read_varint(&next, end, &offset_delta) ||
        !read_field(&next, end, &key) || !read_field(&next, end, &value))
        return;
    if (key.start == NULL || key.length < 4)
        return;
    *type = (int16_t)load16(key.start + 2);
    if (value.start != NULL && value.length >= 6)
        *epoch = (int32_t)load32(value.start + 2);
}

#endif
