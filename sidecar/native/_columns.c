/* Avro values of one schema, read into columns: Arrow's buffers, but for what Python makes of them.
 * audit/decode/columns.py has the program that says how a value is laid out. A value that does not fit it leaves nothing in
 * any column and is flagged: whoever calls reads it alone. Every length is checked against the bytes that are left. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { LONG, FLAG, SPAN, FIXED, MAYBE, FIELDS, LIST, OPS };
enum { MOST_DEEP = 64 };

typedef struct {
    uint8_t *d;
    size_t used, room;
} Buf;

typedef struct {
    int32_t op, arg, next; /* next: of the node behind this one and all below it */
    Buf a, b;              /* values, flags, offsets or counts; bytes of spans */
    size_t rows;
} Node;

typedef struct {
    const uint8_t *at, *end;
} In;

static int put(Buf *b, const void *from, size_t n) {
    if (!n) return 0; /* there may be no buffer yet */
    if (b->room - b->used < n) {
        size_t room = b->room ? b->room : 256;
        while (room - b->used < n) room *= 2;
        uint8_t *d = PyMem_RawRealloc(b->d, room);
        if (!d) return -1;
        b->d = d;
        b->room = room;
    }
    memcpy(b->d + b->used, from, n);
    b->used += n;
    return 0;
}

enum { READ = 0, BAD = 1, NO_MEMORY = -1 };

static int number(In *in, int64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (in->at >= in->end) return BAD;
        uint8_t x = *in->at++;
        if (shift == 63 && x > 1) return BAD;
        v |= (uint64_t)(x & 0x7F) << shift;
        if (x < 128) {
            *out = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
            return READ;
        }
    }
    return BAD;
}

static int bytes(Node *n, In *in, int64_t size) {
    if (size < 0 || size > in->end - in->at) return BAD;
    if (n->b.used + (size_t)size > INT32_MAX) return NO_MEMORY;
    if (put(&n->b, in->at, (size_t)size)) return NO_MEMORY;
    in->at += size;
    int32_t end = (int32_t)n->b.used;
    n->rows++;
    return put(&n->a, &end, sizeof end);
}

static int value(Node *nodes, int32_t i, In *in);

static int list(Node *nodes, int32_t i, In *in) {
    Node *n = nodes + i;
    int64_t total = 0;
    for (;;) {
        int64_t count, size;
        if (number(in, &count)) return BAD;
        if (!count) break;
        if (count < 0) { /* its size follows */
            if (count == INT64_MIN || number(in, &size)) return BAD;
            count = -count;
        }
        if (count > in->end - in->at) return BAD; /* an item takes a byte at least */
        total += count;
        for (; count; count--) {
            int r = value(nodes, i + 1, in);
            if (r) return r;
        }
    }
    n->rows++;
    return put(&n->a, &total, sizeof total);
}

static int value(Node *nodes, int32_t i, In *in) {
    Node *n = nodes + i;
    int64_t v;
    int r;
    switch (n->op) {
    case LONG:
        if (number(in, &v)) return BAD;
        n->rows++;
        return put(&n->a, &v, sizeof v);
    case FLAG: {
        if (in->at >= in->end) return BAD;
        uint8_t flag = *in->at++ != 0;
        n->rows++;
        return put(&n->a, &flag, 1);
    }
    case SPAN:
        return number(in, &v) ? BAD : bytes(n, in, v);
    case FIXED:
        return bytes(n, in, n->arg);
    case MAYBE: {
        if (number(in, &v) || v < 0 || v > 1) return BAD;
        uint8_t there = v != n->arg;
        n->rows++;
        if (put(&n->a, &there, 1)) return NO_MEMORY;
        return there ? value(nodes, i + 1, in) : READ;
    }
    case FIELDS:
        for (int32_t child = i + 1; child < n->next; child = nodes[child].next)
            if ((r = value(nodes, child, in))) return r;
        return READ;
    default:
        return list(nodes, i, in);
    }
}

/* Where the node behind this one stands; -1: this is no program. */
static int32_t check(Node *nodes, int32_t count, int32_t i, int deep) {
    if (i >= count || deep > MOST_DEEP) return -1;
    Node *n = nodes + i;
    int32_t next = i + 1, children = n->op == FIELDS ? n->arg : n->op == MAYBE || n->op == LIST;
    if (n->op < 0 || n->op >= OPS || n->arg < 0 || (n->op == MAYBE && n->arg > 1)) return -1;
    for (; children; children--)
        if ((next = check(nodes, count, next, deep + 1)) < 0) return -1;
    return n->next = next;
}

typedef struct {
    size_t a, b, rows;
} Mark;

static PyObject *column(const Node *n) {
    PyObject *b = n->b.used || n->op == SPAN || n->op == FIXED
        ? PyBytes_FromStringAndSize((const char *)n->b.d, (Py_ssize_t)n->b.used)
        : Py_NewRef(Py_None);
    return Py_BuildValue("nNN", (Py_ssize_t)n->rows, PyBytes_FromStringAndSize((const char *)n->a.d, (Py_ssize_t)n->a.used), b);
}

static int all(Node *nodes, int32_t count, Mark *marks, const Py_buffer *data, const int32_t *offsets, Py_ssize_t bounds,
               const int64_t *which, Py_ssize_t rows, Py_ssize_t skip, uint8_t *bad) {
    const uint8_t *d = data->buf;
    for (Py_ssize_t row = 0; row < rows; row++) {
        int64_t w = which[row];
        if (w < 0 || w >= bounds || offsets[w] < 0 || offsets[w] > offsets[w + 1] || offsets[w + 1] > data->len) {
            PyErr_SetString(PyExc_ValueError, "a value lies outside of the bytes");
            return -1;
        }
        if (offsets[w + 1] - offsets[w] < skip) {
            bad[row] = 1;
            continue;
        }
        for (int32_t i = 0; i < count; i++) marks[i] = (Mark){nodes[i].a.used, nodes[i].b.used, nodes[i].rows};
        In in = {d + offsets[w] + skip, d + offsets[w + 1]};
        int r = value(nodes, 0, &in);
        if (r == NO_MEMORY) {
            PyErr_NoMemory();
            return -1;
        }
        bad[row] = (uint8_t)r;
        for (int32_t i = 0; r && i < count; i++)
            nodes[i].a.used = marks[i].a, nodes[i].b.used = marks[i].b, nodes[i].rows = marks[i].rows;
    }
    return 0;
}

/* Whether numbers of this size cannot be read there. */
static int odd(const Py_buffer *b, uintptr_t size) { return b->len && (uintptr_t)b->buf % size; }

static PyObject *columns(PyObject *self, PyObject *args) {
    Py_buffer program, data, offsets, which;
    Py_ssize_t first, skip;
    if (!PyArg_ParseTuple(args, "y*y*y*ny*n", &program, &data, &offsets, &first, &which, &skip)) return NULL;
    PyObject *found = NULL, *bad = NULL;
    Py_ssize_t rows = which.len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t bounds = offsets.len / (Py_ssize_t)sizeof(int32_t) - 1;
    int32_t count = (int32_t)(program.len / (Py_ssize_t)(2 * sizeof(int32_t)));
    Node *nodes = PyMem_RawCalloc((size_t)count + 1, sizeof(Node));
    Mark *marks = PyMem_RawCalloc((size_t)count + 1, sizeof(Mark));
    if (!nodes || !marks) {
        PyErr_NoMemory();
        goto end;
    }
    if (first < 0 || first > bounds || odd(&program, 4) || odd(&offsets, 4) || odd(&which, 8)) {
        PyErr_SetString(PyExc_ValueError, "numbers lie outside of the bytes");
        goto end;
    }
    for (int32_t i = 0; i < count; i++) {
        const int32_t *said = (const int32_t *)program.buf + 2 * i;
        nodes[i].op = said[0];
        nodes[i].arg = said[1];
    }
    if (skip < 0 || count < 1 || check(nodes, count, 0, 0) != count) {
        PyErr_SetString(PyExc_ValueError, "this is no program");
        goto end;
    }
    int32_t zero = 0;
    for (int32_t i = 0; i < count; i++)
        if ((nodes[i].op == SPAN || nodes[i].op == FIXED) && put(&nodes[i].a, &zero, sizeof zero)) {
            PyErr_NoMemory();
            goto end;
        }
    bad = PyBytes_FromStringAndSize(NULL, rows);
    if (!bad || all(nodes, count, marks, &data, (const int32_t *)offsets.buf + first, bounds - first, which.buf, rows, skip,
                    (uint8_t *)PyBytes_AS_STRING(bad)))
        goto end;
    found = PyList_New(count);
    for (int32_t i = 0; found && i < count; i++) {
        PyObject *one = column(nodes + i);
        if (!one)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, one);
    }
end:
    for (int32_t i = 0; nodes && i < count; i++) {
        PyMem_RawFree(nodes[i].a.d);
        PyMem_RawFree(nodes[i].b.d);
    }
    PyMem_RawFree(nodes);
    PyMem_RawFree(marks);
    PyBuffer_Release(&program);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&which);
    if (!found) {
        Py_XDECREF(bad);
        return NULL;
    }
    return Py_BuildValue("NN", bad, found);
}

static PyMethodDef methods[] = {{"columns", columns, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_columns", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__columns(void) { return PyModule_Create(&module); }
