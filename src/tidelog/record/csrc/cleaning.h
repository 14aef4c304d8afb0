/* list_transactional, map_batches and filter_batches: the passes of the log cleaner.
 *
 * First what they have in common: the walk over whole batches in order, and the verdicts on those
 * that belong to transactions. */
#ifndef TIDELOG_CLEANING_H
#define TIDELOG_CLEANING_H

#include "batches.h"
#include "bytes.h"
#include "messages.h"
#include "offset_map.h"
#include "results.h"
#include "scan.h"

enum { NEEDS_INFLATION = 11, MAP_FULL = 12, OUTPUT_FULL = 13, TOO_FEW_VERDICTS = -2 };
enum { FILTER_RECORDS, DELETE_BATCH, EMPTY_BATCH, KEEP_BATCH, SET_HORIZON };
enum { APPEND_TIME_BIT = 0x08, TRANSACTION_BITS = 0x30, CONTROL_BIT = 0x20, HORIZON_BIT = 0x40 };

typedef struct {
    const uint8_t *data;
    int64_t position, end, next_offset, verify_crc;
    const uint8_t *verdicts;
    int64_t verdicts_count, verdicts_used;
} Walker;

/* The batch at the walker's position, whole and sound; or why there is none. */
static int next_batch(const Walker *walker, Batch *batch)
{
    int why = read_batch(walker->data, walker->position, walker->end, batch);
    if (why != AT_END)
        return why;
    if (batch->size > walker->end - walker->position)
        return INCOMPLETE;
    if (walker->verify_crc && !crc_holds(walker->data, batch))
        return BAD_CRC;
    if (batch->base_offset < walker->next_offset || batch->last_offset < batch->base_offset ||
        batch->last_offset == INT64_MAX)
        return BAD_OFFSET;
    return AT_END;
}

INLINE int has_verdict(const Batch *batch)
{
    return batch->magic == 2 && (batch->attributes & TRANSACTION_BITS);
}

/* Only batches that belong to transactions have one of their own. */
static int verdict_on(const Walker *walker, const Batch *batch)
{
    if (!has_verdict(batch))
        return FILTER_RECORDS;
    if (walker->verdicts_used >= walker->verdicts_count)
        return TOO_FEW_VERDICTS;
    return walker->verdicts[walker->verdicts_used];
}

static void step_over(Walker *walker, const Batch *batch)
{
    walker->verdicts_used += has_verdict(batch);
    walker->next_offset = batch->last_offset + 1;
    walker->position += batch->size;
}

INLINE int offset_fits(const Batch *batch, const Record *record)
{
    return record->offset_delta >= 0 &&
           record->offset_delta <= batch->last_offset - batch->base_offset;
}

/* Key and value of an uncompressed message of an old format. */
static int read_message_fields(const uint8_t *at, const Batch *batch, Content *key, Content *value)
{
    const uint8_t *field = at + (batch->magic == 0 ? V0_FIELDS_AT : V1_FIELDS_AT);
    const uint8_t *end = at + batch->size;
    return read_sized(&field, end, key) && read_sized(&field, end, value);
}

static PyObject *too_few_verdicts(void)
{
    PyErr_SetString(PyExc_ValueError, "a transactional batch without a verdict");
    return NULL;
}

/* A BatchWalk of _results.py, but for its two buffers. */
static int take_walk(PyObject *argument, Walker *walker, PyObject **buffer, PyObject **verdicts)
{
    PyObject *items[6];
    int64_t numbers[4];
    if (!take_items(argument, 6, items) || !take_ints(items + 2, 4, numbers))
        return 0;
    *buffer = items[0];
    *verdicts = items[1];
    walker->position = numbers[0];
    walker->end = numbers[1];
    walker->next_offset = numbers[2];
    walker->verify_crc = numbers[3];
    return 1;
}

/* A KeyOffsets of _results.py; its two buffers, slots and hash key, go to `buffers`. */
static int take_map(PyObject *argument, OffsetMap *map, int64_t *latest_offset, PyObject **buffers)
{
    PyObject *items[5];
    int64_t numbers[3];
    if (!take_items(argument, 5, items) || !take_ints(items + 2, 3, numbers))
        return 0;
    buffers[0] = items[0];
    buffers[1] = items[1];
    map->entries = numbers[0];
    map->entries_max = numbers[1];
    *latest_offset = numbers[2];
    return 1;
}

/* Takes the buffers of arguments[0], [1], ... in turn; the number of those taken. */
static int take_buffers(PyObject *const *arguments, const int *flags, int count, Py_buffer *views)
{
    int taken = 0;
    while (taken < count && PyObject_GetBuffer(arguments[taken], &views[taken], flags[taken]) == 0)
        taken++;
    return taken;
}

static void release_buffers(Py_buffer *views, int count)
{
    while (count > 0)
        PyBuffer_Release(&views[--count]);
}

/* list_transactional. */

#define TRANSACTIONAL_COLUMNS 7

static int note_transactional(const uint8_t *data, const Batch *batch, Bytes *rows)
{
    int64_t type, epoch;
    read_control(data + batch->position, batch, &type, &epoch);
    int64_t values[TRANSACTIONAL_COLUMNS] = {
        batch->last_offset, batch->attributes,    batch->producer_id, batch->producer_epoch,
        batch->base_timestamp, batch->records_count, type};
    uint8_t *place = grow(rows, sizeof values);
    if (place == NULL)
        return 0;
    memcpy(place, values, sizeof values);
    return 1;
}

static int list_transactional(const uint8_t *data, int64_t position, int64_t end, Bytes *rows)
{
    Batch batch;
    while (position < end && read_batch(data, position, end, &batch) == AT_END &&
           batch.size <= end - position) {
        if (has_verdict(&batch) && !note_transactional(data, &batch, rows))
            return 0;
        position += batch.size;
    }
    return 1;
}

static PyObject *kernel_list_transactional(PyObject *module, PyObject *const *arguments,
                                           Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[2];
    Bytes rows = {0};
    PyObject *answer = NULL;
    if (!count_arguments("list_transactional", given, 3, 3) ||
        !take_ints(arguments + 1, 2, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (require_range(&view, numbers[0], numbers[1])) {
        int done;
        Py_BEGIN_ALLOW_THREADS
        done = list_transactional(view.buf, numbers[0], numbers[1], &rows);
        Py_END_ALLOW_THREADS
        answer = done ? list_of_rows(&TRANSACTIONAL_BATCH, &rows, TRANSACTIONAL_COLUMNS) : PyErr_NoMemory();
    }
    free(rows.data);
    PyBuffer_Release(&view);
    return answer;
}

/* map_batches. */

typedef struct {
    Walker walker;
    OffsetMap map;
    int64_t start_offset, latest_offset, records;
} Mapping;

static int map_key(Mapping *mapping, const uint8_t *key, int64_t length, int64_t offset)
{
    if (key == NULL || offset < mapping->start_offset)
        return AT_END;
    if (!put_in_map(&mapping->map, key, length, offset))
        return MAP_FULL;
    mapping->latest_offset = offset;
    return AT_END;
}

static int map_records(Mapping *mapping, const Batch *batch)
{
    const uint8_t *at = mapping->walker.data + batch->position + HEADER_SIZE;
    const uint8_t *end = mapping->walker.data + batch->position + batch->size;
    Record record;
    if (batch->records_count < 0)
        return BAD_RECORDS;
    for (int64_t index = 0; index < batch->records_count; index++) {
        if (!read_checked_record(&at, end, &record) || !offset_fits(batch, &record))
            return BAD_RECORDS;
        int why = map_key(mapping, record.key.start, record.key.length,
                          batch->base_offset + record.offset_delta);
        if (why != AT_END)
            return why;
    }
    if (at != end)
        return BAD_RECORDS;
    mapping->records += batch->records_count;
    return AT_END;
}

static int map_message(Mapping *mapping, const Batch *batch)
{
    Content key, value;
    if (!read_message_fields(mapping->walker.data + batch->position, batch, &key, &value))
        return BAD_RECORDS;
    mapping->records++;
    return map_key(mapping, key.start, key.length, batch->base_offset);
}

static int map_batch(Mapping *mapping, const Batch *batch)
{
    int verdict = verdict_on(&mapping->walker, batch);
    if (verdict == TOO_FEW_VERDICTS)
        return TOO_FEW_VERDICTS;
    if (verdict != FILTER_RECORDS || batch->last_offset < mapping->start_offset)
        return AT_END;
    if (batch->attributes & 7)
        return NEEDS_INFLATION;
    return batch->magic == 2 ? map_records(mapping, batch) : map_message(mapping, batch);
}

static int map_all(Mapping *mapping)
{
    Walker *walker = &mapping->walker;
    Batch batch;
    while (walker->position < walker->end) {
        int why = next_batch(walker, &batch);
        if (why == AT_END)
            why = map_batch(mapping, &batch);
        if (why != AT_END)
            return why;
        if (batch.last_offset >= mapping->start_offset)
            mapping->latest_offset = batch.last_offset;
        step_over(walker, &batch);
    }
    return AT_END;
}

static PyObject *map_into(const Py_buffer *views, Mapping *mapping)
{
    Walker *walker = &mapping->walker;
    if (!require_range(&views[0], walker->position, walker->end) ||
        !open_map(&views[1], &views[2], &mapping->map))
        return NULL;
    walker->data = views[0].buf;
    walker->verdicts = views[3].buf;
    walker->verdicts_count = views[3].len;
    int why;
    Py_BEGIN_ALLOW_THREADS
    why = map_all(mapping);
    Py_END_ALLOW_THREADS
    if (why == TOO_FEW_VERDICTS)
        return too_few_verdicts();
    int64_t values[7] = {walker->position,       why,
                         walker->next_offset,    mapping->map.entries,
                         mapping->latest_offset, walker->verdicts_used,
                         mapping->records};
    return named_ints(&MAPPED, values, 7);
}

static PyObject *kernel_map_batches(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    static const int flags[4] = {PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_SIMPLE, PyBUF_SIMPLE};
    Py_buffer views[4];
    PyObject *buffers[4];
    Mapping mapping = {0};
    PyObject *answer = NULL;
    if (!count_arguments("map_batches", given, 3, 3) ||
        !take_walk(arguments[0], &mapping.walker, &buffers[0], &buffers[3]) ||
        !take_map(arguments[1], &mapping.map, &mapping.latest_offset, &buffers[1]) ||
        !take_ints(arguments + 2, 1, &mapping.start_offset))
        return NULL;
    int taken = take_buffers(buffers, flags, 4, views);
    if (taken == 4)
        answer = map_into(views, &mapping);
    release_buffers(views, taken);
    return answer;
}

/* filter_batches. */

/* How much longer a record may become when its timestamp is relative to something else: a varlong
 * and one more byte of the length before it. */
#define RECORD_GROWTH_MAX 10

typedef struct {
    Walker walker;
    OffsetMap map;
    int64_t latest_offset, now_ms, horizon_ms, keep_old_tombstones;
    const uint8_t *kept_offsets; /* i64, native order, ascending */
    int64_t kept_offsets_count;
    uint8_t *output;
    int64_t output_room, output_used;
    int64_t records_read, records_kept, batches_rewritten, records_without_key;
    Bytes keep; /* of the batch at hand: 1 for each record that stays */
} Filter;

static int is_kept_offset(const Filter *filter, int64_t offset)
{
    int64_t low = 0, high = filter->kept_offsets_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2, value;
        memcpy(&value, filter->kept_offsets + middle * 8, 8);
        if (value == offset)
            return 1;
        if (value < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

static int copy_batch(Filter *filter, const Batch *batch)
{
    if (batch->size > filter->output_room - filter->output_used)
        return OUTPUT_FULL;
    memcpy(filter->output + filter->output_used, filter->walker.data + batch->position,
           (size_t)batch->size);
    filter->output_used += batch->size;
    return AT_END;
}

/* The header at `at` for `records_size` bytes of records behind it, checksum and all. */
static void seal_header(uint8_t *at, int64_t records_size, int64_t attributes,
                        int64_t base_timestamp, int64_t max_timestamp, int64_t records_count)
{
    store32(at + 8, (uint32_t)(HEADER_SIZE - OVERHEAD + records_size));
    at[21] = (uint8_t)(attributes >> 8);
    at[22] = (uint8_t)attributes;
    store64(at + 27, (uint64_t)base_timestamp);
    store64(at + 35, (uint64_t)max_timestamp);
    store32(at + 57, (uint32_t)records_count);
    store32(at + 17,
            crc32c_of(at + CRC_START, (size_t)(HEADER_SIZE - CRC_START + records_size)));
}

/* A batch without records, which keeps offsets, producer and sequence. */
static int empty_batch(Filter *filter, const Batch *batch)
{
    if (HEADER_SIZE > filter->output_room - filter->output_used)
        return OUTPUT_FULL;
    uint8_t *at = filter->output + filter->output_used;
    memcpy(at, filter->walker.data + batch->position, HEADER_SIZE);
    seal_header(at, 0, batch->attributes & (APPEND_TIME_BIT | TRANSACTION_BITS), -1,
                batch->max_timestamp, 0);
    filter->output_used += HEADER_SIZE;
    filter->batches_rewritten++;
    return AT_END;
}

static int maybe_empty_batch(Filter *filter, const Batch *batch)
{
    return is_kept_offset(filter, batch->last_offset) ? empty_batch(filter, batch) : AT_END;
}

static int key_stays(Filter *filter, const uint8_t *key, int64_t length, int64_t offset)
{
    if (key == NULL) {
        filter->records_without_key++;
        return 0;
    }
    return offset >= offset_in_map(&filter->map, key, length);
}

typedef struct {
    int64_t kept;
    int has_tombstone;
} Decision;

/* Decides on every record; the answers lie in filter->keep. */
static int decide(Filter *filter, const Batch *batch, Decision *decision)
{
    const uint8_t *at = filter->walker.data + batch->position + HEADER_SIZE;
    const uint8_t *end = filter->walker.data + batch->position + batch->size;
    int keep_tombstones =
        !(batch->attributes & HORIZON_BIT) || filter->now_ms < batch->base_timestamp;
    Record record;
    filter->keep.length = 0;
    decision->kept = decision->has_tombstone = 0;
    if (batch->records_count < 0)
        return BAD_RECORDS;
    for (int64_t index = 0; index < batch->records_count; index++) {
        if (!read_checked_record(&at, end, &record) || !offset_fits(batch, &record))
            return BAD_RECORDS;
        int64_t offset = batch->base_offset + record.offset_delta;
        uint8_t *keep = grow(&filter->keep, 1);
        if (keep == NULL)
            return -1;
        *keep = offset > filter->latest_offset ||
                (key_stays(filter, record.key.start, record.key.length, offset) &&
                 (record.value.start != NULL || keep_tombstones));
        decision->kept += *keep;
        decision->has_tombstone |= *keep && record.value.start == NULL;
    }
    return at == end ? AT_END : BAD_RECORDS;
}

static void keep_all(Filter *filter, const Batch *batch, Decision *decision)
{
    decision->kept = batch->records_count;
    decision->has_tombstone = 0;
    filter->keep.length = 0;
}

INLINE uint8_t *rewrite_record(uint8_t *at, const Record *record, int64_t timestamp_delta)
{
    Content key = {record->key.start, record->key.length};
    Content value = {record->value.start, record->value.length};
    int64_t headers_size = record->end - record->headers;
    int64_t body_size = record_body_size(timestamp_delta, record->offset_delta, &key, &value,
                                         record->headers_count) +
                        headers_size;
    at = write_record_start(at, body_size, timestamp_delta, record->offset_delta, &key, &value,
                            record->headers_count);
    memcpy(at, record->headers, (size_t)headers_size);
    return at + headers_size;
}

/* The records that stay, under the same offsets and sequences. horizon_ms is -1 or takes the place
 * of the base timestamp. */
static int rewrite_batch(Filter *filter, const Batch *batch, int64_t kept, int64_t horizon_ms)
{
    const uint8_t *source = filter->walker.data + batch->position;
    const uint8_t *at = source + HEADER_SIZE, *end = source + batch->size;
    const uint8_t *keep = filter->keep.length ? filter->keep.data : NULL;
    if (batch->size + kept * RECORD_GROWTH_MAX > filter->output_room - filter->output_used)
        return OUTPUT_FULL;
    uint8_t *header = filter->output + filter->output_used, *place = header + HEADER_SIZE;
    int is_append_time = (batch->attributes & APPEND_TIME_BIT) != 0;
    int64_t base_timestamp = horizon_ms, max_timestamp = -1, written = 0;
    Record record;
    for (int64_t index = 0; index < batch->records_count; index++) {
        if (!read_checked_record(&at, end, &record))
            return BAD_RECORDS;
        if (keep != NULL && !keep[index])
            continue;
        int64_t timestamp = is_append_time ? batch->max_timestamp
                                           : add64(batch->base_timestamp, record.timestamp_delta);
        if (written++ == 0 && horizon_ms < 0)
            base_timestamp = timestamp;
        if (timestamp > max_timestamp)
            max_timestamp = timestamp;
        place = rewrite_record(place, &record, sub64(timestamp, base_timestamp));
    }
    if (at != end)
        return BAD_RECORDS;
    memcpy(header, source, HEADER_SIZE);
    seal_header(header, place - header - HEADER_SIZE,
                (batch->attributes & ~HORIZON_BIT) | (horizon_ms < 0 ? 0 : HORIZON_BIT),
                base_timestamp, is_append_time ? batch->max_timestamp : max_timestamp, written);
    filter->output_used = place - filter->output;
    filter->batches_rewritten++;
    return AT_END;
}

static int filter_records(Filter *filter, const Batch *batch, int sets_horizon)
{
    Decision decision;
    int64_t keyless = filter->records_without_key;
    int why = AT_END;
    int has_horizon = (batch->attributes & HORIZON_BIT) != 0;
    if (batch->attributes & 7)
        return NEEDS_INFLATION;
    if (sets_horizon)
        keep_all(filter, batch, &decision);
    else
        why = decide(filter, batch, &decision);
    if (why == AT_END) {
        int needs_horizon = sets_horizon || (decision.has_tombstone && !has_horizon);
        if (filter->horizon_ms < 0 || has_horizon)
            needs_horizon = 0;
        if (decision.kept <= 0)
            why = maybe_empty_batch(filter, batch);
        else if (decision.kept == batch->records_count && !needs_horizon)
            why = copy_batch(filter, batch);
        else
            why = rewrite_batch(filter, batch, decision.kept,
                                needs_horizon ? filter->horizon_ms
                                : has_horizon ? batch->base_timestamp
                                              : -1);
    }
    if (why == AT_END)
        filter->records_kept += decision.kept;
    else
        filter->records_without_key = keyless;
    return why;
}

static int filter_message(Filter *filter, const Batch *batch)
{
    Content key, value;
    int64_t keyless = filter->records_without_key;
    if (batch->attributes & 7)
        return NEEDS_INFLATION;
    if (!read_message_fields(filter->walker.data + batch->position, batch, &key, &value))
        return BAD_RECORDS;
    int stays = batch->base_offset > filter->latest_offset ||
                (key_stays(filter, key.start, key.length, batch->base_offset) &&
                 (value.start != NULL || filter->keep_old_tombstones));
    int why = stays ? copy_batch(filter, batch) : AT_END;
    if (why == AT_END)
        filter->records_kept += stays;
    else
        filter->records_without_key = keyless;
    return why;
}

static int filter_batch(Filter *filter, const Batch *batch)
{
    int why = AT_END;
    switch (verdict_on(&filter->walker, batch)) {
    case TOO_FEW_VERDICTS:
        return TOO_FEW_VERDICTS;
    case DELETE_BATCH:
        return AT_END;
    case EMPTY_BATCH:
        return empty_batch(filter, batch);
    case KEEP_BATCH:
        why = copy_batch(filter, batch);
        if (why == AT_END)
            filter->records_kept += batch->records_count;
        return why;
    case SET_HORIZON:
        return filter_records(filter, batch, 1);
    default:
        return batch->magic == 2 ? filter_records(filter, batch, 0)
                                 : filter_message(filter, batch);
    }
}

static int filter_all(Filter *filter)
{
    Walker *walker = &filter->walker;
    Batch batch;
    while (walker->position < walker->end) {
        int why = next_batch(walker, &batch);
        if (why == AT_END)
            why = filter_batch(filter, &batch);
        if (why != AT_END)
            return why;
        filter->records_read += batch.records_count;
        step_over(walker, &batch);
    }
    return AT_END;
}

static PyObject *filter_into(const Py_buffer *views, Filter *filter)
{
    Walker *walker = &filter->walker;
    if (!require_range(&views[0], walker->position, walker->end) ||
        !open_map(&views[1], &views[2], &filter->map))
        return NULL;
    walker->data = views[0].buf;
    walker->verdicts = views[3].buf;
    walker->verdicts_count = views[3].len;
    filter->kept_offsets = views[4].buf;
    filter->kept_offsets_count = views[4].len / 8;
    filter->output = views[5].buf;
    filter->output_room = views[5].len;
    int why;
    Py_BEGIN_ALLOW_THREADS
    why = filter_all(filter);
    free(filter->keep.data);
    Py_END_ALLOW_THREADS
    if (why == -1)
        return PyErr_NoMemory();
    if (why == TOO_FEW_VERDICTS)
        return too_few_verdicts();
    int64_t values[9] = {walker->position,      why,
                         walker->next_offset,   filter->output_used,
                         walker->verdicts_used, filter->records_read,
                         filter->records_kept,  filter->batches_rewritten,
                         filter->records_without_key};
    return named_ints(&FILTERED, values, 9);
}

static PyObject *kernel_filter_batches(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    static const int flags[6] = {PyBUF_SIMPLE, PyBUF_SIMPLE, PyBUF_SIMPLE,
                                 PyBUF_SIMPLE, PyBUF_SIMPLE, PyBUF_WRITABLE};
    Py_buffer views[6];
    PyObject *buffers[6], *rules[4];
    int64_t numbers[3];
    Filter filter = {0};
    PyObject *answer = NULL;
    if (!count_arguments("filter_batches", given, 4, 4) ||
        !take_walk(arguments[0], &filter.walker, &buffers[0], &buffers[3]) ||
        !take_map(arguments[1], &filter.map, &filter.latest_offset, &buffers[1]) ||
        !take_items(arguments[2], 4, rules) || !take_ints(rules + 1, 3, numbers))
        return NULL;
    buffers[4] = rules[0];
    buffers[5] = arguments[3];
    filter.now_ms = numbers[0];
    filter.horizon_ms = numbers[1];
    filter.keep_old_tombstones = numbers[2];
    int taken = take_buffers(buffers, flags, 6, views);
    if (taken == 6)
        answer = filter_into(views, &filter);
    release_buffers(views, taken);
    return answer;
}

#endif
