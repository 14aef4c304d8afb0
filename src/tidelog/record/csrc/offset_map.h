/* The offset map of the cleaner: the last offset of every key, by the key's hash.
 *
 * One flat buffer of 24-byte slots, numbers in native order: hash low u64, hash high u64, offset + 1
 * i64. A slot whose last field is 0 is empty, so that zeroed memory is an empty map. A hash is looked
 * for from slot `low % slots` on, wrapping at the end. */
#ifndef TIDELOG_OFFSET_MAP_H
#define TIDELOG_OFFSET_MAP_H

#include "arguments.h"
#include "bytes.h"

#include <string.h>

/* SipHash-2-4 with 128 bits of output: a keyed hash, so that nobody can prepare two keys of one
 * hash. */

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

#define SLOT_BYTES 24

typedef struct {
    uint8_t *slots;
    uint64_t slots_count;
    int64_t entries, entries_max;
    uint64_t key[2];
} OffsetMap;

typedef struct {
    Hash hash;
    int64_t offset_plus_one;
} Slot;

/* The slot that holds the hash, or the empty one where it would go; NULL when there is neither. */
INLINE uint8_t *find_slot(const OffsetMap *map, const Hash *hash, Slot *slot)
{
    uint64_t number = hash->low % map->slots_count;
    for (uint64_t probes = 0; probes < map->slots_count; probes++) {
        uint8_t *at = map->slots + number * SLOT_BYTES;
        memcpy(slot, at, SLOT_BYTES);
        if (slot->offset_plus_one == 0 ||
            (slot->hash.low == hash->low && slot->hash.high == hash->high))
            return at;
        if (++number == map->slots_count)
            number = 0;
    }
    return NULL;
}

/* The last offset of a key, -1 when the map does not know it. */
static int64_t offset_in_map(const OffsetMap *map, const uint8_t *key, int64_t length)
{
    Slot slot;
    Hash hash = siphash128(map->key, key, length);
    if (find_slot(map, &hash, &slot) == NULL)
        return -1;
    return slot.offset_plus_one - 1;
}

/* 0 when the map is full. */
static int put_in_map(OffsetMap *map, const uint8_t *key, int64_t length, int64_t offset)
{
    Slot slot;
    if (map->entries >= map->entries_max)
        return 0;
    Hash hash = siphash128(map->key, key, length);
    uint8_t *at = find_slot(map, &hash, &slot);
    if (at == NULL)
        return 0;
    map->entries += slot.offset_plus_one == 0;
    slot.hash = hash;
    slot.offset_plus_one = offset + 1;
    memcpy(at, &slot, SLOT_BYTES);
    return 1;
}

/* 0 when the buffers are no map and no key. */
static int open_map(const Py_buffer *slots, const Py_buffer *key, OffsetMap *map)
{
    if (slots->len < SLOT_BYTES || slots->len % SLOT_BYTES || key->len != 16) {
        PyErr_SetString(PyExc_ValueError, "no offset map and hash key");
        return 0;
    }
    map->slots = slots->buf;
    map->slots_count = (uint64_t)slots->len / SLOT_BYTES;
    map->key[0] = load64_little(key->buf);
    map->key[1] = load64_little((const uint8_t *)key->buf + 8);
    return 1;
}

#endif
