/* Kafka's wire format by a layout: one letter for each field. wire_twin.py has the letters and does the same in Python.
 * Every length is checked against the bytes that are left before anything is reserved. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *d;
    Py_ssize_t at, end;
} In;

static PyObject *malformed(const char *why) {
    PyErr_SetString(PyExc_ValueError, why);
    return NULL;
}

static int uvarint(In *in, uint32_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (in->at >= in->end) break;
        uint8_t x = in->d[in->at++];
        v |= (uint64_t)(x & 0x7F) << shift;
        if (x < 128) {
            if (v > UINT32_MAX) break;
            *out = (uint32_t)v;
            return 0;
        }
    }
    malformed("a varint does not end");
    return -1;
}

static int need(In *in, Py_ssize_t n) {
    if (n <= in->end - in->at) return 0;
    malformed("past the end");
    return -1;
}

static int32_t be32(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

static PyObject *utf8(In *in, Py_ssize_t n) {
    if (need(in, n)) return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)in->d + in->at, n, NULL);
    in->at += n;
    return text;
}

static PyObject *compact(In *in, int nullable) {
    uint32_t n;
    if (uvarint(in, &n)) return NULL;
    if (n == 0) {
        if (!nullable) return malformed("a string that must be there is null");
        Py_RETURN_NONE;
    }
    if (n - 1 > INT16_MAX) return malformed("a string is too long");
    return utf8(in, (Py_ssize_t)n - 1);
}

static int tags(In *in) {
    uint32_t n, tag, size;
    if (uvarint(in, &n)) return -1;
    while (n--) {
        if (uvarint(in, &tag) || uvarint(in, &size) || need(in, size)) return -1;
        in->at += size;
    }
    return 0;
}

/* The count of a compact array, -1 for null. Each element takes `least` bytes or more. */
static int count(In *in, Py_ssize_t least, Py_ssize_t *out) {
    uint32_t n;
    if (uvarint(in, &n)) return -1;
    *out = (Py_ssize_t)n - 1;
    if (*out > 0 && *out > (in->end - in->at) / least) { malformed("an array is longer than its bytes"); return -1; }
    return 0;
}

static PyObject *strings(In *in) {
    Py_ssize_t n;
    if (count(in, 1, &n)) return NULL;
    if (n < 0) Py_RETURN_NONE;
    PyObject *out = PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *text = compact(in, 0);
        if (text) PyTuple_SET_ITEM(out, i, text);
        else Py_CLEAR(out);
    }
    return out;
}

static PyObject *ints(In *in) {
    Py_ssize_t n;
    if (count(in, 4, &n)) return NULL;
    if (n < 0) return malformed("an array that must be there is null");
    PyObject *out = PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *number = PyLong_FromLong(be32(in->d + in->at));
        in->at += 4;
        if (number) PyTuple_SET_ITEM(out, i, number);
        else Py_CLEAR(out);
    }
    return out;
}

static PyObject *topics(In *in) {
    Py_ssize_t n;
    if (count(in, 18, &n)) return NULL;
    if (n < 0) Py_RETURN_NONE;
    PyObject *out = PyDict_New();
    for (Py_ssize_t i = 0; out && i < n; i++) {
        if (need(in, 16)) { Py_CLEAR(out); break; }
        PyObject *id = PyBytes_FromStringAndSize((const char *)in->d + in->at, 16), *parts = NULL;
        in->at += 16;
        if (!id || !(parts = ints(in)) || tags(in) || PyDict_SetItem(out, id, parts) < 0) Py_CLEAR(out);
        Py_XDECREF(id);
        Py_XDECREF(parts);
    }
    return out;
}

static PyObject *blob(In *in) {
    uint32_t n;
    if (uvarint(in, &n)) return NULL;
    if (n == 0) return malformed("bytes that must be there are null");
    if (need(in, (Py_ssize_t)n - 1)) return NULL;
    PyObject *data = PyBytes_FromStringAndSize((const char *)in->d + in->at, (Py_ssize_t)n - 1);
    in->at += (Py_ssize_t)n - 1;
    return data;
}

static PyObject *named(In *in) {
    Py_ssize_t n;
    if (count(in, 3, &n)) return NULL;
    if (n < 0) return malformed("an array that must be there is null");
    PyObject *out = PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *name = compact(in, 0), *data = name ? blob(in) : NULL;
        PyObject *pair = data && !tags(in) ? PyTuple_Pack(2, name, data) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(data);
        if (pair) PyTuple_SET_ITEM(out, i, pair);
        else Py_CLEAR(out);
    }
    return out;
}

/* One field; NULL with an exception set, or Py_None's own reference for a tag section, which gives no value. */
static PyObject *field(In *in, char kind) {
    int16_t n;
    switch (kind) {
    case 'i':
        if (need(in, 4)) return NULL;
        in->at += 4;
        return PyLong_FromLong(be32(in->d + in->at - 4));
    case 'n':
        if (need(in, 2)) return NULL;
        n = (int16_t)((uint16_t)in->d[in->at] << 8 | in->d[in->at + 1]);
        in->at += 2;
        if (n < 0) Py_RETURN_NONE;
        return utf8(in, n);
    case 's': return compact(in, 0);
    case 'S': return compact(in, 1);
    case 'a': return strings(in);
    case 'p': return topics(in);
    case 'q': return named(in);
    default: return malformed("unknown letter in a layout");
    }
}

static PyObject *py_unpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    const char *layout;
    Py_ssize_t letters, values = 0;
    if (nargs != 3 || !PyUnicode_Check(args[0]) || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "unpack takes a layout, bytes and a position");
        return NULL;
    }
    if (!(layout = PyUnicode_AsUTF8AndSize(args[0], &letters))) return NULL;
    In in = {(const uint8_t *)PyBytes_AS_STRING(args[1]), PyLong_AsSsize_t(args[2]), PyBytes_GET_SIZE(args[1])};
    if (in.at == -1 && PyErr_Occurred()) return NULL;
    if (in.at < 0 || in.at > in.end) return malformed("past the end");
    for (Py_ssize_t i = 0; i < letters; i++) values += layout[i] != 't';
    PyObject *out = PyTuple_New(values), *value;
    Py_ssize_t k = 0;
    for (Py_ssize_t i = 0; out && i < letters; i++) {
        if (layout[i] == 't') {
            if (tags(&in)) Py_CLEAR(out);
        } else if ((value = field(&in, layout[i]))) PyTuple_SET_ITEM(out, k++, value);
        else Py_CLEAR(out);
    }
    return out;
}

/* ---- the other way -------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *d;
    Py_ssize_t n, room;
    uint8_t few[512];
} Out;

static int reserve(Out *o, Py_ssize_t more) {
    if (o->n + more <= o->room) return 0;
    Py_ssize_t room = 2 * (o->n + more);
    uint8_t *d = o->d == o->few ? PyMem_Malloc((size_t)room) : PyMem_Realloc(o->d, (size_t)room);
    if (!d) { PyErr_NoMemory(); return -1; }
    if (o->d == o->few) memcpy(d, o->few, (size_t)o->n);
    o->d = d;
    o->room = room;
    return 0;
}

static void put(Out *o, uint64_t v, int bytes) {
    while (bytes--) o->d[o->n++] = (uint8_t)(v >> (8 * bytes));
}

static void put_uvarint(Out *o, uint64_t v) {
    for (; v > 127; v >>= 7) o->d[o->n++] = (uint8_t)(v | 0x80);
    o->d[o->n++] = (uint8_t)v;
}

static int put_number(Out *o, PyObject *value, int bytes) {
    long long v = PyLong_AsLongLong(value);
    if (v == -1 && PyErr_Occurred()) return -1;
    long long most = bytes == 4 ? INT32_MAX : bytes == 2 ? INT16_MAX : INT8_MAX;
    if (v > most || v < -most - 1) { malformed("a number is too large"); return -1; }
    if (reserve(o, 8)) return -1;
    put(o, (uint64_t)v, bytes);
    return 0;
}

static int put_text(Out *o, PyObject *value) {
    Py_ssize_t n;
    if (value == Py_None) {
        if (reserve(o, 1)) return -1;
        o->d[o->n++] = 0;
        return 0;
    }
    const char *text = PyUnicode_AsUTF8AndSize(value, &n);
    if (!text) return -1;
    if (n > INT16_MAX) { malformed("a string is too long"); return -1; }
    if (reserve(o, n + 10)) return -1;
    put_uvarint(o, (uint64_t)n + 1);
    memcpy(o->d + o->n, text, (size_t)n);
    o->n += n;
    return 0;
}

static int put_topics(Out *o, PyObject *value) {
    PyObject *id, *parts;
    Py_ssize_t at = 0;
    if (!PyDict_Check(value)) { PyErr_SetString(PyExc_TypeError, "topics must be a dict"); return -1; }
    if (reserve(o, 10)) return -1;
    put_uvarint(o, (uint64_t)PyDict_GET_SIZE(value) + 1);
    while (PyDict_Next(value, &at, &id, &parts)) {
        if (!PyBytes_Check(id) || PyBytes_GET_SIZE(id) != 16 || !PyTuple_Check(parts)) {
            PyErr_SetString(PyExc_TypeError, "a topic is 16 bytes with a tuple of partitions");
            return -1;
        }
        Py_ssize_t n = PyTuple_GET_SIZE(parts);
        if (reserve(o, 16 + 10 + 4 * n + 1)) return -1;
        memcpy(o->d + o->n, PyBytes_AS_STRING(id), 16);
        o->n += 16;
        put_uvarint(o, (uint64_t)n + 1);
        int failed = 0;
        Py_INCREF(parts); /* a number of another type may empty the dict when it is read */
        for (Py_ssize_t i = 0; !failed && i < n; i++) failed = put_number(o, PyTuple_GET_ITEM(parts, i), 4);
        Py_DECREF(parts);
        if (failed || reserve(o, 1)) return -1;
        o->d[o->n++] = 0;
    }
    return 0;
}

static int put_blob(Out *o, PyObject *value) {
    if (!PyBytes_Check(value)) { PyErr_SetString(PyExc_TypeError, "this must be bytes"); return -1; }
    Py_ssize_t n = PyBytes_GET_SIZE(value);
    if (reserve(o, n + 10)) return -1;
    put_uvarint(o, (uint64_t)n + 1);
    memcpy(o->d + o->n, PyBytes_AS_STRING(value), (size_t)n);
    o->n += n;
    return 0;
}

static int put_members(Out *o, PyObject *value) {
    if (!PyTuple_Check(value)) { PyErr_SetString(PyExc_TypeError, "members must be a tuple"); return -1; }
    Py_ssize_t n = PyTuple_GET_SIZE(value);
    if (reserve(o, 10)) return -1;
    put_uvarint(o, (uint64_t)n + 1);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *m = PyTuple_GET_ITEM(value, i);
        if (!PyTuple_Check(m) || PyTuple_GET_SIZE(m) != 3) {
            PyErr_SetString(PyExc_TypeError, "a member is a tuple of three");
            return -1;
        }
        if (put_text(o, PyTuple_GET_ITEM(m, 0)) || put_text(o, PyTuple_GET_ITEM(m, 1)) || put_blob(o, PyTuple_GET_ITEM(m, 2)))
            return -1;
        if (reserve(o, 1)) return -1;
        o->d[o->n++] = 0;
    }
    return 0;
}

static PyObject *py_pack(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    const char *layout;
    Py_ssize_t letters, k = 1;
    PyObject *result = NULL;
    if (nargs < 1 || !PyUnicode_Check(args[0])) { PyErr_SetString(PyExc_TypeError, "pack takes a layout and values"); return NULL; }
    if (!(layout = PyUnicode_AsUTF8AndSize(args[0], &letters))) return NULL;
    Out o;
    o.d = o.few;
    o.n = 0;
    o.room = (Py_ssize_t)sizeof o.few;
    for (Py_ssize_t i = 0; i < letters; i++) {
        if (layout[i] == 't') {
            if (reserve(&o, 1)) goto out;
            o.d[o.n++] = 0;
            continue;
        }
        if (k >= nargs) { PyErr_SetString(PyExc_TypeError, "pack got too few values"); goto out; }
        PyObject *value = args[k++];
        int bad = -1;
        switch (layout[i]) {
        case 'b': bad = put_number(&o, value, 1); break;
        case 'h': bad = put_number(&o, value, 2); break;
        case 'i': bad = put_number(&o, value, 4); break;
        case 'S': bad = put_text(&o, value); break;
        case 'B': bad = put_blob(&o, value); break;
        case 'p': bad = put_topics(&o, value); break;
        case 'm': bad = put_members(&o, value); break;
        default: malformed("unknown letter in a layout");
        }
        if (bad) goto out;
    }
    if (k != nargs) { PyErr_SetString(PyExc_TypeError, "pack got too many values"); goto out; }
    result = PyBytes_FromStringAndSize((const char *)o.d, o.n);
out:
    if (o.d != o.few) PyMem_Free(o.d);
    return result;
}

/* String.hashCode of Java, over UTF-16 code units. */
static PyObject *py_java_hash(PyObject *self, PyObject *text) {
    (void)self;
    if (!PyUnicode_Check(text)) { PyErr_SetString(PyExc_TypeError, "java_hash takes a string"); return NULL; }
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    uint32_t h = 0;
    for (Py_ssize_t i = 0, n = PyUnicode_GET_LENGTH(text); i < n; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c > 0xFFFF) {
            h = 31 * h + (0xD800 + ((c - 0x10000) >> 10));
            c = 0xDC00 + ((c - 0x10000) & 0x3FF);
        }
        h = 31 * h + c;
    }
    return PyLong_FromLong((int32_t)h);
}

/* A varint at `*at`; -1 with IndexError where the bytes end, with ValueError where it does not. */
static int varint(const uint8_t *d, Py_ssize_t n, Py_ssize_t *at, uint32_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (*at >= n) { PyErr_SetString(PyExc_IndexError, "past the end"); return -1; }
        uint8_t x = d[(*at)++];
        v |= (uint64_t)(x & 0x7F) << shift;
        if (x < 128) {
            if (v > UINT32_MAX) { malformed("varint of more than 32 bits"); return -1; }
            *out = (uint32_t)v;
            return 0;
        }
    }
    malformed("varint of more than 5 bytes");
    return -1;
}

static PyObject *py_skip_tags(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (nargs != 3) { PyErr_SetString(PyExc_TypeError, "skip_tags takes bytes, a position and an end"); return NULL; }
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) return NULL;
    if (at < 0) return malformed("a negative position");
    Py_buffer raw;
    if (PyObject_GetBuffer(args[0], &raw, PyBUF_SIMPLE)) return NULL;
    PyObject *result = NULL;
    uint32_t count, tag, size;
    if (varint(raw.buf, raw.len, &at, &count)) goto out;
    while (count--) {
        if (varint(raw.buf, raw.len, &at, &tag) || varint(raw.buf, raw.len, &at, &size)) goto out;
        if ((Py_ssize_t)size > end - at) { malformed("tagged field past the end"); goto out; }
        at += size;
    }
    result = PyLong_FromSsize_t(at);
out:
    PyBuffer_Release(&raw);
    return result;
}

static PyMethodDef METHODS[] = {
    {"skip_tags", (PyCFunction)(void (*)(void))py_skip_tags, METH_FASTCALL, "See wire_twin.py."},
    {"java_hash", py_java_hash, METH_O, "See wire_twin.py."},
    {"unpack", (PyCFunction)(void (*)(void))py_unpack, METH_FASTCALL, "See wire_twin.py."},
    {"pack", (PyCFunction)(void (*)(void))py_pack, METH_FASTCALL, "See wire_twin.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_wire", "Kafka's wire format by a layout.", -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__wire(void) { return PyModule_Create(&MODULE); }
