/* What a control batch says. */
#ifndef TIDELOG_CONTROL_H
#define TIDELOG_CONTROL_H

#include "batches.h"

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
