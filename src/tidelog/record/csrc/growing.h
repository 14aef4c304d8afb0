/* Bytes that grow outside the GIL, so not Python objects. */
#ifndef TIDELOG_GROWING_H
#define TIDELOG_GROWING_H

#include <stdint.h>
#include <stdlib.h>

typedef struct {
    uint8_t *data;
    size_t length, capacity;
} Bytes;

static uint8_t *grow(Bytes *bytes, size_t more)
{
    if (bytes->data == NULL || bytes->capacity - bytes->length < more) {
        size_t capacity = bytes->capacity * 2 + more + 256;
        uint8_t *data = realloc(bytes->data, capacity);
        if (data == NULL)
            return NULL;
        bytes->data = data;
        bytes->capacity = capacity;
    }
    uint8_t *place = bytes->data + bytes->length;
    bytes->length += more;
    return place;
}

#endif
