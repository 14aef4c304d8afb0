/* The record kernel: checksums, batch and record walks, columns. Documented in kernel.py; the
 * readable statement of the same rules is _pure.py, and tests hold the two equal.
 *
 * Every byte that comes from outside is read through a bound: a varint knows the end of its record,
 * a field's length is compared with what is left before it is used. Sums of foreign numbers are
 * made unsigned, so that they wrap as Java's do. Work on more than 64 KiB runs without the GIL.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
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

#if defined(__GNUC__)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(condition) (condition)
#define INLINE static inline
#endif

enum { OK, NO_BATCH, BAD_SIZE, BAD_MAGIC, OLD_FORMAT, BAD_CRC, BAD_RECORDS };
enum { AT_END = 0, INCOMPLETE = 1, BAD_OFFSET = 7, AT_LIMIT = 8 };
enum { WALKED = 1, NULL_KEY = 2, SPARSE_OFFSETS = 4 };
enum {
    OVERHEAD = 12,
    MAGIC_AT = 16,
    V0_SIZE_MIN = 14,
    V1_SIZE_MIN = 22,
    HEADER_SIZE = 61,
    CRC_START = 21,
    RECORD_SIZE_MIN = 7,
    GIL_FREE_BYTES = 65536
};

/* ---- bytes ---------------------------------------------------------------------------------- */

INLINE uint16_t load16(const uint8_t *at) { return (uint16_t)((uint32_t)at[0] << 8 | at[1]); }

INLINE uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

INLINE uint64_t load64(const uint8_t *at) { return (uint64_t)load32(at) << 32 | load32(at + 4); }

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

/* ---- checksums ------------------------------------------------------------------------------ */

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

/* ---- varints and records -------------------------------------------------------------------- */

INLINE int read_varint(const uint8_t **at, const uint8_t *end, int32_t *value)
{
    const uint8_t *next = *at;
    if (next >= end)
        return 0;
    uint32_t raw = *next++;
    if (raw >= 0x80) {
        raw &= 0x7f;
        for (int shift = 7;; shift += 7) {
            if (next >= end)
                return 0;
            uint32_t byte = *next++;
            raw |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
            if (shift == 28)
                return 0;
        }
    }
    *at = next;
    *value = (int32_t)(raw >> 1 ^ (0u - (raw & 1)));
    return 1;
}

INLINE int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    const uint8_t *next = *at;
    if (next >= end)
        return 0;
    uint64_t raw = *next++;
    if (raw >= 0x80) {
        raw &= 0x7f;
        for (int shift = 7;; shift += 7) {
            if (next >= end)
                return 0;
            uint64_t byte = *next++;
            raw |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
            if (shift == 63)
                return 0;
        }
    }
    *at = next;
    *value = (int64_t)(raw >> 1 ^ (0u - (raw & 1)));
    return 1;
}

typedef struct {
    const uint8_t *start; /* NULL for a null field */
    int32_t length;
} Field;

INLINE int read_field(const uint8_t **at, const uint8_t *end, Field *field)
{
    int32_t length;
    if (!read_varint(at, end, &length))
        return 0;
    if (length < 0) {
        field->start = NULL;
        field->length = 0;
        return 1;
    }
    if (length > end - *at)
        return 0;
    field->start = *at;
    field->length = length;
    *at += length;
    return 1;
}

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t headers_count;
    Field key;
    Field value;
    const uint8_t *headers;
    const uint8_t *end;
} Record;

/* Reads the record at *at and moves there past its end; its headers are left to the caller. */
INLINE int read_record(const uint8_t **at, const uint8_t *end, Record *record)
{
    int32_t length;
    if (!read_varint(at, end, &length) || length < 1 || length > end - *at)
        return 0;
    const uint8_t *body = *at + 1;
    const uint8_t *body_end = *at + length;
    if (!read_varlong(&body, body_end, &record->timestamp_delta) ||
        !read_varint(&body, body_end, &record->offset_delta) ||
        !read_field(&body, body_end, &record->key) ||
        !read_field(&body, body_end, &record->value) ||
        !read_varint(&body, body_end, &record->headers_count))
        return 0;
    if (record->headers_count < 0 || record->headers_count > body_end - body)
        return 0;
    record->headers = body;
    record->end = body_end;
    *at = body_end;
    return 1;
}

INLINE int read_header(const uint8_t **at, const uint8_t *end, Field *key, Field *value)
{
    return read_field(at, end, key) && key->start != NULL && read_field(at, end, value);
}

static int headers_fit(const Record *record)
{
    const uint8_t *at = record->headers;
    Field key, value;
    for (int32_t index = 0; index < record->headers_count; index++)
        if (!read_header(&at, record->end, &key, &value))
            return 0;
    return at == record->end;
}

INLINE int read_checked_record(const uint8_t **at, const uint8_t *end, Record *record)
{
    if (!read_record(at, end, record))
        return 0;
    if (LIKELY(record->headers_count == 0))
        return record->headers == record->end;
    return headers_fit(record);
}

typedef struct {
    int64_t min_timestamp;
    int64_t largest_timestamp;
    int64_t delta_of_largest;
    int64_t flags;
} Walk;

static const Walk NOT_WALKED = {-1, -1, -1, 0};

static int walk_records(const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_timestamp,
                        Walk *walk)
{
    Walk seen = {-1, -1, -1, WALKED};
    Record record;
    *walk = NOT_WALKED;
    if (count < 0)
        return BAD_RECORDS;
    for (int64_t index = 0; index < count; index++) {
        if (!read_checked_record(&at, end, &record))
            return BAD_RECORDS;
        int64_t timestamp = add64(base_timestamp, record.timestamp_delta);
        if (timestamp != -1 && (seen.min_timestamp == -1 || timestamp < seen.min_timestamp))
            seen.min_timestamp = timestamp;
        if (timestamp > seen.largest_timestamp) {
            seen.largest_timestamp = timestamp;
            seen.delta_of_largest = record.offset_delta;
        }
        if (record.key.start == NULL)
            seen.flags |= NULL_KEY;
        if (record.offset_delta != index)
            seen.flags |= SPARSE_OFFSETS;
    }
    if (at != end)
        return BAD_RECORDS;
    *walk = seen;
    return OK;
}

/* ---- batches -------------------------------------------------------------------------------- */

typedef struct {
    int64_t position, size, magic, attributes, base_offset, last_offset, leader_epoch;
    int64_t base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence;
    int64_t records_count;
} Batch;

static void read_v2_header(const uint8_t *at, Batch *batch)
{
    batch->magic = 2;
    batch->base_offset = (int64_t)load64(at);
    batch->leader_epoch = (int32_t)load32(at + 12);
    batch->attributes = (int16_t)load16(at + 21);
    batch->last_offset = add64(batch->base_offset, (int32_t)load32(at + 23));
    batch->base_timestamp = (int64_t)load64(at + 27);
    batch->max_timestamp = (int64_t)load64(at + 35);
    batch->producer_id = (int64_t)load64(at + 43);
    batch->producer_epoch = (int16_t)load16(at + 51);
    batch->base_sequence = (int32_t)load32(at + 53);
    batch->records_count = (int32_t)load32(at + 57);
}

static int read_legacy_header(const uint8_t *at, int64_t left, int64_t size, Batch *batch)
{
    int64_t timestamp = -1;
    if (batch->magic == 1) {
        if (size < V1_SIZE_MIN)
            return BAD_SIZE;
        if (left < 26)
            return INCOMPLETE;
        timestamp = (int64_t)load64(at + 18);
    } else if (left < 18) {
        return INCOMPLETE;
    }
    batch->attributes = at[17];
    batch->base_offset = batch->last_offset = (int64_t)load64(at);
    batch->leader_epoch = batch->producer_id = batch->producer_epoch = batch->base_sequence = -1;
    batch->base_timestamp = batch->max_timestamp = timestamp;
    batch->records_count = batch->attributes & 7 ? -1 : 1;
    return AT_END;
}

/* The header of the batch at `position`, of which only the header need lie before `end`. */
static int read_batch(const uint8_t *data, int64_t position, int64_t end, Batch *batch)
{
    const uint8_t *at = data + position;
    int64_t left = end - position;
    if (left < MAGIC_AT + 1)
        return INCOMPLETE;
    int64_t size = (int32_t)load32(at + 8);
    if (size < V0_SIZE_MIN)
        return BAD_SIZE;
    if (at[MAGIC_AT] > 2)
        return BAD_MAGIC;
    batch->position = position;
    batch->size = size + OVERHEAD;
    batch->magic = at[MAGIC_AT];
    if (batch->magic < 2)
        return read_legacy_header(at, left, size, batch);
    if (batch->size < HEADER_SIZE)
        return BAD_SIZE;
    if (left < HEADER_SIZE)
        return INCOMPLETE;
    read_v2_header(at, batch);
    return AT_END;
}

static int crc_holds(const uint8_t *data, const Batch *batch)
{
    const uint8_t *at = data + batch->position;
    size_t size = (size_t)batch->size;
    if (batch->magic == 2)
        return crc32c_of(at + CRC_START, size - CRC_START) == load32(at + 17);
    return crc32_of(at + MAGIC_AT, size - MAGIC_AT) == load32(at + OVERHEAD);
}

static int check_v2(const uint8_t *at, int64_t size, Batch *batch, Walk *walk)
{
    batch->position = 0;
    batch->size = size;
    read_v2_header(at, batch);
    if (!crc_holds(at, batch))
        return BAD_CRC;
    if (batch->attributes & 7)
        return OK;
    return walk_records(at + HEADER_SIZE, at + size, batch->records_count, batch->base_timestamp,
                        walk);
}

/* ---- Python: arguments and answers ---------------------------------------------------------- */

static int count_arguments(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most)
{
    if (given >= least && given <= most)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments, not %zd", name, least, most,
                 given);
    return 0;
}

static int take_ints(PyObject *const *arguments, Py_ssize_t count, int64_t *values)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        values[index] = PyLong_AsLongLong(arguments[index]);
        if (values[index] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

static PyObject *tuple_of_ints(const int64_t *values, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *value = PyLong_FromLongLong(values[index]);
        if (value == NULL || PyTuple_SetItem(tuple, index, value) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

static int require_range(const Py_buffer *view, int64_t position, int64_t end)
{
    if (0 <= position && position <= end && end <= view->len)
        return 1;
    PyErr_SetString(PyExc_ValueError, "position and end do not lie inside the buffer");
    return 0;
}

static PyObject *malformed(void)
{
    PyErr_SetString(PyExc_ValueError, "malformed records");
    return NULL;
}

typedef uint32_t (*Crc)(uint32_t, const uint8_t *, size_t);

static PyObject *checksum_of(Crc update, PyObject *const *arguments, Py_ssize_t given)
{
    Py_buffer view;
    uint32_t crc = 0;
    if (!count_arguments("crc32c", given, 1, 2))
        return NULL;
    if (given == 2) {
        crc = (uint32_t)PyLong_AsUnsignedLongLongMask(arguments[1]);
        if (PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        crc = ~update(~crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    } else {
        crc = ~update(~crc, view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *kernel_crc32c(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    return checksum_of(crc32c_update, arguments, given);
}

/* What serves where the instruction is missing; by name, so that tests reach it everywhere. */
static PyObject *kernel_crc32c_by_table(PyObject *module, PyObject *const *arguments,
                                        Py_ssize_t given)
{
    (void)module;
    return checksum_of(crc32c_by_table, arguments, given);
}

static PyObject *header_problem(int status, int64_t size, int64_t magic)
{
    int64_t values[16] = {status, size, 0, magic};
    return tuple_of_ints(values, 16);
}

static PyObject *checked(const uint8_t *at, int64_t length)
{
    if (length < OVERHEAD)
        return header_problem(NO_BATCH, 0, 0);
    int64_t size = (int32_t)load32(at + 8);
    if (size < V0_SIZE_MIN)
        return header_problem(BAD_SIZE, 0, 0);
    size += OVERHEAD;
    if (length <= MAGIC_AT)
        return header_problem(NO_BATCH, 0, 0);
    if (at[MAGIC_AT] > 2)
        return header_problem(BAD_MAGIC, 0, 0);
    if (length < size)
        return header_problem(NO_BATCH, 0, 0);
    if (at[MAGIC_AT] < 2)
        return header_problem(OLD_FORMAT, size, at[MAGIC_AT]);
    if (size < HEADER_SIZE)
        return header_problem(BAD_SIZE, 0, 0);

    Batch batch;
    Walk walk = NOT_WALKED;
    int status;
    if (size > GIL_FREE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        status = check_v2(at, size, &batch, &walk);
        Py_END_ALLOW_THREADS
    } else {
        status = check_v2(at, size, &batch, &walk);
    }
    int64_t values[16] = {status,
                          size,
                          batch.base_offset,
                          batch.magic,
                          batch.attributes,
                          (int32_t)load32(at + 23),
                          batch.base_timestamp,
                          batch.max_timestamp,
                          batch.producer_id,
                          batch.producer_epoch,
                          batch.base_sequence,
                          batch.records_count,
                          walk.min_timestamp,
                          walk.largest_timestamp,
                          walk.delta_of_largest,
                          walk.flags};
    return tuple_of_ints(values, 16);
}

static PyObject *kernel_check_batch(PyObject *module, PyObject *data)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = checked(view.buf, view.len);
    PyBuffer_Release(&view);
    return answer;
}

static PyObject *kernel_check_records(PyObject *module, PyObject *const *arguments,
                                      Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[2];
    Walk walk;
    int status;
    if (!count_arguments("check_records", given, 3, 3) || !take_ints(arguments + 1, 2, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf;
    Py_BEGIN_ALLOW_THREADS
    status = walk_records(at, at + view.len, numbers[0], numbers[1], &walk);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    int64_t values[5] = {status, walk.min_timestamp, walk.largest_timestamp, walk.delta_of_largest,
                         walk.flags};
    return tuple_of_ints(values, 5);
}

static int append_and_release(PyObject *list, PyObject *item)
{
    if (item == NULL)
        return 0;
    int appended = PyList_Append(list, item) == 0;
    Py_DECREF(item);
    return appended;
}

static int append_batch(PyObject *list, const Batch *batch)
{
    int64_t values[13] = {batch->position,       batch->size,          batch->magic,
                          batch->attributes,     batch->base_offset,   batch->last_offset,
                          batch->leader_epoch,   batch->base_timestamp, batch->max_timestamp,
                          batch->producer_id,    batch->producer_epoch, batch->base_sequence,
                          batch->records_count};
    return append_and_release(list, tuple_of_ints(values, 13));
}

static PyObject *kernel_list_batches(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[3];
    if (!count_arguments("list_batches", given, 4, 4) || !take_ints(arguments + 1, 3, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t position = numbers[0], end = numbers[1], batches_max = numbers[2];
    PyObject *rows = require_range(&view, position, end) ? PyList_New(0) : NULL;
    int why = AT_END;
    int64_t count = 0;
    while (rows != NULL && position < end) {
        Batch batch;
        if (count >= batches_max) {
            why = AT_LIMIT;
            break;
        }
        why = read_batch(view.buf, position, end, &batch);
        if (why == AT_END && batch.size > end - position)
            why = INCOMPLETE;
        if (why != AT_END)
            break;
        if (!append_batch(rows, &batch))
            Py_CLEAR(rows);
        position += batch.size;
        count++;
    }
    PyBuffer_Release(&view);
    if (rows == NULL)
        return NULL;
    return Py_BuildValue("LiN", (long long)position, why, rows);
}

/* ---- searching ------------------------------------------------------------------------------ */

static PyObject *find_batch(PyObject *buffer, int64_t position, int64_t end, int64_t target_offset,
                            int64_t target_timestamp)
{
    Py_buffer view;
    Batch batch;
    int64_t found = 0;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!require_range(&view, position, end)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    while (position < end) {
        int why = read_batch(view.buf, position, end, &batch);
        if (why != AT_END) {
            found = why == INCOMPLETE ? 0 : -1;
            break;
        }
        if (batch.last_offset >= target_offset && batch.max_timestamp >= target_timestamp) {
            found = 1;
            break;
        }
        position += batch.size;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    int64_t values[5] = {found, position, 0, 0, 0};
    if (found == 1) {
        values[2] = batch.size;
        values[3] = batch.base_offset;
        values[4] = batch.last_offset;
    }
    return tuple_of_ints(values, 5);
}

static PyObject *kernel_find_offset(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    int64_t numbers[3];
    if (!count_arguments("find_offset", given, 4, 4) || !take_ints(arguments + 1, 3, numbers))
        return NULL;
    return find_batch(arguments[0], numbers[0], numbers[1], numbers[2], INT64_MIN);
}

static PyObject *kernel_find_timestamp(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    int64_t numbers[4];
    if (!count_arguments("find_timestamp", given, 5, 5) || !take_ints(arguments + 1, 4, numbers))
        return NULL;
    return find_batch(arguments[0], numbers[0], numbers[1], numbers[3], numbers[2]);
}

static PyObject *kernel_find_record(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[5];
    if (!count_arguments("find_record", given, 6, 6) || !take_ints(arguments + 1, 5, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf, *end = at + view.len;
    int64_t answer[2];
    int found = 0, fits = numbers[0] >= 0;
    Record record;
    for (int64_t index = 0; fits && !found && index < numbers[0]; index++) {
        fits = read_checked_record(&at, end, &record);
        if (fits) {
            answer[0] = add64(numbers[1], record.offset_delta);
            answer[1] = add64(numbers[2], record.timestamp_delta);
            found = answer[1] >= numbers[3] && answer[0] >= numbers[4];
        }
    }
    if (fits && !found)
        fits = at == end;
    PyBuffer_Release(&view);
    if (!fits)
        return malformed();
    if (found)
        return tuple_of_ints(answer, 2);
    Py_RETURN_NONE;
}

/* ---- scanning a log ------------------------------------------------------------------------- */

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

typedef struct {
    int64_t values[11];
} Producer;

typedef struct {
    int64_t leader_epoch, base_offset;
} Epoch;

typedef struct {
    /* what does not change */
    const uint8_t *data;
    int64_t end, file_position, segment_base_offset, index_interval_bytes, verify_crc;
    int64_t batches_max, bytes_max;
    /* what moves with the walk */
    int64_t position, next_offset, bytes_since_last_index_entry, max_timestamp;
    int64_t offset_of_max_timestamp, last_time_index_timestamp, leader_epoch, batches_count;
    Bytes offset_index, time_index, epochs, producers;
} Scan;

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

static int note_producer(Scan *scan, const Batch *batch)
{
    Producer producer = {{batch->producer_id, batch->producer_epoch, batch->base_sequence, -1,
                          batch->base_offset, batch->last_offset, batch->max_timestamp,
                          batch->attributes, scan->file_position + batch->position, -1, -1}};
    if (batch->base_sequence != -1)
        producer.values[3] =
            (batch->base_sequence + (batch->last_offset - batch->base_offset)) & INT32_MAX;
    read_control(scan->data + batch->position, batch, &producer.values[9], &producer.values[10]);
    uint8_t *place = grow(&scan->producers, sizeof producer);
    if (place == NULL)
        return 0;
    memcpy(place, &producer, sizeof producer);
    return 1;
}

static int note_epoch(Scan *scan, const Batch *batch)
{
    Epoch epoch = {batch->leader_epoch, batch->base_offset};
    scan->leader_epoch = batch->leader_epoch;
    uint8_t *place = grow(&scan->epochs, sizeof epoch);
    if (place == NULL)
        return 0;
    memcpy(place, &epoch, sizeof epoch);
    return 1;
}

static int note_index_entry(Scan *scan, const Batch *batch)
{
    uint8_t *place = grow(&scan->offset_index, 8);
    if (place == NULL)
        return 0;
    store32(place, (uint32_t)sub64(batch->last_offset, scan->segment_base_offset));
    store32(place + 4, (uint32_t)(scan->file_position + batch->position));
    scan->bytes_since_last_index_entry = 0;
    if (scan->max_timestamp <= scan->last_time_index_timestamp)
        return 1;
    place = grow(&scan->time_index, 12);
    if (place == NULL)
        return 0;
    store64(place, (uint64_t)scan->max_timestamp);
    store32(place + 8,
            (uint32_t)sub64(scan->offset_of_max_timestamp, scan->segment_base_offset));
    scan->last_time_index_timestamp = scan->max_timestamp;
    return 1;
}

static int offsets_hold(const Scan *scan, const Batch *batch)
{
    return scan->next_offset <= batch->base_offset && batch->base_offset <= batch->last_offset &&
           batch->last_offset < INT64_MAX && batch->last_offset >= scan->segment_base_offset &&
           (uint64_t)sub64(batch->last_offset, scan->segment_base_offset) <= INT32_MAX &&
           scan->file_position <= INT32_MAX - batch->position;
}

static int note_batch(Scan *scan, const Batch *batch)
{
    if (batch->max_timestamp > scan->max_timestamp) {
        scan->max_timestamp = batch->max_timestamp;
        scan->offset_of_max_timestamp = batch->last_offset;
    }
    if (scan->bytes_since_last_index_entry > scan->index_interval_bytes &&
        !note_index_entry(scan, batch))
        return 0;
    scan->bytes_since_last_index_entry =
        add64(scan->bytes_since_last_index_entry, batch->size);
    if (batch->leader_epoch > scan->leader_epoch && !note_epoch(scan, batch))
        return 0;
    if (batch->producer_id >= 0 && !note_producer(scan, batch))
        return 0;
    scan->next_offset = batch->last_offset + 1;
    scan->batches_count++;
    scan->position += batch->size;
    return 1;
}

/* Why it stopped, or -1 when memory ran out. */
static int scan_batches(Scan *scan)
{
    int64_t start = scan->position;
    Batch batch;
    while (scan->position < scan->end) {
        if (scan->batches_count >= scan->batches_max || scan->position - start >= scan->bytes_max)
            return AT_LIMIT;
        int why = read_batch(scan->data, scan->position, scan->end, &batch);
        if (why != AT_END)
            return why;
        if (batch.size > scan->end - scan->position)
            return INCOMPLETE;
        if (scan->verify_crc && !crc_holds(scan->data, &batch))
            return BAD_CRC;
        if (!offsets_hold(scan, &batch))
            return BAD_OFFSET;
        if (!note_batch(scan, &batch))
            return -1;
    }
    return AT_END;
}

static PyObject *list_of_rows(const Bytes *bytes, Py_ssize_t columns)
{
    PyObject *list = PyList_New(0);
    const int64_t *rows = (const int64_t *)(const void *)bytes->data;
    size_t count = bytes->length / ((size_t)columns * sizeof(int64_t));
    for (size_t row = 0; list != NULL && row < count; row++)
        if (!append_and_release(list, tuple_of_ints(rows + row * (size_t)columns, columns)))
            Py_CLEAR(list);
    return list;
}

static PyObject *scan_answer(const Scan *scan, int why)
{
    PyObject *epochs = list_of_rows(&scan->epochs, 2);
    PyObject *producers = epochs == NULL ? NULL : list_of_rows(&scan->producers, 11);
    if (producers == NULL) {
        Py_XDECREF(epochs);
        return NULL;
    }
    return Py_BuildValue(
        "LiLLLLLLLy#y#NN", (long long)scan->position, why, (long long)scan->next_offset,
        (long long)scan->max_timestamp, (long long)scan->offset_of_max_timestamp,
        (long long)scan->bytes_since_last_index_entry, (long long)scan->last_time_index_timestamp,
        (long long)scan->leader_epoch, (long long)scan->batches_count,
        scan->offset_index.data ? (const char *)scan->offset_index.data : "",
        (Py_ssize_t)scan->offset_index.length,
        scan->time_index.data ? (const char *)scan->time_index.data : "",
        (Py_ssize_t)scan->time_index.length, epochs, producers);
}

static PyObject *kernel_scan_log(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    Py_buffer view;
    int64_t numbers[14];
    PyObject *answer = NULL;
    if (!count_arguments("scan_log", given, 15, 15) || !take_ints(arguments + 1, 14, numbers))
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Scan scan = {.data = view.buf,
                 .position = numbers[0],
                 .end = numbers[1],
                 .file_position = numbers[2],
                 .segment_base_offset = numbers[3],
                 .next_offset = numbers[4],
                 .index_interval_bytes = numbers[5],
                 .bytes_since_last_index_entry = numbers[6],
                 .max_timestamp = numbers[7],
                 .offset_of_max_timestamp = numbers[8],
                 .last_time_index_timestamp = numbers[9],
                 .leader_epoch = numbers[10],
                 .verify_crc = numbers[11],
                 .batches_max = numbers[12],
                 .bytes_max = numbers[13]};
    if (scan.file_position < 0) {
        PyErr_SetString(PyExc_ValueError, "file_position is negative");
    } else if (require_range(&view, scan.position, scan.end)) {
        int why;
        Py_BEGIN_ALLOW_THREADS
        why = scan_batches(&scan);
        Py_END_ALLOW_THREADS
        answer = why < 0 ? PyErr_NoMemory() : scan_answer(&scan, why);
    }
    free(scan.offset_index.data);
    free(scan.time_index.data);
    free(scan.epochs.data);
    free(scan.producers.data);
    PyBuffer_Release(&view);
    return answer;
}

/* ---- records to columns --------------------------------------------------------------------- */

typedef struct {
    Py_buffer view;
    int64_t records_count, base_offset, base_timestamp, append_time;
    int has_append_time;
} Part;

typedef struct {
    Bytes key_offsets, key_data, value_offsets, value_valid, value_data;
    int64_t count;
} Headers;

typedef struct {
    uint8_t *offsets, *timestamps, *header_offsets;
    uint8_t *key_offsets, *key_validity, *key_data;
    uint8_t *value_offsets, *value_validity, *value_data;
    int32_t key_bytes, value_bytes;
    int64_t row;
    Headers headers;
} Columns;

INLINE void put32(uint8_t *column, int64_t row, int32_t value)
{
    memcpy(column + row * 4, &value, 4);
}

INLINE void put64(uint8_t *column, int64_t row, int64_t value)
{
    memcpy(column + row * 8, &value, 8);
}

INLINE int32_t get32(const uint8_t *column, int64_t row)
{
    int32_t value;
    memcpy(&value, column + row * 4, 4);
    return value;
}

INLINE int64_t get64(const uint8_t *column, int64_t row)
{
    int64_t value;
    memcpy(&value, column + row * 8, 8);
    return value;
}

INLINE void put_field(const Field *field, uint8_t *data, int32_t *bytes, uint8_t *validity,
                      int64_t row)
{
    if (LIKELY(field->start != NULL)) {
        memcpy(data + *bytes, field->start, (size_t)field->length);
        *bytes += field->length;
        validity[row >> 3] |= (uint8_t)(1u << (row & 7));
    }
}

static int put_bytes(Bytes *bytes, const void *data, size_t length)
{
    uint8_t *place = grow(bytes, length);
    if (place == NULL)
        return 0;
    if (length)
        memcpy(place, data, length);
    return 1;
}

static int put_end(Bytes *offsets, const Bytes *data)
{
    int32_t end = (int32_t)data->length;
    return put_bytes(offsets, &end, 4);
}

static int put_headers(Headers *headers, const Record *record)
{
    const uint8_t *at = record->headers;
    for (int32_t index = 0; index < record->headers_count; index++) {
        Field key, value;
        if (!read_header(&at, record->end, &key, &value))
            return 0;
        uint8_t valid = value.start != NULL;
        if (!put_bytes(&headers->key_data, key.start, (size_t)key.length) ||
            !put_end(&headers->key_offsets, &headers->key_data) ||
            !put_bytes(&headers->value_data, value.start, (size_t)value.length) ||
            !put_end(&headers->value_offsets, &headers->value_data) ||
            !put_bytes(&headers->value_valid, &valid, 1))
            return 0;
        headers->count++;
    }
    return 1;
}

/* 1, 0 for malformed records, -1 when memory ran out. */
static int put_part(Columns *columns, const Part *part)
{
    const uint8_t *at = part->view.buf, *end = at + part->view.len;
    Record record;
    for (int64_t index = 0; index < part->records_count; index++) {
        if (!read_checked_record(&at, end, &record))
            return 0;
        int64_t row = columns->row++;
        put64(columns->offsets, row, add64(part->base_offset, record.offset_delta));
        put64(columns->timestamps, row,
              part->has_append_time ? part->append_time
                                    : add64(part->base_timestamp, record.timestamp_delta));
        put_field(&record.key, columns->key_data, &columns->key_bytes, columns->key_validity, row);
        put32(columns->key_offsets, row + 1, columns->key_bytes);
        put_field(&record.value, columns->value_data, &columns->value_bytes,
                  columns->value_validity, row);
        put32(columns->value_offsets, row + 1, columns->value_bytes);
        if (record.headers_count && !put_headers(&columns->headers, &record))
            return -1;
        put32(columns->header_offsets, row + 1, (int32_t)columns->headers.count);
    }
    return at == end;
}

static void release_parts(Part *parts, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++)
        PyBuffer_Release(&parts[index].view);
    free(parts);
}

static int take_part(PyObject *tuple, Part *part)
{
    PyObject *items[5];
    int64_t numbers[3];
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) {
        PyErr_SetString(PyExc_ValueError, "a part is a tuple of 5");
        return 0;
    }
    for (Py_ssize_t index = 0; index < 5; index++)
        items[index] = PyTuple_GetItem(tuple, index);
    if (!take_ints(items + 1, 3, numbers))
        return 0;
    part->records_count = numbers[0];
    part->base_offset = numbers[1];
    part->base_timestamp = numbers[2];
    part->has_append_time = items[4] != Py_None;
    part->append_time = 0;
    if (part->has_append_time && !take_ints(items + 4, 1, &part->append_time))
        return 0;
    return PyObject_GetBuffer(items[0], &part->view, PyBUF_SIMPLE) == 0;
}

static Part *take_parts(PyObject *list, Py_ssize_t *count)
{
    Py_ssize_t expected = PyList_Size(list);
    Part *parts = calloc((size_t)expected + 1, sizeof *parts);
    *count = 0;
    if (parts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    while (*count < expected) {
        if (!take_part(PyList_GetItem(list, *count), &parts[*count])) {
            release_parts(parts, *count);
            return NULL;
        }
        ++*count;
    }
    return parts;
}

/* Rows and bytes of all parts; rows are believed only as far as the bytes can hold them. */
static int measure_parts(const Part *parts, Py_ssize_t count, int64_t *rows, int64_t *bytes)
{
    *rows = *bytes = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t length = parts[index].view.len;
        if (parts[index].records_count < 0 ||
            parts[index].records_count > length / RECORD_SIZE_MIN) {
            malformed();
            return 0;
        }
        *rows += parts[index].records_count;
        *bytes += length;
        if (*bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "records beyond 2 GiB");
            return 0;
        }
    }
    return 1;
}

static uint8_t *new_column(PyObject *answer, Py_ssize_t place, int64_t bytes, int zeroed)
{
    PyObject *column = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (column == NULL)
        return NULL;
    uint8_t *data = (uint8_t *)PyByteArray_AsString(column);
    if (zeroed)
        memset(data, 0, (size_t)bytes);
    if (PyTuple_SetItem(answer, place, column) < 0)
        return NULL;
    return data;
}

static int new_columns(PyObject *answer, Columns *columns, int64_t rows, int64_t bytes)
{
    int64_t bits = (rows + 7) / 8;
    return (columns->offsets = new_column(answer, 1, rows * 8, 0)) != NULL &&
           (columns->timestamps = new_column(answer, 2, rows * 8, 0)) != NULL &&
           (columns->key_offsets = new_column(answer, 3, rows * 4 + 4, 0)) != NULL &&
           (columns->key_validity = new_column(answer, 4, bits, 1)) != NULL &&
           (columns->key_data = new_column(answer, 5, bytes, 0)) != NULL &&
           (columns->value_offsets = new_column(answer, 6, rows * 4 + 4, 0)) != NULL &&
           (columns->value_validity = new_column(answer, 7, bits, 1)) != NULL &&
           (columns->value_data = new_column(answer, 8, bytes, 0)) != NULL &&
           (columns->header_offsets = new_column(answer, 9, rows * 4 + 4, 0)) != NULL;
}

static int put_column(PyObject *answer, Py_ssize_t place, const Bytes *bytes)
{
    PyObject *column =
        PyByteArray_FromStringAndSize((const char *)bytes->data, (Py_ssize_t)bytes->length);
    return column != NULL && PyTuple_SetItem(answer, place, column) == 0;
}

static int put_header_columns(PyObject *answer, Headers *headers)
{
    if (!put_column(answer, 10, &headers->key_offsets) ||
        !put_column(answer, 11, &headers->key_data) ||
        !put_column(answer, 12, &headers->value_offsets) ||
        !put_column(answer, 14, &headers->value_data))
        return 0;
    uint8_t *validity = new_column(answer, 13, (headers->count + 7) / 8, 1);
    if (validity == NULL)
        return 0;
    for (int64_t row = 0; row < headers->count; row++)
        validity[row >> 3] |= (uint8_t)(headers->value_valid.data[row] << (row & 7));
    return 1;
}

static int fill_columns(PyObject *answer, Columns *columns, const Part *parts, Py_ssize_t count)
{
    int filled = 1;
    Headers *headers = &columns->headers;
    put32(columns->key_offsets, 0, 0);
    put32(columns->value_offsets, 0, 0);
    put32(columns->header_offsets, 0, 0);
    if (!put_end(&headers->key_offsets, &headers->key_data) ||
        !put_end(&headers->value_offsets, &headers->value_data))
        filled = -1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t index = 0; filled == 1 && index < count; index++)
        filled = put_part(columns, &parts[index]);
    Py_END_ALLOW_THREADS
    if (filled == 0)
        malformed();
    else if (filled < 0)
        PyErr_NoMemory();
    PyObject *rows = filled == 1 ? PyLong_FromLongLong(columns->row) : NULL;
    return rows != NULL && PyTuple_SetItem(answer, 0, rows) == 0 &&
           PyByteArray_Resize(PyTuple_GetItem(answer, 5), columns->key_bytes) == 0 &&
           PyByteArray_Resize(PyTuple_GetItem(answer, 8), columns->value_bytes) == 0 &&
           put_header_columns(answer, headers);
}

static PyObject *kernel_records_to_columns(PyObject *module, PyObject *sequence)
{
    (void)module;
    Py_ssize_t count;
    int64_t rows, bytes;
    Columns columns = {0};
    PyObject *list = PySequence_List(sequence);
    if (list == NULL)
        return NULL;
    Part *parts = take_parts(list, &count);
    PyObject *answer = NULL;
    if (parts != NULL && measure_parts(parts, count, &rows, &bytes))
        answer = PyTuple_New(15);
    if (answer != NULL && (!new_columns(answer, &columns, rows, bytes) ||
                           !fill_columns(answer, &columns, parts, count)))
        Py_CLEAR(answer);
    free(columns.headers.key_offsets.data);
    free(columns.headers.key_data.data);
    free(columns.headers.value_offsets.data);
    free(columns.headers.value_valid.data);
    free(columns.headers.value_data.data);
    if (parts != NULL)
        release_parts(parts, count);
    Py_DECREF(list);
    return answer;
}

/* ---- encoding ------------------------------------------------------------------------------- */

INLINE uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? ~(uint64_t)0 : 0);
}

INLINE int64_t varint_size(int64_t value)
{
    uint64_t rest = zigzag(value);
    int64_t size = 1;
    while (rest >= 0x80) {
        rest >>= 7;
        size++;
    }
    return size;
}

INLINE uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t rest = zigzag(value);
    while (rest >= 0x80) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

typedef struct {
    const uint8_t *start; /* NULL for a null field */
    int64_t length;
} Content;

INLINE int64_t content_size(const Content *content)
{
    if (content->start == NULL)
        return 1;
    return varint_size(content->length) + content->length;
}

INLINE uint8_t *write_content(uint8_t *at, const Content *content)
{
    if (content->start == NULL) {
        *at++ = 1;
        return at;
    }
    at = write_varint(at, content->length);
    memcpy(at, content->start, (size_t)content->length);
    return at + content->length;
}

INLINE uint8_t *write_record_start(uint8_t *at, int64_t body_size, int64_t timestamp_delta,
                                   int64_t offset_delta, const Content *key, const Content *value,
                                   int64_t headers_count)
{
    at = write_varint(at, body_size);
    *at++ = 0;
    at = write_varint(at, timestamp_delta);
    at = write_varint(at, offset_delta);
    at = write_content(at, key);
    at = write_content(at, value);
    return write_varint(at, headers_count);
}

INLINE int64_t record_body_size(int64_t timestamp_delta, int64_t offset_delta, const Content *key,
                                const Content *value, int64_t headers_count)
{
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + content_size(key) +
           content_size(value) + varint_size(headers_count);
}

/* A Python object lent to a Content; bytes need no buffer. */
typedef struct {
    Content content;
    Py_buffer view;
    int held;
} Lent;

static const uint8_t EMPTY[1];

static int borrow(PyObject *object, Lent *lent)
{
    lent->held = 0;
    lent->content.start = NULL;
    lent->content.length = 0;
    if (object == Py_None)
        return 1;
    if (PyBytes_Check(object)) {
        lent->content.start = (const uint8_t *)PyBytes_AsString(object);
        lent->content.length = PyBytes_Size(object);
        return 1;
    }
    if (PyObject_GetBuffer(object, &lent->view, PyBUF_SIMPLE) < 0)
        return 0;
    lent->held = 1;
    lent->content.start = lent->view.len ? lent->view.buf : EMPTY;
    lent->content.length = lent->view.len;
    return 1;
}

static int borrow_name(PyObject *object, Lent *lent)
{
    if (PyUnicode_Check(object)) {
        Py_ssize_t length = 0;
        lent->held = 0;
        lent->content.start = (const uint8_t *)PyUnicode_AsUTF8AndSize(object, &length);
        lent->content.length = length;
        return lent->content.start != NULL;
    }
    if (object == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a header's name is None");
        return 0;
    }
    return borrow(object, lent);
}

static void give_back(Lent *lent)
{
    if (lent->held)
        PyBuffer_Release(&lent->view);
    lent->held = 0;
}

/* A bytearray that grows; `at` is where the next byte goes. */
typedef struct {
    PyObject *array;
    uint8_t *start;
    int64_t used, capacity;
} Output;

static int start_output(Output *output, int64_t reserve_bytes, int64_t capacity)
{
    if (reserve_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "reserve_bytes is negative");
        return 0;
    }
    if (capacity > INT64_MAX / 2 - reserve_bytes) {
        PyErr_NoMemory();
        return 0;
    }
    output->capacity = reserve_bytes + capacity;
    output->array = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)output->capacity);
    if (output->array == NULL)
        return 0;
    output->start = (uint8_t *)PyByteArray_AsString(output->array);
    output->used = reserve_bytes;
    memset(output->start, 0, (size_t)reserve_bytes);
    return 1;
}

static uint8_t *reserve(Output *output, int64_t more)
{
    if (more > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a record beyond 2 GiB");
        return NULL;
    }
    if (more > output->capacity - output->used) {
        int64_t capacity = output->capacity * 2 + more;
        if (PyByteArray_Resize(output->array, (Py_ssize_t)capacity) < 0)
            return NULL;
        output->start = (uint8_t *)PyByteArray_AsString(output->array);
        output->capacity = capacity;
    }
    return output->start + output->used;
}

static PyObject *finish_output(Output *output, int64_t base_timestamp, int64_t max_timestamp)
{
    if (PyByteArray_Resize(output->array, (Py_ssize_t)output->used) < 0) {
        Py_CLEAR(output->array);
        return NULL;
    }
    return Py_BuildValue("NLL", output->array, (long long)base_timestamp,
                         (long long)max_timestamp);
}

typedef struct {
    Lent key, value;
} LentHeader;

static void give_headers_back(LentHeader *headers, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        give_back(&headers[index].key);
        give_back(&headers[index].value);
    }
    free(headers);
}

static int borrow_header(PyObject *pair, LentHeader *header)
{
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_ValueError, "a header is a tuple of 2");
        return 0;
    }
    if (!borrow_name(PyTuple_GetItem(pair, 0), &header->key))
        return 0;
    if (!borrow(PyTuple_GetItem(pair, 1), &header->value)) {
        give_back(&header->key);
        return 0;
    }
    return 1;
}

/* `list` must outlive the headers: their bytes are not copied. */
static LentHeader *borrow_headers(PyObject *list, Py_ssize_t count, int64_t *size)
{
    LentHeader *headers = calloc((size_t)count + 1, sizeof *headers);
    *size = 0;
    if (headers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!borrow_header(PyList_GetItem(list, index), &headers[index])) {
            give_headers_back(headers, index);
            return NULL;
        }
        *size += content_size(&headers[index].key.content) +
                 content_size(&headers[index].value.content);
    }
    return headers;
}

static int write_record(Output *output, int64_t timestamp_delta, int64_t offset_delta,
                        const Content *key, const Content *value, const LentHeader *headers,
                        Py_ssize_t headers_count, int64_t headers_size)
{
    int64_t body_size =
        record_body_size(timestamp_delta, offset_delta, key, value, headers_count) + headers_size;
    uint8_t *at = reserve(output, body_size + 10);
    if (at == NULL)
        return 0;
    at = write_record_start(at, body_size, timestamp_delta, offset_delta, key, value,
                            headers_count);
    for (Py_ssize_t index = 0; index < headers_count; index++) {
        at = write_content(at, &headers[index].key.content);
        at = write_content(at, &headers[index].value.content);
    }
    output->used = at - output->start;
    return 1;
}

static int encode_with_headers(Output *output, int64_t timestamp_delta, int64_t offset_delta,
                               const Content *key, const Content *value, PyObject *sequence)
{
    Py_ssize_t count;
    int64_t size;
    PyObject *list = PySequence_List(sequence);
    if (list == NULL)
        return 0;
    count = PyList_Size(list);
    LentHeader *headers = borrow_headers(list, count, &size);
    int written = headers != NULL && write_record(output, timestamp_delta, offset_delta, key,
                                                  value, headers, count, size);
    if (headers != NULL)
        give_headers_back(headers, count);
    Py_DECREF(list);
    return written;
}

static int encode_record(Output *output, PyObject *record, int64_t offset_delta,
                         int64_t *base_timestamp, int64_t *max_timestamp)
{
    Lent key, value;
    if (!PyTuple_Check(record) || PyTuple_Size(record) != 4) {
        PyErr_SetString(PyExc_ValueError, "a record is a tuple of 4");
        return 0;
    }
    int64_t timestamp = PyLong_AsLongLong(PyTuple_GetItem(record, 3));
    if (timestamp == -1 && PyErr_Occurred())
        return 0;
    if (offset_delta == 0)
        *base_timestamp = timestamp;
    if (timestamp > *max_timestamp)
        *max_timestamp = timestamp;
    int64_t timestamp_delta = sub64(timestamp, *base_timestamp);
    if (!borrow(PyTuple_GetItem(record, 0), &key))
        return 0;
    if (!borrow(PyTuple_GetItem(record, 1), &value)) {
        give_back(&key);
        return 0;
    }
    PyObject *headers = PyTuple_GetItem(record, 2);
    int written;
    if ((PyTuple_Check(headers) && PyTuple_Size(headers) == 0) ||
        (PyList_Check(headers) && PyList_Size(headers) == 0))
        written = write_record(output, timestamp_delta, offset_delta, &key.content,
                               &value.content, NULL, 0, 0);
    else
        written = encode_with_headers(output, timestamp_delta, offset_delta, &key.content,
                                      &value.content, headers);
    give_back(&key);
    give_back(&value);
    return written;
}

static PyObject *kernel_encode_records(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    int64_t reserve_bytes, base_timestamp = -1, max_timestamp = -1;
    Output output;
    if (!count_arguments("encode_records", given, 2, 2) ||
        !take_ints(arguments + 1, 1, &reserve_bytes))
        return NULL;
    PyObject *list = PySequence_List(arguments[0]);
    if (list == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (!start_output(&output, reserve_bytes, count * 64)) {
        Py_DECREF(list);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        if (!encode_record(&output, PyList_GetItem(list, index), index, &base_timestamp,
                           &max_timestamp)) {
            Py_CLEAR(output.array);
            break;
        }
    Py_DECREF(list);
    if (output.array == NULL)
        return NULL;
    return finish_output(&output, base_timestamp, max_timestamp);
}

enum {
    OFFSETS,
    TIMESTAMPS,
    KEY_OFFSETS,
    KEY_VALIDITY,
    KEY_DATA,
    VALUE_OFFSETS,
    VALUE_VALIDITY,
    VALUE_DATA,
    HEADER_OFFSETS,
    HEADER_KEY_OFFSETS,
    HEADER_KEY_DATA,
    HEADER_VALUE_OFFSETS,
    HEADER_VALUE_VALIDITY,
    HEADER_VALUE_DATA,
    COLUMNS_COUNT
};

typedef struct {
    Py_buffer views[COLUMNS_COUNT];
    int held;
    int64_t rows, headers;
} Table;

static const uint8_t *column(const Table *table, int which) { return table->views[which].buf; }

static void release_table(Table *table)
{
    while (table->held > 0)
        PyBuffer_Release(&table->views[--table->held]);
}

static int table_fits(Table *table)
{
    const Py_buffer *views = table->views;
    int64_t rows = table->rows;
    if (rows < 0 || rows >= INT32_MAX)
        return 0;
    table->headers = views[HEADER_KEY_OFFSETS].len / 4 - 1;
    return views[OFFSETS].len >= rows * 8 && views[TIMESTAMPS].len >= rows * 8 &&
           views[KEY_OFFSETS].len >= rows * 4 + 4 && views[KEY_VALIDITY].len >= (rows + 7) / 8 &&
           views[VALUE_OFFSETS].len >= rows * 4 + 4 &&
           views[VALUE_VALIDITY].len >= (rows + 7) / 8 &&
           views[HEADER_OFFSETS].len >= rows * 4 + 4 && table->headers >= 0 &&
           views[HEADER_VALUE_OFFSETS].len >= table->headers * 4 + 4 &&
           views[HEADER_VALUE_VALIDITY].len >= (table->headers + 7) / 8;
}

static int take_table(PyObject *columns, Table *table)
{
    table->held = 0;
    if (!PyTuple_Check(columns) || PyTuple_Size(columns) != COLUMNS_COUNT + 1) {
        PyErr_SetString(PyExc_ValueError, "columns are a tuple of 15");
        return 0;
    }
    PyObject *rows = PyTuple_GetItem(columns, 0);
    if (!take_ints(&rows, 1, &table->rows))
        return 0;
    while (table->held < COLUMNS_COUNT) {
        if (PyObject_GetBuffer(PyTuple_GetItem(columns, table->held + 1),
                               &table->views[table->held], PyBUF_SIMPLE) < 0) {
            release_table(table);
            return 0;
        }
        table->held++;
    }
    if (table_fits(table))
        return 1;
    release_table(table);
    PyErr_SetString(PyExc_ValueError, "columns do not fit together");
    return 0;
}

/* The field of a row, or 0 when the offsets run backwards or out of the data. */
INLINE int row_content(const Table *table, int offsets, int validity, int64_t row,
                       Content *content)
{
    int data = validity < 0 ? offsets + 1 : offsets + 2;
    int64_t start = get32(column(table, offsets), row);
    int64_t end = get32(column(table, offsets), row + 1);
    if (start < 0 || start > end || end > table->views[data].len)
        return 0;
    content->start = column(table, data) + start;
    content->length = end - start;
    if (validity >= 0 && !(column(table, validity)[row >> 3] >> (row & 7) & 1)) {
        content->start = NULL;
        content->length = 0;
    } else if (content->length == 0) {
        content->start = EMPTY;
    }
    return 1;
}

INLINE int header_contents(const Table *table, int64_t header, Content *key, Content *value)
{
    return row_content(table, HEADER_KEY_OFFSETS, -1, header, key) &&
           row_content(table, HEADER_VALUE_OFFSETS, HEADER_VALUE_VALIDITY, header, value);
}

static int64_t headers_size(const Table *table, int64_t first, int64_t last)
{
    int64_t size = 0;
    Content key, value;
    for (int64_t header = first; header < last; header++) {
        if (!header_contents(table, header, &key, &value))
            return -1;
        size += content_size(&key) + content_size(&value);
    }
    return size;
}

typedef struct {
    int64_t start, stop, base_offset;
    int is_dense;
    int64_t base_timestamp, max_timestamp;
} Rows;

enum { ROWS_WRITTEN, ROWS_UNFIT, ROWS_DELTA, ROWS_LARGE };

/* Since each row begins where the one before ends, the rows of a column together are no longer
 * than the stretch between the first and the last offset: the bound of `rows_bound` holds. */
static int write_rows(const Table *table, Rows *rows, uint8_t **place, const uint8_t *limit)
{
    uint8_t *at = *place;
    for (int64_t row = rows->start; row < rows->stop; row++) {
        Content key, value, name;
        int64_t timestamp = get64(column(table, TIMESTAMPS), row);
        if (row == rows->start)
            rows->base_timestamp = timestamp;
        if (timestamp > rows->max_timestamp)
            rows->max_timestamp = timestamp;
        int64_t timestamp_delta = sub64(timestamp, rows->base_timestamp);
        int64_t delta = row - rows->start;
        if (!rows->is_dense) {
            int64_t offset = get64(column(table, OFFSETS), row);
            delta = sub64(offset, rows->base_offset);
            if (delta < INT32_MIN || delta > INT32_MAX || (offset < rows->base_offset) != (delta < 0))
                return ROWS_DELTA;
        }
        int64_t first = get32(column(table, HEADER_OFFSETS), row);
        int64_t last = get32(column(table, HEADER_OFFSETS), row + 1);
        if (first < 0 || first > last || last > table->headers ||
            !row_content(table, KEY_OFFSETS, KEY_VALIDITY, row, &key) ||
            !row_content(table, VALUE_OFFSETS, VALUE_VALIDITY, row, &value))
            return ROWS_UNFIT;
        int64_t size = last == first ? 0 : headers_size(table, first, last);
        if (size < 0)
            return ROWS_UNFIT;
        size += record_body_size(timestamp_delta, delta, &key, &value, last - first);
        if (size > INT32_MAX || size + 5 > limit - at)
            return ROWS_LARGE;
        at = write_record_start(at, size, timestamp_delta, delta, &key, &value, last - first);
        for (int64_t header = first; header < last; header++) {
            if (!header_contents(table, header, &name, &value))
                return ROWS_UNFIT;
            at = write_content(at, &name);
            at = write_content(at, &value);
        }
    }
    *place = at;
    return ROWS_WRITTEN;
}

static int64_t stretch(const Table *table, int offsets, int64_t start, int64_t stop)
{
    int64_t first = get32(column(table, offsets), start);
    int64_t last = get32(column(table, offsets), stop);
    return last > first ? last - first : 0;
}

static int64_t rows_bound(const Table *table, const Rows *rows)
{
    int64_t count = rows->stop - rows->start;
    int64_t first = get32(column(table, HEADER_OFFSETS), rows->start);
    int64_t last = get32(column(table, HEADER_OFFSETS), rows->stop);
    int64_t bound = count * (5 + 1 + 10 + 5 + 5 + 5 + 5) +
                    stretch(table, KEY_OFFSETS, rows->start, rows->stop) +
                    stretch(table, VALUE_OFFSETS, rows->start, rows->stop);
    if (0 <= first && first < last && last <= table->headers)
        bound += (last - first) * 10 + stretch(table, HEADER_KEY_OFFSETS, first, last) +
                 stretch(table, HEADER_VALUE_OFFSETS, first, last);
    return bound;
}

static PyObject *encode_rows(const Table *table, Rows *rows, int64_t reserve_bytes)
{
    Output output;
    int problem;
    if (!start_output(&output, reserve_bytes, rows_bound(table, rows)))
        return NULL;
    uint8_t *at = output.start + output.used;
    const uint8_t *limit = output.start + output.capacity;
    Py_BEGIN_ALLOW_THREADS
    problem = write_rows(table, rows, &at, limit);
    Py_END_ALLOW_THREADS
    if (problem == ROWS_WRITTEN) {
        output.used = at - output.start;
        return finish_output(&output, rows->base_timestamp, rows->max_timestamp);
    }
    PyErr_SetString(PyExc_ValueError, problem == ROWS_UNFIT    ? "columns do not fit together"
                                      : problem == ROWS_DELTA ? "offset delta beyond 32 bits"
                                                              : "a record beyond 2 GiB");
    Py_DECREF(output.array);
    return NULL;
}

static PyObject *kernel_encode_columns(PyObject *module, PyObject *const *arguments,
                                       Py_ssize_t given)
{
    (void)module;
    Table table;
    Rows rows = {.base_timestamp = -1, .max_timestamp = -1};
    int64_t range[2], reserve_bytes;
    if (!count_arguments("encode_columns", given, 5, 5) || !take_ints(arguments + 1, 2, range) ||
        !take_ints(arguments + 4, 1, &reserve_bytes))
        return NULL;
    rows.start = range[0];
    rows.stop = range[1];
    rows.is_dense = arguments[3] == Py_None;
    if (!rows.is_dense && !take_ints(arguments + 3, 1, &rows.base_offset))
        return NULL;
    if (!take_table(arguments[0], &table))
        return NULL;
    PyObject *answer = NULL;
    if (0 <= rows.start && rows.start <= rows.stop && rows.stop <= table.rows)
        answer = encode_rows(&table, &rows, reserve_bytes);
    else
        PyErr_SetString(PyExc_ValueError, "rows outside the columns");
    release_table(&table);
    return answer;
}

/* ---- module --------------------------------------------------------------------------------- */

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST("crc32c", kernel_crc32c),
    FAST("crc32c_by_table", kernel_crc32c_by_table),
    {"check_batch", kernel_check_batch, METH_O, NULL},
    FAST("check_records", kernel_check_records),
    FAST("list_batches", kernel_list_batches),
    FAST("find_offset", kernel_find_offset),
    FAST("find_timestamp", kernel_find_timestamp),
    FAST("find_record", kernel_find_record),
    FAST("scan_log", kernel_scan_log),
    {"records_to_columns", kernel_records_to_columns, METH_O, NULL},
    FAST("encode_records", kernel_encode_records),
    FAST("encode_columns", kernel_encode_columns),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tidelog.record._kernel",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    prepare_checksums();
    return PyModule_Create(&definition);
}
