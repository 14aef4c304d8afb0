/* Named answers: struct sequences with the names that _results.py gives, in its order. */
#ifndef TIDELOG_RESULTS_H
#define TIDELOG_RESULTS_H

#include "arguments.h"

enum { FIELDS_MAX = 16 };

typedef struct {
    const char *name;
    const char *fields[FIELDS_MAX];
    PyTypeObject *type;
} Result;

static Result BATCH_ROW = {
    "tidelog.record._kernel.BatchRow",
    {"position", "size", "magic", "attributes", "base_offset", "last_offset", "leader_epoch",
     "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
     "records_count"},
    NULL};

static Result SCAN_STATE = {
    "tidelog.record._kernel.ScanState",
    {"segment_base_offset", "index_interval_bytes", "file_position", "next_offset",
     "max_timestamp", "offset_of_max_timestamp", "bytes_since_last_index_entry",
     "last_time_index_timestamp", "leader_epoch"},
    NULL};

static Result LOG_SCAN = {
    "tidelog.record._kernel.LogScan",
    {"position", "why", "state", "batches_count", "offset_index", "time_index", "epochs",
     "producers"},
    NULL};

static Result PRODUCER_BATCH = {
    "tidelog.record._kernel.ProducerBatch",
    {"producer_id", "producer_epoch", "base_sequence", "last_sequence", "base_offset",
     "last_offset", "max_timestamp", "attributes", "file_position", "control_type",
     "coordinator_epoch"},
    NULL};

static Result RECORD_COLUMNS = {
    "tidelog.record._kernel.RecordColumns",
    {"records_count", "offsets", "timestamps", "key_offsets", "key_validity", "key_data", "value_offsets",
     "value_validity", "value_data", "header_offsets", "header_key_offsets", "header_key_data",
     "header_value_offsets", "header_value_validity", "header_value_data"},
    NULL};

static Result MESSAGES_CHECK = {
    "tidelog.record._kernel.MessagesCheck",
    {"status", "position", "messages_count", "magic", "first_offset", "last_offset",
     "min_timestamp", "largest_timestamp", "flags"},
    NULL};

static Result TRANSACTIONAL_BATCH = {
    "tidelog.record._kernel.TransactionalBatch",
    {"last_offset", "attributes", "producer_id", "producer_epoch", "base_timestamp",
     "records_count", "control_type"},
    NULL};

static Result MAPPED = {
    "tidelog.record._kernel.Mapped",
    {"position", "why", "next_offset", "entries", "latest_offset", "verdicts_used", "records"},
    NULL};

static Result FILTERED = {
    "tidelog.record._kernel.Filtered",
    {"position", "why", "next_offset", "bytes_written", "verdicts_used", "records_read",
     "records_kept", "batches_rewritten", "records_without_key"},
    NULL};

static Result *const results[] = {&BATCH_ROW,      &SCAN_STATE,     &LOG_SCAN,
                                  &PRODUCER_BATCH, &RECORD_COLUMNS, &MESSAGES_CHECK,
                                  &TRANSACTIONAL_BATCH, &MAPPED, &FILTERED};

static int prepare_result(Result *result)
{
    PyStructSequence_Field fields[FIELDS_MAX + 1] = {{NULL, NULL}};
    int count = 0;
    while (count < FIELDS_MAX && result->fields[count] != NULL) {
        fields[count].name = result->fields[count];
        count++;
    }
    PyStructSequence_Desc description = {result->name, NULL, fields, count};
    result->type = PyStructSequence_NewType(&description);
    return result->type != NULL;
}

/* The types of the answers, which the module also shows by name. */
static int prepare_results(PyObject *module)
{
    for (size_t index = 0; index < sizeof results / sizeof *results; index++) {
        Result *result = results[index];
        const char *name = strrchr(result->name, '.') + 1;
        if ((result->type == NULL && !prepare_result(result)) ||
            PyModule_AddObjectRef(module, name, (PyObject *)result->type) < 0)
            return 0;
    }
    return 1;
}

static PyObject *named_ints(const Result *result, const int64_t *values, Py_ssize_t count)
{
    PyObject *answer = PyStructSequence_New(result->type);
    if (answer == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *value = PyLong_FromLongLong(values[index]);
        if (value == NULL) {
            Py_DECREF(answer);
            return NULL;
        }
        PyStructSequence_SetItem(answer, index, value);
    }
    return answer;
}

/* Steals the values, of which any may be NULL: then there is no answer, and an error is set. */
static PyObject *named_objects(const Result *result, PyObject *const *values, Py_ssize_t count)
{
    int whole = 1;
    for (Py_ssize_t index = 0; index < count; index++)
        whole &= values[index] != NULL;
    PyObject *answer = whole ? PyStructSequence_New(result->type) : NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (answer == NULL)
            Py_XDECREF(values[index]);
        else
            PyStructSequence_SetItem(answer, index, values[index]);
    }
    return answer;
}

#endif
