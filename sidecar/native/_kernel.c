/* Kernels over int32 arrays and Avro buffers. Each function gives the same result as its namesake in twin.py, which
 * says what it computes; the comments here only say how. Every index is checked before it is used, and the assignment
 * kernels release the GIL while they work.
 *
 * The algorithms are those of Kafka's UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder and
 * RangeAssignor (group-coordinator 4.3.1).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t i32;
enum { OK = 0, NO_MEMORY, BAD_INDEX, LEFT_OVER };
enum { MAX_ROUNDS = 16 };

typedef struct {
    const i32 *off;          /* topic -> first global partition; n_topics + 1 */
    const i32 *id_rank;      /* topic -> rank of its id in Kafka's order of ids */
    const i32 *class_off;    /* subscription class -> first entry of class_topics; n_classes + 1 */
    const i32 *class_topics;
    const i32 *class_of;     /* member -> class */
    i32 n_topics, n_classes, n_members, n_parts;
    i32 *owner;              /* global partition -> member or -1; input and output */
} Problem;

static int check_offsets(const i32 *off, i32 n, Py_ssize_t total) {
    if (off[0] != 0 || off[n] != total) return BAD_INDEX;
    for (i32 i = 0; i < n; i++) if (off[i + 1] < off[i]) return BAD_INDEX;
    return OK;
}

static int check_range(const i32 *a, Py_ssize_t n, i32 low, i32 high) {
    i32 bad = 0;
    for (Py_ssize_t i = 0; i < n; i++) bad |= (a[i] < low) | (a[i] >= high);
    return bad ? BAD_INDEX : OK;
}

/* The topics of each class ascend, and none is there twice: whoever counts what a member wants counts each once. */
static int check_classes(const i32 *off, i32 n, const i32 *topics) {
    i32 bad = 0;
    for (i32 c = 0; c < n; c++)
        for (i32 k = off[c] + 1; k < off[c + 1]; k++) bad |= topics[k] <= topics[k - 1];
    return bad ? BAD_INDEX : OK;
}

/* Each of the numbers below n is there once. */
static int check_permutation(const i32 *a, i32 n) {
    i32 bad = 0;
    uint8_t *seen = calloc((size_t)n + 1, 1);
    if (!seen) return NO_MEMORY;
    if (check_range(a, n, 0, n)) bad = 1;
    for (i32 i = 0; !bad && i < n; i++) bad = seen[a[i]]++;
    free(seen);
    return bad ? BAD_INDEX : OK;
}

/* ---- uniform, one subscription for all ---------------------------------------------------------------------- */

static int homogeneous(Problem *p) {
    i32 n = p->n_members, total = 0, left_free = 0;
    i32 first = p->class_off[p->class_of[0]], last = p->class_off[p->class_of[0] + 1];
    uint8_t *wanted = calloc((size_t)p->n_topics + 1, 1);
    i32 *held_off = calloc((size_t)n + 2, sizeof(i32));
    i32 *held = malloc(((size_t)p->n_parts + 1) * sizeof(i32));
    i32 *rest = malloc(((size_t)p->n_parts + 1) * sizeof(i32));
    i32 *lacking = calloc((size_t)n + 1, sizeof(i32));
    int rc = NO_MEMORY;
    if (!wanted || !held_off || !held || !rest || !lacking) goto out;

    for (i32 k = first; k < last; k++) {
        i32 t = p->class_topics[k];
        wanted[t] = 1;
        total += p->off[t + 1] - p->off[t];
    }
    /* Partitions of unwanted topics lose their owner. Partitions that are already free are dealt out first. */
    for (i32 t = 0; t < p->n_topics; t++) {
        i32 *o = p->owner + p->off[t], *end = p->owner + p->off[t + 1];
        if (!wanted[t]) { for (; o < end; o++) *o = -1; continue; }
        for (; o < end; o++) {
            if (*o < 0) rest[left_free++] = (i32)(o - p->owner);
            else held_off[*o + 2]++;
        }
    }
    for (i32 m = 0; m < n; m++) held_off[m + 2] += held_off[m + 1];
    for (i32 q = 0; q < p->n_parts; q++) if (p->owner[q] >= 0) held[held_off[p->owner[q] + 1]++] = q;

    i32 quota_min = total / n, extra = total % n;
    for (i32 m = 0; m < n; m++) {
        i32 has_extra = extra > 0, quota = quota_min + has_extra;
        i32 count = held_off[m + 1] - held_off[m];
        for (i32 k = held_off[m] + quota; k < held_off[m + 1]; k++) {
            p->owner[held[k]] = -1;
            rest[left_free++] = held[k];
        }
        quota -= count < quota ? count : quota;
        if (quota > 0 && has_extra && n - m > extra) { quota--; has_extra = 0; }
        lacking[m] = quota;
        extra -= has_extra;
    }
    i32 next = 0;
    for (i32 m = 0; m < n; m++)
        for (i32 k = 0; k < lacking[m] && next < left_free; k++) p->owner[rest[next++]] = m;
    rc = next < left_free ? LEFT_OVER : OK;
out:
    free(wanted); free(held_off); free(held); free(rest); free(lacking);
    return rc;
}

/* ---- uniform, different subscriptions ------------------------------------------------------------------------ */

typedef struct {
    i32 *sorted;    /* subscribers by (size, member) */
    i32 n;
    i32 least_end, least_count, next_least;
    i32 most_start, most_end, most_count, next_most;
} Balancer;

typedef struct {
    Problem *p;
    i32 *size;              /* member -> partitions it has */
    i32 *sub_n;             /* topic -> number of subscribers */
    const i32 **subs;       /* topic -> its subscribers in member order; topics of one class share its list */
    Balancer b;
    i32 *near;              /* sizes of the current topic's subscribers, filled by min_max */
    i32 *count;             /* scratch of the counting sort */
    i32 count_room;
    i32 *by_owner, *start, *end;  /* scratch of balance_topic */
} Work;

static int cmp_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void min_max(const Work *w, const i32 *s, i32 n, i32 *low, i32 *high) {
    i32 lo = INT32_MAX, hi = 0;
    for (i32 i = 0; i < n; i++) w->near[i] = w->size[s[i]];
    for (i32 i = 0; i < n; i++) {
        lo = w->near[i] < lo ? w->near[i] : lo;
        hi = w->near[i] > hi ? w->near[i] : hi;
    }
    *low = lo;
    *high = hi;
}

static int sort_members(Work *w, i32 t, i32 low, i32 high) {
    const i32 *s = w->subs[t];
    i32 n = w->sub_n[t];
    i32 range = high - low + 1;
    Balancer *b = &w->b;
    b->n = n;
    if (range == 1) {
        memcpy(b->sorted, s, (size_t)n * sizeof(i32));
    } else if (range <= w->count_room && range <= 4 * n + 64) {
        /* Two counter arrays: successive increments of one counter would stall on each other. */
        i32 *one = w->count, *two = w->count + w->count_room;
        memset(one, 0, ((size_t)range + 1) * sizeof(i32));
        memset(two, 0, ((size_t)range + 1) * sizeof(i32));
        i32 i = 0;
        for (; i + 1 < n; i += 2) {
            one[w->near[i] - low + 1]++;
            two[w->near[i + 1] - low + 1]++;
        }
        if (i < n) one[w->near[i] - low + 1]++;
        for (i = 0; i < range; i++) one[i + 1] += one[i] + two[i + 1];
        for (i32 i = 0; i < n; i++) b->sorted[w->count[w->near[i] - low]++] = s[i];
    } else {
        uint64_t *keys = malloc((size_t)n * sizeof(uint64_t));
        if (!keys) return NO_MEMORY;
        for (i32 i = 0; i < n; i++) keys[i] = (uint64_t)(uint32_t)w->near[i] << 32 | (uint32_t)s[i];
        qsort(keys, (size_t)n, sizeof(uint64_t), cmp_u64);
        for (i32 i = 0; i < n; i++) b->sorted[i] = (i32)(uint32_t)keys[i];
        free(keys);
    }
    b->least_end = 0; b->least_count = low - 1; b->next_least = 0;
    b->most_start = n; b->most_end = n; b->most_count = high + 1; b->next_most = n - 1;
    return OK;
}

static i32 next_least(Work *w) {
    Balancer *b = &w->b;
    if (b->next_least >= b->least_end) {
        b->least_count++;
        while (b->least_end < b->n && w->size[b->sorted[b->least_end]] == b->least_count) b->least_end++;
        b->next_least = 0;
    }
    return b->sorted[b->next_least++];
}

static i32 next_most(Work *w) {
    Balancer *b = &w->b;
    if (b->next_most < b->most_start) {
        if (b->most_end <= b->most_start && b->most_start > 0) b->most_count = w->size[b->sorted[b->most_start - 1]];
        else b->most_count--;
        while (b->most_start > 0 && w->size[b->sorted[b->most_start - 1]] == b->most_count) b->most_start--;
        b->next_most = b->most_end - 1;
    }
    return b->next_most < 0 ? -1 : b->sorted[b->next_most--];
}

static void exclude_most(Work *w) {
    Balancer *b = &w->b;
    i32 at = b->next_most + 1, end = b->most_end - 1, m = b->sorted[at];
    b->sorted[at] = b->sorted[end];
    b->sorted[end] = m;
    b->most_end--;
}

static int balanced(const Work *w) { return w->b.most_count - w->b.least_count <= 1; }

/* Returns how many partitions moved, or -1 if memory ran out. */
static i32 balance_topic(Work *w, i32 t) {
    Problem *p = w->p;
    const i32 *s = w->subs[t];
    i32 n = w->sub_n[t], low, high, moved = 0;
    min_max(w, s, n, &low, &high);
    if (high - low <= 1) return 0;
    if (sort_members(w, t, low, high) != OK) return -1;
    /* Group the topic's partitions by owner, in order: member m has by_owner[start[m]] up to by_owner[end[m] - 1].
     * Every partition has an owner at this point. */
    i32 *own = p->owner + p->off[t], parts = p->off[t + 1] - p->off[t];
    for (i32 i = 0; i < n; i++) w->end[s[i]] = 0;
    for (i32 q = 0; q < parts; q++) w->end[own[q]]++;
    i32 at = 0;
    for (i32 i = 0; i < n; i++) { i32 c = w->end[s[i]]; w->start[s[i]] = at; w->end[s[i]] = at; at += c; }
    for (i32 q = 0; q < parts; q++) w->by_owner[w->end[own[q]]++] = q;
    while (!balanced(w)) {
        i32 giver;
        while ((giver = next_most(w)) != -1 && w->end[giver] - w->start[giver] <= 0) exclude_most(w);
        if (giver == -1) break;
        i32 q = w->by_owner[--w->end[giver]];
        i32 taker = next_least(w);
        if (balanced(w)) break;
        own[q] = taker;
        w->size[giver]--;
        w->size[taker]++;
        moved++;
    }
    return moved;
}

typedef struct { double ratio; i32 subs, rank, topic; } TopicKey;

static int cmp_topic(const void *a, const void *b) {
    const TopicKey *x = a, *y = b;
    if (x->ratio != y->ratio) return x->ratio > y->ratio ? -1 : 1;
    if (x->subs != y->subs) return x->subs < y->subs ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->topic > y->topic) - (x->topic < y->topic);
}

/* Lists the subscribers of each topic in member order. A topic of a single class shares the list of that class's
 * members; a topic of several classes gets a list of its own. Returns the block that holds those lists, or NULL if
 * memory ran out. */
static i32 *subscribers(Work *w, i32 *class_members) {
    Problem *p = w->p;
    i32 T = p->n_topics, M = p->n_members, C = p->n_classes;
    i32 *size = calloc((size_t)C + 2, sizeof(i32)), *in = calloc((size_t)T + 1, sizeof(i32));
    i32 **fill = calloc((size_t)T + 1, sizeof(i32 *)), *room = NULL;
    if (!size || !in || !fill) goto out;
    for (i32 m = 0; m < M; m++) size[p->class_of[m] + 1]++;
    for (i32 c = 0; c < C; c++) {
        i32 members = size[c + 1];
        if (members)
            for (i32 k = p->class_off[c]; k < p->class_off[c + 1]; k++) {
                w->sub_n[p->class_topics[k]] += members;
                in[p->class_topics[k]]++;
            }
        size[c + 1] += size[c];
    }
    /* size[c] is now the index in class_members at which class c begins. */
    for (i32 c = 0; c < C; c++)
        if (size[c + 1] > size[c])
            for (i32 k = p->class_off[c]; k < p->class_off[c + 1]; k++)
                if (in[p->class_topics[k]] == 1) w->subs[p->class_topics[k]] = class_members + size[c];
    for (i32 m = 0; m < M; m++) class_members[size[p->class_of[m]]++] = m;
    size_t need = 0;
    for (i32 t = 0; t < T; t++) if (in[t] > 1) need += (size_t)w->sub_n[t];
    room = malloc((need + 1) * sizeof(i32));
    if (!room || !need) goto out;
    need = 0;
    for (i32 t = 0; t < T; t++)
        if (in[t] > 1) {
            w->subs[t] = fill[t] = room + need;
            need += (size_t)w->sub_n[t];
        }
    for (i32 m = 0; m < M; m++) {
        i32 c = p->class_of[m];
        for (i32 k = p->class_off[c]; k < p->class_off[c + 1]; k++) {
            i32 t = p->class_topics[k];
            if (fill[t]) *fill[t]++ = m;
        }
    }
out:
    free(size); free(in); free(fill);
    return room;
}

static int heterogeneous(Problem *p) {
    i32 T = p->n_topics, M = p->n_members, C = p->n_classes, rc = NO_MEMORY, n_used = 0, biggest = 0;
    size_t words = ((size_t)T + 63) / 64;
    Work w = {.p = p};
    i32 *class_members = malloc(((size_t)M + 1) * sizeof(i32)), *room = NULL;
    TopicKey *order = malloc(((size_t)T + 1) * sizeof(TopicKey));
    uint64_t *bits = calloc((size_t)C * words + 1, sizeof(uint64_t));
    w.size = calloc((size_t)M + 1, sizeof(i32));
    w.sub_n = calloc((size_t)T + 1, sizeof(i32));
    w.subs = calloc((size_t)T + 1, sizeof(i32 *));
    w.b.sorted = malloc(((size_t)M + 1) * sizeof(i32));
    w.start = malloc(((size_t)M + 1) * sizeof(i32));
    w.end = malloc(((size_t)M + 1) * sizeof(i32));
    w.near = malloc(((size_t)M + 1) * sizeof(i32));
    w.count_room = 4 * M + 64;
    w.count = malloc(2 * ((size_t)w.count_room + 2) * sizeof(i32));
    for (i32 t = 0; t < T; t++) {
        i32 parts = p->off[t + 1] - p->off[t];
        biggest = parts > biggest ? parts : biggest;
    }
    w.by_owner = malloc(((size_t)biggest + 1) * sizeof(i32));
    if (!class_members || !order || !bits || !w.size || !w.sub_n || !w.subs || !w.b.sorted || !w.start || !w.end ||
        !w.near || !w.count || !w.by_owner || !(room = subscribers(&w, class_members)))
        goto out;

    /* A member keeps its partitions of the topics that it still subscribes to. */
    i32 any = 0;
    for (i32 q = 0; q < p->n_parts; q++) any |= p->owner[q] >= 0;
    for (i32 c = 0; any && c < C; c++)
        for (i32 k = p->class_off[c]; k < p->class_off[c + 1]; k++) {
            i32 t = p->class_topics[k];
            bits[(size_t)c * words + (size_t)(t >> 6)] |= 1ull << (t & 63);
        }
    for (i32 t = 0; t < T; t++) {
        for (i32 q = p->off[t]; any && q < p->off[t + 1]; q++) {
            i32 m = p->owner[q];
            if (m < 0) continue;
            if (bits[(size_t)p->class_of[m] * words + (size_t)(t >> 6)] >> (t & 63) & 1) w.size[m]++;
            else p->owner[q] = -1;
        }
        if (w.sub_n[t]) order[n_used++] = (TopicKey){(double)(p->off[t + 1] - p->off[t]) / w.sub_n[t], w.sub_n[t], p->id_rank[t], t};
    }
    qsort(order, (size_t)n_used, sizeof(TopicKey), cmp_topic);

    for (i32 k = 0; k < n_used; k++) {
        i32 t = order[k].topic, q = p->off[t], end = p->off[t + 1], low, high;
        while (q < end && p->owner[q] >= 0) q++;
        if (q == end) continue;
        min_max(&w, w.subs[t], w.sub_n[t], &low, &high);
        /* The least loaded members come first, in member order. They mostly take everything, and nothing is sorted. */
        i32 lowest = 0;
        for (i32 i = 0; i < w.sub_n[t] && q < end; i++) {
            if (w.near[i] != low) continue;
            lowest++;
            p->owner[q] = w.subs[t][i];
            w.size[w.subs[t][i]]++;
            while (++q < end && p->owner[q] >= 0) {}
        }
        if (q == end) continue;
        if (sort_members(&w, t, low, high) != OK) goto out;
        w.b.least_end = w.b.next_least = lowest;
        w.b.least_count = low;
        for (; q < end; q++) {
            if (p->owner[q] >= 0) continue;
            i32 m = next_least(&w);
            p->owner[q] = m;
            w.size[m]++;
        }
    }
    i32 last = -1, n = 0;
    for (i32 k = 0; k < n_used; k++) if (order[k].subs >= 2) order[n++] = order[k];
    for (i32 round = 0; round < MAX_ROUNDS; round++) {
        for (i32 k = 0; k < n; k++) {
            if (k == last) { rc = OK; goto out; }
            i32 moved = balance_topic(&w, order[k].topic);
            if (moved < 0) goto out;
            if (moved > 0 || last == -1) last = k;
        }
    }
    rc = OK;
out:
    free(class_members); free(order); free(bits); free(room); free(w.size); free(w.sub_n); free(w.subs);
    free(w.b.sorted); free(w.start); free(w.end); free(w.near); free(w.count); free(w.by_owner);
    return rc;
}

/* ---- range ----------------------------------------------------------------------------------------------------- */

static int range_assign(Problem *p, const i32 *order) {
    i32 T = p->n_topics, M = p->n_members, rc = NO_MEMORY;
    i32 *subs = calloc((size_t)T + 1, sizeof(i32)), *next = malloc(((size_t)T + 1) * sizeof(i32));
    i32 *quota = calloc((size_t)T + 1, sizeof(i32)), *extra = calloc((size_t)T + 1, sizeof(i32));
    if (!subs || !next || !quota || !extra) goto out;
    for (i32 q = 0; q < p->n_parts; q++) p->owner[q] = -1;
    if (p->n_classes == 1) {
        for (i32 k = p->class_off[0]; k < p->class_off[1]; k++) {
            i32 t = p->class_topics[k], q = p->off[t], end = p->off[t + 1];
            i32 each = (end - q) / M, more = (end - q) % M;
            for (i32 i = 0; q < end; i++) {
                i32 stop = q + each + (i < more);
                while (q < stop) p->owner[q++] = order[i];
            }
        }
        rc = OK;
        goto out;
    }
    for (i32 m = 0; m < M; m++) {
        i32 c = p->class_of[m];
        for (i32 k = p->class_off[c]; k < p->class_off[c + 1]; k++) subs[p->class_topics[k]]++;
    }
    for (i32 t = 0; t < T; t++) {
        next[t] = p->off[t];
        if (subs[t]) {
            quota[t] = (p->off[t + 1] - p->off[t]) / subs[t];
            extra[t] = (p->off[t + 1] - p->off[t]) % subs[t];
        }
    }
    for (i32 i = 0; i < M; i++) {
        i32 m = order[i], c = p->class_of[m];
        for (i32 k = p->class_off[c]; k < p->class_off[c + 1]; k++) {
            i32 t = p->class_topics[k], stop = next[t] + quota[t];
            if (extra[t] > 0) { extra[t]--; stop++; }
            while (next[t] < stop) p->owner[next[t]++] = m;
        }
    }
    rc = OK;
out:
    free(subs); free(next); free(quota); free(extra);
    return rc;
}

/* ---- Python -------------------------------------------------------------------------------------------------- */

enum { MOST_INTS = INT32_MAX / 4 - 64 }; /* four times as many, and some, are counted in 32 bits */
static const i32 NOTHING;

typedef struct { Py_buffer v[7]; int n; } Buffers;

static void release(Buffers *b) { while (b->n > 0) PyBuffer_Release(&b->v[--b->n]); }

static int ints(PyObject *o, Buffers *b, const i32 **out, Py_ssize_t *len) {
    if (PyObject_GetBuffer(o, &b->v[b->n], PyBUF_C_CONTIGUOUS) < 0) return -1;
    Py_buffer *v = &b->v[b->n++];
    if (v->len % (Py_ssize_t)sizeof(i32) || (v->len && (uintptr_t)v->buf % sizeof(i32)) || v->len / 4 > MOST_INTS) {
        PyErr_SetString(PyExc_ValueError, "not a buffer of 32-bit integers");
        return -1;
    }
    *out = v->len ? v->buf : &NOTHING; /* an empty buffer may be at NULL, where nothing may be counted from */
    *len = v->len / (Py_ssize_t)sizeof(i32);
    return 0;
}

static PyObject *fail(int rc) {
    if (rc == NO_MEMORY) return PyErr_NoMemory();
    PyErr_SetString(rc == LEFT_OVER ? PyExc_ArithmeticError : PyExc_ValueError,
                    rc == LEFT_OVER ? "partitions were left unassigned" : "an index is out of range");
    return NULL;
}

/* Reads the five arrays that uniform and range share: off, id_rank or order, class_off, class_topics, class_of. */
static int problem(PyObject *const *args, Buffers *b, Problem *p, const i32 **third) {
    Py_ssize_t n_off, n_third, n_coff, n_ct, n_of;
    if (ints(args[0], b, &p->off, &n_off) || ints(args[1], b, third, &n_third) || ints(args[2], b, &p->class_off, &n_coff) ||
        ints(args[3], b, &p->class_topics, &n_ct) || ints(args[4], b, &p->class_of, &n_of))
        return -1;
    if (n_off < 1 || n_coff < 1) { fail(BAD_INDEX); return -1; }
    p->n_topics = (i32)n_off - 1;
    p->n_classes = (i32)n_coff - 1;
    p->n_members = (i32)n_of;
    p->n_parts = p->off[n_off - 1];
    if (p->n_parts < 0 || check_offsets(p->off, p->n_topics, p->n_parts) || check_offsets(p->class_off, p->n_classes, n_ct) ||
        check_range(p->class_topics, n_ct, 0, p->n_topics) ||
        check_classes(p->class_off, p->n_classes, p->class_topics) || check_range(p->class_of, n_of, 0, p->n_classes)) {
        fail(BAD_INDEX);
        return -1;
    }
    return (int)n_third;
}

static PyObject *py_uniform(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Problem p;
    const i32 *owner;
    Py_ssize_t n_owner;
    PyObject *out = NULL;
    if (nargs != 6) { PyErr_SetString(PyExc_TypeError, "uniform takes 6 arrays"); return NULL; }
    int n_rank = problem(args, &b, &p, &p.id_rank);
    if (n_rank < 0 || ints(args[5], &b, &owner, &n_owner)) goto out;
    if (n_rank != p.n_topics || n_owner != p.n_parts || check_range(owner, n_owner, -1, p.n_members)) { fail(BAD_INDEX); goto out; }
    out = PyByteArray_FromStringAndSize((const char *)owner, n_owner * (Py_ssize_t)sizeof(i32));
    if (!out) goto out;
    p.owner = (i32 *)(void *)PyByteArray_AS_STRING(out);
    int rc = OK;
    if (p.n_members) {
        Py_BEGIN_ALLOW_THREADS
        rc = p.n_classes == 1 ? homogeneous(&p) : heterogeneous(&p);
        Py_END_ALLOW_THREADS
    }
    if (rc != OK) { Py_CLEAR(out); fail(rc); }
out:
    release(&b);
    return out;
}

static PyObject *py_range(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Problem p;
    const i32 *order;
    PyObject *out = NULL;
    if (nargs != 5) { PyErr_SetString(PyExc_TypeError, "range takes 5 arrays"); return NULL; }
    int n_order = problem(args, &b, &p, &order);
    if (n_order < 0) goto out;
    int rc = n_order == p.n_members ? check_permutation(order, n_order) : BAD_INDEX;
    if (rc != OK) { fail(rc); goto out; }
    out = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)p.n_parts * (Py_ssize_t)sizeof(i32));
    if (!out) goto out;
    p.owner = (i32 *)(void *)PyByteArray_AS_STRING(out);
    Py_BEGIN_ALLOW_THREADS
    if (p.n_members) rc = range_assign(&p, order);
    else memset(p.owner, 0xff, (size_t)p.n_parts * sizeof(i32));
    Py_END_ALLOW_THREADS
    if (rc != OK) { Py_CLEAR(out); fail(rc); }
out:
    release(&b);
    return out;
}

static PyObject *py_by_member(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    const i32 *owner;
    Py_ssize_t n;
    PyObject *off = NULL, *parts = NULL, *out = NULL;
    if (nargs != 2) { PyErr_SetString(PyExc_TypeError, "by_member takes owner and the number of members"); return NULL; }
    long members = PyLong_AsLong(args[1]);
    if (members == -1 && PyErr_Occurred()) return NULL;
    if (ints(args[0], &b, &owner, &n)) goto out;
    if (members < 0 || members > INT32_MAX - 8 || check_range(owner, n, -1, (i32)members)) { fail(BAD_INDEX); goto out; }
    off = PyByteArray_FromStringAndSize(NULL, (members + 2) * (Py_ssize_t)sizeof(i32));
    if (!off) goto out;
    i32 *o = (i32 *)(void *)PyByteArray_AS_STRING(off);
    memset(o, 0, (size_t)(members + 2) * sizeof(i32));
    for (Py_ssize_t q = 0; q < n; q++) if (owner[q] >= 0) o[owner[q] + 2]++;
    for (long m = 0; m < members; m++) o[m + 2] += o[m + 1];
    parts = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)o[members + 1] * (Py_ssize_t)sizeof(i32));
    if (!parts) goto out;
    i32 *d = (i32 *)(void *)PyByteArray_AS_STRING(parts);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t q = 0; q < n; q++) if (owner[q] >= 0) d[o[owner[q] + 1]++] = (i32)q;
    Py_END_ALLOW_THREADS
    if (PyByteArray_Resize(off, (members + 1) * (Py_ssize_t)sizeof(i32)) < 0) goto out;
    out = PyTuple_Pack(2, off, parts);
out:
    Py_XDECREF(off);
    Py_XDECREF(parts);
    release(&b);
    return out;
}

static PyObject *py_remap(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    const i32 *owner, *to;
    Py_ssize_t n, members;
    PyObject *out = NULL;
    if (nargs != 2) { PyErr_SetString(PyExc_TypeError, "remap takes owner and the new indices"); return NULL; }
    if (ints(args[0], &b, &owner, &n) || ints(args[1], &b, &to, &members)) goto out;
    if (check_range(owner, n, -1, (i32)members)) { fail(BAD_INDEX); goto out; }
    out = PyByteArray_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(i32));
    if (!out) goto out;
    i32 *d = (i32 *)(void *)PyByteArray_AS_STRING(out);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t q = 0; q < n; q++) d[q] = owner[q] < 0 ? -1 : to[owner[q]];
    Py_END_ALLOW_THREADS
out:
    release(&b);
    return out;
}

static PyObject *py_changed(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    const i32 *x, *y;
    Py_ssize_t nx, ny;
    long moved = 0;
    PyObject *flags = NULL;
    if (nargs != 3) { PyErr_SetString(PyExc_TypeError, "changed takes two owners and the number of members"); return NULL; }
    long members = PyLong_AsLong(args[2]);
    if (members == -1 && PyErr_Occurred()) return NULL;
    if (ints(args[0], &b, &x, &nx) || ints(args[1], &b, &y, &ny)) goto out;
    if (nx != ny || members < 0 || members > INT32_MAX - 8 || check_range(x, nx, -1, (i32)members) ||
        check_range(y, ny, -1, (i32)members)) { fail(BAD_INDEX); goto out; }
    flags = PyByteArray_FromStringAndSize(NULL, members + 1);
    if (!flags) goto out;
    uint8_t *f = (uint8_t *)PyByteArray_AS_STRING(flags);
    Py_BEGIN_ALLOW_THREADS
    memset(f, 0, (size_t)members + 1);
    for (Py_ssize_t q = 0; q < nx; q++)
        if (x[q] != y[q]) {
            f[x[q] < 0 ? members : x[q]] = 1;
            f[y[q] < 0 ? members : y[q]] = 1;
            moved += y[q] >= 0;
        }
    Py_END_ALLOW_THREADS
out:
    release(&b);
    if (!flags) return NULL;
    if (PyByteArray_Resize(flags, members) < 0) { Py_DECREF(flags); return NULL; }
    return Py_BuildValue("(Nl)", flags, moved);
}

/* Looks each key up in a dict; a key that is missing gives -1. */
static PyObject *py_lookup(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (nargs != 2 || !PyDict_Check(args[1])) { PyErr_SetString(PyExc_TypeError, "lookup takes a sequence and a dict"); return NULL; }
    PyObject *keys = PySequence_Tuple(args[0]); /* a list might be emptied when its keys are compared */
    if (!keys) return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    PyObject *out = PyByteArray_FromStringAndSize(NULL, 4 * n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *value = PyDict_GetItemWithError(args[1], PyTuple_GET_ITEM(keys, i));
        long v = value ? PyLong_AsLong(value) : -1;
        if (v == -1 && PyErr_Occurred()) Py_CLEAR(out);
        else if (v < INT32_MIN || v > INT32_MAX) { PyErr_SetString(PyExc_OverflowError, "a number of more than 32 bits"); Py_CLEAR(out); }
        else ((i32 *)PyByteArray_AS_STRING(out))[i] = (i32)v;
    }
    Py_DECREF(keys);
    return out;
}

/* Returns the topic of global partition q, which is topic `from` or a later one. */
static i32 topic_of(const i32 *off, i32 n, i32 q, i32 from) {
    i32 lo = from, hi = n;
    if (q < off[from + 1]) return from;
    while (hi - lo > 1) {
        i32 mid = lo + (hi - lo) / 2;
        if (off[mid] <= q) lo = mid; else hi = mid;
    }
    return lo;
}

typedef struct {
    const i32 *csr, *parts, *off;
    Py_ssize_t n_csr, n_parts, n_off;
    i32 at, end, n_topics;
    PyObject *ids;
} Slice;

/* args: offsets of the members in parts, parts, offsets of the topics, a tuple with one item for each topic */
static int slices(PyObject *const *args, Buffers *b, Slice *s) {
    if (ints(args[0], b, &s->csr, &s->n_csr) || ints(args[1], b, &s->parts, &s->n_parts) || ints(args[2], b, &s->off, &s->n_off))
        return -1;
    s->ids = args[3];
    if (!PyTuple_Check(s->ids) || PyTuple_GET_SIZE(s->ids) != s->n_off - 1) { fail(BAD_INDEX); return -1; }
    s->n_topics = (i32)s->n_off - 1;
    return 0;
}

static int member_slice(Slice *s, long m) {
    if (m < 0 || m + 1 >= s->n_csr) { fail(BAD_INDEX); return -1; }
    s->at = s->csr[m];
    s->end = s->csr[m + 1];
    if (s->at < 0 || s->end < s->at || s->end > s->n_parts ||
        check_range(s->parts + s->at, s->end - s->at, 0, s->n_off ? s->off[s->n_off - 1] : 0)) { fail(BAD_INDEX); return -1; }
    return 0;
}

/* The partitions that begin at s->at and are of one topic, which is topic *t or a later one: sets it, and returns where
 * they end. -1: they do not ascend, or the offsets do not. */
static i32 run_of(const Slice *s, i32 *t) {
    i32 stop = s->at, q = s->parts[stop];
    if (s->n_topics < 1) { fail(BAD_INDEX); return -1; }
    *t = topic_of(s->off, s->n_topics, q, *t);
    i32 low = s->off[*t], high = s->off[*t + 1];
    while (stop < s->end && s->parts[stop] >= low && s->parts[stop] < high) stop++;
    if (stop == s->at) { fail(BAD_INDEX); return -1; }
    return stop;
}

static int slice(PyObject *const *args, Buffers *b, Slice *s) {
    long m = PyLong_AsLong(args[4]);
    if (m == -1 && PyErr_Occurred()) return -1;
    return slices(args, b, s) || member_slice(s, m) ? -1 : 0;
}

/* Most topics give a member a single partition, so these tuples are shared. */
#define SINGLES 1024
static PyObject *singles[SINGLES];

static PyObject *tuple_of(const i32 *parts, i32 n, i32 first) {
    if (n == 1 && parts[0] - first < SINGLES && singles[parts[0] - first]) return Py_NewRef(singles[parts[0] - first]);
    PyObject *tuple = PyTuple_New(n);
    if (!tuple) return NULL;
    for (i32 k = 0; k < n; k++) {
        PyObject *number = PyLong_FromLong(parts[k] - first);
        if (!number) { Py_DECREF(tuple); return NULL; }
        PyTuple_SET_ITEM(tuple, k, number);
    }
    if (n == 1 && parts[0] - first < SINGLES) singles[parts[0] - first] = Py_NewRef(tuple);
    return tuple;
}

static PyObject *dict_of(Slice *s) {
    PyObject *out = PyDict_New();
    i32 t = 0;
    while (out && s->at < s->end) {
        i32 stop = run_of(s, &t);
        PyObject *tuple = stop < 0 ? NULL : tuple_of(s->parts + s->at, stop - s->at, s->off[t]);
        if (!tuple || PyDict_SetItem(out, PyTuple_GET_ITEM(s->ids, t), tuple) < 0) Py_CLEAR(out);
        Py_XDECREF(tuple);
        s->at = stop;
    }
    return out;
}

static PyObject *py_partitions(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Slice s;
    PyObject *out = NULL;
    if (nargs != 5) { PyErr_SetString(PyExc_TypeError, "partitions takes 5 arguments"); return NULL; }
    if (!slice(args, &b, &s)) out = dict_of(&s);
    release(&b);
    return out;
}

static PyObject *py_partitions_all(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Slice s;
    const i32 *members;
    Py_ssize_t n;
    PyObject *out = NULL;
    if (nargs != 5) { PyErr_SetString(PyExc_TypeError, "partitions_all takes 5 arguments"); return NULL; }
    if (slices(args, &b, &s) || ints(args[4], &b, &members, &n)) goto out;
    out = PyList_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *d = member_slice(&s, members[i]) ? NULL : dict_of(&s);
        if (d) PyList_SET_ITEM(out, i, d);
        else Py_CLEAR(out);
    }
out:
    release(&b);
    return out;
}

/* The same for one topic, from here to `stop` in the table. */
static int held_of(Slice *s, i32 t, i32 stop, PyObject *epochs, PyObject *within) {
    i32 first = s->at;
    if (!PyDict_Check(epochs)) { PyErr_SetString(PyExc_TypeError, "partitions of a topic must be a dict"); return -1; }
    int in = PySet_Contains(within, PyTuple_GET_ITEM(s->ids, t));
    if (in <= 0) return in;
    for (; s->at < stop; s->at++) {
        PyObject *number = PyLong_FromLong(s->parts[s->at] - s->off[t]);
        if (!number) return -1;
        in = PyDict_Contains(epochs, number);
        Py_DECREF(number);
        if (in <= 0) return in;
    }
    return s->at - first == PyDict_GET_SIZE(epochs);
}

/* Returns 1 if a member has exactly its part of the table (`had` is topic -> dict by partition) and all its topics are
 * in the set `within`, 0 if not, -1 on an error. */
static int held(Slice *s, PyObject *had, PyObject *within) {
    i32 t = 0;
    Py_ssize_t topics = 0;
    while (s->at < s->end) {
        i32 stop = run_of(s, &t);
        if (stop < 0) return -1;
        PyObject *epochs = PyDict_GetItemWithError(had, PyTuple_GET_ITEM(s->ids, t));
        if (!epochs) return PyErr_Occurred() ? -1 : 0;
        Py_INCREF(epochs); /* a comparison may take it out of `had` */
        int found = held_of(s, t, stop, epochs, within);
        Py_DECREF(epochs);
        if (found <= 0) return found;
        topics++;
    }
    return topics == PyDict_GET_SIZE(had);
}

static PyObject *py_held(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Slice s;
    int found = -1;
    if (nargs != 7 || !PyDict_Check(args[5]) || !PyAnySet_Check(args[6])) {
        PyErr_SetString(PyExc_TypeError, "held takes 5 arguments as partitions does, a dict and a set");
        return NULL;
    }
    if (!slice(args, &b, &s)) found = held(&s, args[5], args[6]);
    release(&b);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

typedef struct { uint8_t *d; size_t n, room; } Out;

static int reserve(Out *o, size_t more) {
    if (o->n + more <= o->room) return 0;
    size_t room = (o->room + more) * 2;
    uint8_t *d = PyMem_Realloc(o->d, room);
    if (!d) return -1;
    o->d = d;
    o->room = room;
    return 0;
}

static void zigzag(Out *o, int64_t v) {
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    while (z > 127) { o->d[o->n++] = (uint8_t)(z | 0x80); z >>= 7; }
    o->d[o->n++] = (uint8_t)z;
}

/* Appends bytes unchanged, and reserves room for a number after them. */
static int raw(Out *o, const char *d, Py_ssize_t n) {
    if (reserve(o, (size_t)n + 16)) { PyErr_NoMemory(); return -1; }
    memcpy(o->d + o->n, d, (size_t)n);
    o->n += (size_t)n;
    return 0;
}

/* Appends the length of the bytes, and then the bytes. */
static int sized(Out *o, const char *d, Py_ssize_t n) {
    if (reserve(o, 16)) { PyErr_NoMemory(); return -1; }
    zigzag(o, n);
    return raw(o, d, n);
}

static int text(Out *o, PyObject *string) {
    Py_ssize_t n;
    const char *d = PyUnicode_AsUTF8AndSize(string, &n);
    return d ? sized(o, d, n) : -1;
}

/* Writes an Avro array of {the topic's head, unchanged; array of int}: one block, and then 0. */
static PyObject *py_avro_partitions(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Slice s;
    Out o = {0};
    PyObject *out = NULL;
    if (nargs != 6) { PyErr_SetString(PyExc_TypeError, "avro_partitions takes 6 arguments"); return NULL; }
    if (!PyBytes_Check(args[5])) { PyErr_SetString(PyExc_TypeError, "the head must be bytes"); return NULL; }
    if (slice(args, &b, &s)) goto out;
    i32 topics = 0, t = 0;
    for (Slice k = s; k.at < k.end; topics++)
        if ((k.at = run_of(&k, &t)) < 0) goto out;
    if (raw(&o, PyBytes_AS_STRING(args[5]), PyBytes_GET_SIZE(args[5]))) goto out;
    if (topics) zigzag(&o, topics);
    t = 0;
    while (s.at < s.end) {
        i32 stop = run_of(&s, &t);
        if (stop < 0) goto out;
        PyObject *head_of = PyTuple_GET_ITEM(s.ids, t);
        if (!PyBytes_Check(head_of)) { PyErr_SetString(PyExc_TypeError, "each topic must be bytes"); goto out; }
        size_t size = (size_t)PyBytes_GET_SIZE(head_of);
        if (reserve(&o, size + 16 + (size_t)(stop - s.at) * 5)) { PyErr_NoMemory(); goto out; }
        memcpy(o.d + o.n, PyBytes_AS_STRING(head_of), size);
        o.n += size;
        zigzag(&o, stop - s.at);
        for (i32 k = s.at; k < stop; k++) zigzag(&o, s.parts[k] - s.off[t]);
        o.d[o.n++] = 0;
        s.at = stop;
    }
    if (reserve(&o, 1)) { PyErr_NoMemory(); goto out; }
    o.d[o.n++] = 0;
    out = PyBytes_FromStringAndSize((const char *)o.d, (Py_ssize_t)o.n);
out:
    PyMem_Free(o.d);
    release(&b);
    return out;
}

/* One topic of an array. Nothing but numbers is taken, as these run no code that could change the dict meanwhile. */
static int owned_of(Out *o, PyObject *head, PyObject *parts) {
    PyObject *key, *value;
    if (!head || !PyBytes_Check(head) || !PyDict_Check(parts)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a topic without its head, or without partitions");
        return -1;
    }
    Py_ssize_t count = PyDict_GET_SIZE(parts);
    if (reserve(o, (size_t)PyBytes_GET_SIZE(head) + 24 + (size_t)count * 20)) { PyErr_NoMemory(); return -1; }
    memcpy(o->d + o->n, PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
    o->n += (size_t)PyBytes_GET_SIZE(head);
    for (int what = 0; what < 2; what++) {
        Py_ssize_t p = 0;
        if (count) zigzag(o, count);
        while (PyDict_Next(parts, &p, &key, &value)) {
            PyObject *number = what ? value : key;
            if (!PyLong_Check(number)) { PyErr_SetString(PyExc_TypeError, "not a number"); return -1; }
            long long v = PyLong_AsLongLong(number);
            if (v == -1 && PyErr_Occurred()) return -1;
            zigzag(o, v);
        }
        o->d[o->n++] = 0;
    }
    return 0;
}

/* Writes `head`, and then an Avro array of {heads[topic], unchanged; array of partitions; array of epochs}, which it
 * takes from a dict of dicts. */
static PyObject *py_avro_owned(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Out o = {0};
    PyObject *out = NULL, *topic, *parts;
    Py_ssize_t at = 0;
    if (nargs != 3 || !PyDict_Check(args[0]) || !PyDict_Check(args[1]) || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "avro_owned takes two dicts and bytes");
        return NULL;
    }
    Py_ssize_t n = PyDict_GET_SIZE(args[0]);
    if (raw(&o, PyBytes_AS_STRING(args[2]), PyBytes_GET_SIZE(args[2]))) goto out;
    if (n) zigzag(&o, n);
    while (PyDict_Next(args[0], &at, &topic, &parts)) {
        Py_INCREF(topic); /* its comparison may empty the dict */
        Py_INCREF(parts);
        int failed = owned_of(&o, PyDict_GetItemWithError(args[1], topic), parts);
        Py_DECREF(parts);
        Py_DECREF(topic);
        if (failed) goto out;
    }
    if (reserve(&o, 1)) { PyErr_NoMemory(); goto out; }
    o.d[o.n++] = 0;
    out = PyBytes_FromStringAndSize((const char *)o.d, (Py_ssize_t)o.n);
out:
    PyMem_Free(o.d);
    return out;
}

/* Encodes numbers and strings as Avro does; bytes are copied unchanged. */
static PyObject *py_avro(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Out o = {0};
    PyObject *out = NULL;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (PyBytes_Check(args[i])) {
            if (raw(&o, PyBytes_AS_STRING(args[i]), PyBytes_GET_SIZE(args[i]))) goto out;
        } else if (PyUnicode_Check(args[i])) {
            if (text(&o, args[i])) goto out;
        } else {
            long long v = PyLong_AsLongLong(args[i]);
            if (v == -1 && PyErr_Occurred()) goto out;
            if (reserve(&o, 16)) { PyErr_NoMemory(); goto out; }
            zigzag(&o, v);
        }
    }
    out = PyBytes_FromStringAndSize((const char *)o.d, (Py_ssize_t)o.n);
out:
    PyMem_Free(o.d);
    return out;
}

/* Returns 0 and sets the number, or returns -1 if the varint does not end. */
static int unzigzag(const uint8_t *d, Py_ssize_t size, Py_ssize_t *at, int64_t *v) {
    uint64_t z = 0;
    for (int shift = 0; shift < 64 && *at < size; shift += 7) {
        uint8_t x = d[(*at)++];
        z |= (uint64_t)(x & 0x7F) << shift;
        if (x < 128) { *v = (int64_t)(z >> 1) ^ -(int64_t)(z & 1); return 0; }
    }
    return -1;
}

static PyObject *py_avro_strings(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (nargs != 2 || !PyBytes_Check(args[0])) { PyErr_SetString(PyExc_TypeError, "avro_strings takes bytes and a count"); return NULL; }
    long n = PyLong_AsLong(args[1]);
    if (n == -1 && PyErr_Occurred()) return NULL;
    const uint8_t *d = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t size = PyBytes_GET_SIZE(args[0]), at = 0;
    if (n < 0 || n > size) { PyErr_SetString(PyExc_ValueError, "a string does not end"); return NULL; }
    PyObject *out = PyTuple_New(n);
    for (long i = 0; out && i < n; i++) {
        int64_t len;
        if (unzigzag(d, size, &at, &len) || len < 0 || len > size - at) {
            PyErr_SetString(PyExc_ValueError, "a string does not end");
            Py_CLEAR(out);
            break;
        }
        PyObject *text = PyUnicode_DecodeUTF8((const char *)d + at, len, NULL);
        if (text) PyTuple_SET_ITEM(out, i, text);
        else Py_CLEAR(out);
        at += len;
    }
    return out;
}

static int record(Out *all, Out *o, PyObject *item, Py_ssize_t i) {
    PyObject *key, *value, *headers;
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 3 || !PyBytes_Check(key = PyTuple_GET_ITEM(item, 0)) ||
        ((value = PyTuple_GET_ITEM(item, 1)) != Py_None && !PyBytes_Check(value)) ||
        !PyTuple_Check(headers = PyTuple_GET_ITEM(item, 2))) {
        PyErr_SetString(PyExc_TypeError, "a record is (key, value or None, headers)");
        return -1;
    }
    o->n = 0;
    if (reserve(o, 32)) { PyErr_NoMemory(); return -1; }
    o->d[o->n++] = 0; /* attributes */
    o->d[o->n++] = 0; /* timestamp delta */
    zigzag(o, i);
    if (sized(o, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))) return -1;
    if (value == Py_None) zigzag(o, -1);
    else if (sized(o, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))) return -1;
    if (reserve(o, 16)) { PyErr_NoMemory(); return -1; }
    zigzag(o, PyTuple_GET_SIZE(headers));
    for (Py_ssize_t h = 0; h < PyTuple_GET_SIZE(headers); h++) {
        PyObject *name, *data;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(headers, h), "US", &name, &data) || text(o, name) ||
            sized(o, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)))
            return -1;
    }
    return sized(all, (const char *)o->d, (Py_ssize_t)o->n);
}

static PyObject *py_records(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Out all = {0}, one = {0};
    PyObject *out = NULL;
    if (nargs != 1 || !PyList_Check(args[0])) { PyErr_SetString(PyExc_TypeError, "records takes a list"); return NULL; }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++)
        if (record(&all, &one, PyList_GET_ITEM(args[0], i), i)) goto out;
    out = PyBytes_FromStringAndSize((const char *)all.d, (Py_ssize_t)all.n);
out:
    PyMem_Free(all.d);
    PyMem_Free(one.d);
    return out;
}

static PyMethodDef METHODS[] = {
    {"uniform", (PyCFunction)(void (*)(void))py_uniform, METH_FASTCALL, "See twin.py."},
    {"range_", (PyCFunction)(void (*)(void))py_range, METH_FASTCALL, "See twin.py."},
    {"by_member", (PyCFunction)(void (*)(void))py_by_member, METH_FASTCALL, "See twin.py."},
    {"remap", (PyCFunction)(void (*)(void))py_remap, METH_FASTCALL, "See twin.py."},
    {"changed", (PyCFunction)(void (*)(void))py_changed, METH_FASTCALL, "See twin.py."},
    {"partitions", (PyCFunction)(void (*)(void))py_partitions, METH_FASTCALL, "See twin.py."},
    {"partitions_all", (PyCFunction)(void (*)(void))py_partitions_all, METH_FASTCALL, "See twin.py."},
    {"lookup", (PyCFunction)(void (*)(void))py_lookup, METH_FASTCALL, "See twin.py."},
    {"held", (PyCFunction)(void (*)(void))py_held, METH_FASTCALL, "See twin.py."},
    {"avro_partitions", (PyCFunction)(void (*)(void))py_avro_partitions, METH_FASTCALL, "See twin.py."},
    {"avro_owned", (PyCFunction)(void (*)(void))py_avro_owned, METH_FASTCALL, "See twin.py."},
    {"avro", (PyCFunction)(void (*)(void))py_avro, METH_FASTCALL, "See twin.py."},
    {"avro_strings", (PyCFunction)(void (*)(void))py_avro_strings, METH_FASTCALL, "See twin.py."},
    {"records", (PyCFunction)(void (*)(void))py_records, METH_FASTCALL, "See twin.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", "Assignment kernels; twin.py says what they compute.", -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&MODULE); }
