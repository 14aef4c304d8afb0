/* Arguments from Python and answers to it. */
#ifndef TIDELOG_ARGUMENTS_H
#define TIDELOG_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#define GIL_FREE_BYTES 65536

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

/* A signed number of so many bits; ValueError for a larger one. */
static int take_number(PyObject *object, int bits, int64_t *value)
{
    int overflow = 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (*value == -1 && !overflow && PyErr_Occurred())
        return 0;
    int64_t most = INT64_MAX >> (64 - bits);
    if (overflow || *value > most || *value < -most - 1) {
        PyErr_Format(PyExc_ValueError, "a number beyond %d bits", bits);
        return 0;
    }
    return 1;
}

/* The items of a tuple, such as a named one of Python; borrowed. */
static int take_items(PyObject *tuple, Py_ssize_t count, PyObject **items)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_ValueError, "not a tuple of %zd", count);
        return 0;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        items[index] = PyTuple_GetItem(tuple, index);
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

static int append_and_release(PyObject *list, PyObject *item)
{
    if (item == NULL)
        return 0;
    int appended = PyList_Append(list, item) == 0;
    Py_DECREF(item);
    return appended;
}

#endif
