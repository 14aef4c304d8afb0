/* CRC-32C by instruction or table, CRC-32 by table. */
#ifndef TIDELOG_CHECKSUM_H
#define TIDELOG_CHECKSUM_H

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

#endif
