/* The offset map of the cleaner: the last offset of every key, by the key's hash.
 *
 * One flat buffer of 24-byte slots, numbers in native order: hash low u64, hash high u64, offset + 1
 * i64. A slot whose last field is 0 is empty, so that zeroed memory is an empty map. A hash is looked
 * for from slot `low % slots` on, wrapping at the end. */
#ifndef TIDELOG_OFFSET_MAP_H
#define TIDELOG_OFFSET_MAP_H

#include "arguments.h"
#include "siphash.h"

#include <string.h>

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
