/* Big-endian numbers in memory, sums that wrap as Java's do, and bytes that grow. */
#ifndef TIDELOG_BYTES_H
#define TIDELOG_BYTES_H

#include <stdint.h>
#include <stdlib.h>

#if defined(__GNUC__)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(condition) (condition)
#define INLINE static inline
#endif

INLINE uint16_t load16(const uint8_t *at) { return (uint16_t)((uint32_t)at[0] << 8 | at[1]); }

INLINE uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

INLINE uint64_t load64(const uint8_t *at) { return (uint64_t)load32(at) << 32 | load32(at + 4); }

INLINE void store16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

INLINE void store32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

INLINE void store64(uint8_t *at, uint64_t value)
{
    store32(at, (uint32_t)(value >> 32));
    store32(at + 4, (uint32_t)value);
}

INLINE int64_t add64(int64_t left, int64_t right)
{
    return (int64_t)((uint64_t)left + (uint64_t)right);
}

INLINE int64_t sub64(int64_t left, int64_t right)
{
    return (int64_t)((uint64_t)left - (uint64_t)right);
}

/* Bytes that grow outside the GIL, so not Python objects. */

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
