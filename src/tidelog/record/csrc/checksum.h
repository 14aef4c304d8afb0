/* CRC-32C by instruction or table, CRC-32 by table, xxHash-32. */
#ifndef TIDELOG_CHECKSUM_H
#define TIDELOG_CHECKSUM_H

#include "arguments.h"
#include "bytes.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_X86 1
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__)
#define CRC_ARM 1
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define CRC32C_POLYNOMIAL 0x82f63b78u
#define CRC32_POLYNOMIAL 0xedb88320u
#define LONG_LANE 4096u
#define SHORT_LANE 256u

typedef uint32_t Tables[8][256];

static Tables crc32c_tables;
static Tables crc32_tables;
static uint32_t long_shift[4][256];  /* advances a crc over LONG_LANE zero bytes */
static uint32_t short_shift[4][256]; /* the same over SHORT_LANE */

static void fill_tables(Tables tables, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = tables[slice - 1][byte];
            tables[slice][byte] = crc >> 8 ^ tables[0][crc & 0xff];
        }
}

/* Product of two polynomials modulo CRC-32C's, bit 31 being the coefficient of x^0. */
static uint32_t multiply(uint32_t left, uint32_t right)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (left & bit)
            product ^= right;
        right = right & 1 ? right >> 1 ^ CRC32C_POLYNOMIAL : right >> 1;
    }
    return product;
}

static void fill_shift(uint32_t shift[4][256], uint32_t lane_bytes)
{
    uint32_t operator = 1u << 31, square = 1u << 30;
    for (uint32_t power = lane_bytes * 8; power; power >>= 1) {
        if (power & 1)
            operator = multiply(operator, square);
        square = multiply(square, square);
    }
    for (int place = 0; place < 4; place++) {
        shift[place][0] = 0;
        for (uint32_t bit = 1; bit < 256; bit <<= 1) {
            uint32_t image = multiply(operator, bit << (8 * place));
            for (uint32_t below = 0; below < bit; below++)
                shift[place][bit | below] = image ^ shift[place][below];
        }
    }
}

static uint32_t crc_by_table(Tables tables, uint32_t crc, const uint8_t *at, size_t length)
{
    while (length >= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^
              tables[4][low >> 24] ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^
              tables[0][at[7]];
        at += 8;
        length -= 8;
    }
    while (length--)
        crc = tables[0][(crc ^ *at++) & 0xff] ^ crc >> 8;
    return crc;
}

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *at, size_t length)
{
    return crc_by_table(crc32c_tables, crc, at, length);
}

#if defined(CRC_X86) || defined(CRC_ARM)
#if defined(CRC_X86)
#define CRC_TARGET __attribute__((target("sse4.2")))
#define STEP8(crc, word) (uint64_t)_mm_crc32_u64(crc, word)
#define STEP1(crc, byte) _mm_crc32_u8(crc, byte)
#else
#define CRC_TARGET __attribute__((target("+crc")))
#define STEP8(crc, word) (uint64_t)__crc32cd((uint32_t)(crc), word)
#define STEP1(crc, byte) __crc32cb(crc, byte)
#endif

INLINE uint64_t native64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

INLINE uint32_t shifted(uint32_t shift[4][256], uint64_t crc)
{
    return shift[0][crc & 0xff] ^ shift[1][crc >> 8 & 0xff] ^ shift[2][crc >> 16 & 0xff] ^
           shift[3][crc >> 24 & 0xff];
}

/* The instruction takes three cycles but starts every cycle: three lanes keep it busy. */
CRC_TARGET static uint32_t crc32c_by_lanes(uint32_t start, const uint8_t **data, size_t *length,
                                           size_t lane, uint32_t shift[4][256])
{
    uint64_t crc = start;
    const uint8_t *at = *data;
    while (*length >= 3 * lane) {
        uint64_t second = 0, third = 0;
        const uint8_t *end = at + lane;
        do {
            crc = STEP8(crc, native64(at));
            second = STEP8(second, native64(at + lane));
            third = STEP8(third, native64(at + 2 * lane));
            at += 8;
        } while (at < end);
        crc = shifted(shift, crc) ^ second;
        crc = shifted(shift, crc) ^ third;
        at += 2 * lane;
        *length -= 3 * lane;
    }
    *data = at;
    return (uint32_t)crc;
}

CRC_TARGET static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *at, size_t length)
{
    crc = crc32c_by_lanes(crc, &at, &length, LONG_LANE, long_shift);
    crc = crc32c_by_lanes(crc, &at, &length, SHORT_LANE, short_shift);
    uint64_t wide = crc;
    while (length >= 8) {
        wide = STEP8(wide, native64(at));
        at += 8;
        length -= 8;
    }
    crc = (uint32_t)wide;
    while (length--)
        crc = STEP1(crc, *at++);
    return crc;
}
#endif

static uint32_t (*crc32c_update)(uint32_t, const uint8_t *, size_t) = crc32c_by_table;

static int has_crc_instruction(void)
{
#if defined(CRC_X86)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
#elif defined(CRC_ARM) && defined(__linux__)
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;
#elif defined(CRC_ARM) && defined(__APPLE__)
    return 1;
#else
    return 0;
#endif
}

static void prepare_checksums(void)
{
    fill_tables(crc32c_tables, CRC32C_POLYNOMIAL);
    fill_tables(crc32_tables, CRC32_POLYNOMIAL);
    fill_shift(long_shift, LONG_LANE);
    fill_shift(short_shift, SHORT_LANE);
#if defined(CRC_X86) || defined(CRC_ARM)
    if (has_crc_instruction())
        crc32c_update = crc32c_by_instruction;
#else
    (void)has_crc_instruction;
#endif
}

static uint32_t crc32c_of(const uint8_t *at, size_t length)
{
    return ~crc32c_update(~0u, at, length);
}

static uint32_t crc32_of(const uint8_t *at, size_t length)
{
    return ~crc_by_table(crc32_tables, ~0u, at, length);
}

/* xxh32: xxHash-32 with seed 0, the checksum of LZ4 frames. */

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
