/* The record kernel: checksums, batch and record walks, columns. Documented in kernel.py; the
 * readable statement of the same rules is _pure.py, and tests hold the two equal.
 *
 * Every byte that comes from outside is read through a bound: a varint knows the end of its record,
 * a field's length is compared with what is left before it is used. Sums of foreign numbers are
 * made unsigned, so that they wrap as Java's do. Work on more than 64 KiB runs without the GIL.
 *
 * One translation unit: the parts lie in csrc/ and are included here.
 */
#include "csrc/check.h"
#include "csrc/checksum.h"
#include "csrc/cleaning.h"
#include "csrc/columns.h"
#include "csrc/encode.h"
#include "csrc/key_partitions.h"
#include "csrc/messages.h"
#include "csrc/offset_commits.h"
#include "csrc/scan.h"
#include "csrc/search.h"
#include "csrc/tuples.h"

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
    FAST("records_to_columns", kernel_records_to_columns),
    FAST("records_to_tuples", kernel_records_to_tuples),
    FAST("encode_records", kernel_encode_records),
    FAST("encode_columns", kernel_encode_columns),
    FAST("encode_rows", kernel_encode_rows),
    FAST("encode_offset_commits", kernel_encode_offset_commits),
    FAST("seal_batch", kernel_seal_batch),
    FAST("key_partitions", kernel_key_partitions),
    FAST("check_messages", kernel_check_messages),
    FAST("messages_to_records", kernel_messages_to_records),
    FAST("records_to_messages", kernel_records_to_messages),
    FAST("list_transactional", kernel_list_transactional),
    FAST("map_batches", kernel_map_batches),
    FAST("filter_batches", kernel_filter_batches),
    {"xxh32", kernel_xxh32, METH_O, NULL},
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
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && !prepare_results(module))
        Py_CLEAR(module);
    return module;
}
