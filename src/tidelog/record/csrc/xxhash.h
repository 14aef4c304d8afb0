/* xxh32: xxHash-32 with seed 0, the checksum of LZ4 frames. */
#ifndef TIDELOG_XXHASH_H
#define TIDELOG_XXHASH_H

#include "arguments.h"
#include "bytes.h"

#include <stddef.h>

#define XXH_1 0x9e3779b1u
#define XXH_2 0x85ebca77u
#define XXH_3 0xc2b2ae3du
#define XXH_4 0x27d4eb2fu
#define XXH_5 0x165667b1u

INLINE uint32_t rotate_left(uint32_t value, int by) { return value << by | value >> (32 - by); }

INLINE uint32_t load32_little(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t xxh32_of(const uint8_t *at, size_t length)
{
    const uint8_t *end = at + length;
    uint32_t digest = XXH_5;
    if (length >= 16) {
        uint32_t lanes[4] = {XXH_1 + XXH_2, XXH_2, 0, 0u - XXH_1};
        for (; end - at >= 16; at += 16)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] =
                    rotate_left(lanes[lane] + load32_little(at + 4 * lane) * XXH_2, 13) * XXH_1;
        digest = rotate_left(lanes[0], 1) + rotate_left(lanes[1], 7) + rotate_left(lanes[2], 12) +
                 rotate_left(lanes[3], 18);
    }
    digest += (uint32_t)length;
    for (; end - at >= 4; at += 4)
        digest = rotate_left(digest + load32_little(at) * XXH_3, 17) * XXH_4;
    while (at < end)
        digest = rotate_left(digest + *at++ * XXH_5, 11) * XXH_1;
    digest = (digest ^ digest >> 15) * XXH_2;
    digest = (digest ^ digest >> 13) * XXH_3;
    return digest ^ digest >> 16;
}

static PyObject *kernel_xxh32(PyObject *module, PyObject *data)
{
    (void)module;
    Py_buffer view;
    uint32_t digest;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        digest = xxh32_of(view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    } else {
        digest = xxh32_of(view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(digest);
}

#endif
