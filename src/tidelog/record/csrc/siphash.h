/* SipHash-2-4 with 128 bits of output: a keyed hash, so that nobody can prepare two keys of one
 * hash. */
#ifndef TIDELOG_SIPHASH_H
#define TIDELOG_SIPHASH_H

#include "bytes.h"

typedef struct {
    uint64_t low, high;
} Hash;

INLINE uint64_t load64_little(const uint8_t *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24 |
           (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 |
           (uint64_t)at[7] << 56;
}

INLINE uint64_t rotate64(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

INLINE void sip_rounds(uint64_t *v, int rounds)
{
    while (rounds--) {
        v[0] += v[1];
        v[1] = rotate64(v[1], 13) ^ v[0];
        v[0] = rotate64(v[0], 32);
        v[2] += v[3];
        v[3] = rotate64(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate64(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate64(v[1], 17) ^ v[2];
        v[2] = rotate64(v[2], 32);
    }
}

INLINE void sip_word(uint64_t *v, uint64_t word)
{
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

static Hash siphash128(const uint64_t key[2], const uint8_t *at, int64_t length)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du ^ 0xee,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)length << 56;
    Hash hash;
    for (; length >= 8; at += 8, length -= 8)
        sip_word(v, load64_little(at));
    while (length--)
        last |= (uint64_t)at[length] << (8 * length);
    sip_word(v, last);
    v[2] ^= 0xee;
    sip_rounds(v, 4);
    hash.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    sip_rounds(v, 4);
    hash.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash;
}

#endif
