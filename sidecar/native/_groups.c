/* The kernels of share groups and streams groups. Each function gives the same result as its namesake in
 * groups_twin.py, which says what it computes; the comments here only say how. Every index is checked before it is
 * used, and the GIL is released meanwhile.
 *
 * The algorithms are those of Kafka 4.4.0's SimpleAssignor and StickyTaskAssignor.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t i32;
typedef int64_t i64;
enum { OK = 0, NO_MEMORY, BAD_INDEX, TOO_LARGE };
enum { MOST_INTS = INT32_MAX / 4 - 64 }; /* twice as many are counted in 32 bits */
static const i64 NOTHING;

typedef struct { const i32 *d; i32 n; } Ints;

/* ---- memory and checks ----------------------------------------------------------------------------------------- */

/* All blocks of a run. A block that there was no memory for is NULL, and `failed` is set. */
typedef struct { void *block[48]; int n, failed; } Arena;

static void *take(Arena *a, i64 n, size_t size) {
    void *block = a->n < 48 ? calloc((size_t)n + 1, size) : NULL;
    if (block) a->block[a->n++] = block;
    else a->failed = 1;
    return block;
}

static i32 *numbers(Arena *a, i64 n) { return take(a, n, sizeof(i32)); }

static i32 *filled(Arena *a, i64 n, i32 value) {
    i32 *d = numbers(a, n);
    for (i64 i = 0; d && i < n; i++) d[i] = value;
    return d;
}

static void free_all(Arena *a) { while (a->n > 0) free(a->block[--a->n]); }

static int bad_offsets(Ints off, i32 n, i32 total) {
    if (off.n != n + 1 || off.d[0] != 0 || off.d[n] != total) return 1;
    for (i32 i = 0; i < n; i++) if (off.d[i + 1] < off.d[i]) return 1;
    return 0;
}

static int bad_range(Ints a, i32 high) {
    i32 bad = 0;
    for (i32 i = 0; i < a.n; i++) bad |= (a.d[i] < 0) | (a.d[i] >= high);
    return bad;
}

/* Sets the bit for each number, none of which may be there twice. */
static int bad_set(Ints a, uint8_t *flags, uint8_t bit) {
    for (i32 i = 0; i < a.n; i++) {
        if (flags[a.d[i]] & bit) return 1;
        flags[a.d[i]] |= bit;
    }
    return 0;
}

/* No member has a value twice. `stamp` has room for each value. */
static int bad_rows(Ints off, Ints values, i32 *stamp) {
    for (i32 m = 0; m + 1 < off.n; m++)
        for (i32 e = off.d[m]; e < off.d[m + 1]; e++) {
            if (stamp[values.d[e]] == m + 1) return 1;
            stamp[values.d[e]] = m + 1;
        }
    return 0;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

typedef struct { i32 value, member; } Pair;
typedef struct { Pair *d; i64 n, room; } Pairs;
typedef struct { i32 *off, *values; i32 n; } Csr;

/* Makes room for so many more. */
static int reserve(Pairs *p, i64 more) {
    if (p->n + more <= p->room) return OK;
    if (p->n + more > MOST_INTS) return TOO_LARGE;
    i64 room = p->n + more + p->room + 1024;
    Pair *d = realloc(p->d, (size_t)room * sizeof(Pair));
    if (!d) return NO_MEMORY;
    p->d = d;
    p->room = room;
    return OK;
}

/* Sorts by value and then by member: in a stable way, so a member's values ascend. */
static int csr_of(Arena *a, const Pairs *p, i32 values, i32 members, Csr *out) {
    i32 *at = numbers(a, (i64)values + 1), *next = numbers(a, members), rising = 1;
    const Pair *d = p->d;
    out->off = numbers(a, (i64)members + 1);
    out->values = numbers(a, p->n);
    out->n = (i32)p->n;
    if (a->failed) return NO_MEMORY;
    for (i64 i = 0; i < p->n; i++) out->off[d[i].member + 1]++;
    for (i64 i = 1; i < p->n; i++) rising &= d[i].value >= d[i - 1].value;
    if (!rising) {
        Pair *sorted = take(a, p->n, sizeof(Pair));
        if (!sorted) return NO_MEMORY;
        for (i64 i = 0; i < p->n; i++) at[d[i].value + 1]++;
        for (i32 q = 0; q < values; q++) at[q + 1] += at[q];
        for (i64 i = 0; i < p->n; i++) sorted[at[d[i].value]++] = d[i];
        d = sorted;
    }
    for (i32 m = 0; m < members; m++) { out->off[m + 1] += out->off[m]; next[m] = out->off[m]; }
    for (i64 i = 0; i < p->n; i++) out->values[next[d[i].member]++] = d[i].value;
    return OK;
}

/* ---- simple ------------------------------------------------------------------------------------------------------ */

enum { MAY = 1, WALKED = 2, THERE = 4 };

typedef struct {
    Ints off, class_off, class_topics, class_of, allowed, held_off, held, walk, turn;
    i32 n_topics, n_classes, n_members, n_parts;
    Arena a;
    Pairs out;
    uint8_t *flags;          /* partition -> MAY, WALKED, THERE: allowed or held */
    i32 *problem;            /* partition -> its problem, -1 for none: 0 for all, or its topic */
    i32 *count;              /* problem -> partitions that may be assigned */
    i32 *holder_off, *holder; /* partition -> entries of `held`, in their turn */
    i32 *entry_off, *entry;  /* problem -> entries of `held` */
    i32 *walk_off, *walked;  /* problem -> partitions */
    i32 *member_of;          /* entry -> member */
    uint8_t *lost;           /* entry -> whether the member gives the partition up */
    i32 *wanted, *have, *holders, *kept, *got, *lacking;
    i32 *by_class_off, *by_class;     /* class -> members */
    i32 *topic_class_off, *topic_class; /* topic -> classes with a member */
    i32 *gathered;
    uint8_t *in_class;
} Share;

static int cmp_i32(const void *a, const void *b) {
    i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return (x > y) - (x < y);
}

/* Members by class, and for each topic the classes that have it and a member. */
static void subscriptions(Share *s) {
    i32 C = s->n_classes, T = s->n_topics;
    for (i32 m = 0; m < s->n_members; m++) s->by_class_off[s->class_of.d[m] + 2]++;
    for (i32 c = 0; c < C; c++) s->by_class_off[c + 2] += s->by_class_off[c + 1];
    for (i32 m = 0; m < s->n_members; m++) s->by_class[s->by_class_off[s->class_of.d[m] + 1]++] = m;
    for (i32 c = 0; c < C; c++)
        if (s->by_class_off[c + 1] > s->by_class_off[c])
            for (i32 k = s->class_off.d[c]; k < s->class_off.d[c + 1]; k++) s->topic_class_off[s->class_topics.d[k] + 2]++;
    for (i32 t = 0; t < T; t++) s->topic_class_off[t + 2] += s->topic_class_off[t + 1];
    for (i32 c = 0; c < C; c++)
        if (s->by_class_off[c + 1] > s->by_class_off[c])
            for (i32 k = s->class_off.d[c]; k < s->class_off.d[c + 1]; k++)
                s->topic_class[s->topic_class_off[s->class_topics.d[k] + 1]++] = c;
}

/* Returns the subscribers of a topic in ascending order, and sets their number. */
static const i32 *subscribers(Share *s, i32 t, i32 *n) {
    i32 first = s->topic_class_off[t], end = s->topic_class_off[t + 1], k = 0;
    if (end - first == 1) {
        i32 c = s->topic_class[first];
        *n = s->by_class_off[c + 1] - s->by_class_off[c];
        return s->by_class + s->by_class_off[c];
    }
    i64 all = 0;
    for (i32 i = first; i < end; i++) all += s->by_class_off[s->topic_class[i] + 1] - s->by_class_off[s->topic_class[i]];
    *n = (i32)all;
    if (8 * all < s->n_members) {
        for (i32 i = first; i < end; i++) {
            i32 c = s->topic_class[i], size = s->by_class_off[c + 1] - s->by_class_off[c];
            memcpy(s->gathered + k, s->by_class + s->by_class_off[c], (size_t)size * sizeof(i32));
            k += size;
        }
        qsort(s->gathered, (size_t)k, sizeof(i32), cmp_i32);
        return s->gathered;
    }
    for (i32 i = first; i < end; i++) s->in_class[s->topic_class[i]] = 1;
    for (i32 m = 0; m < s->n_members; m++) if (s->in_class[s->class_of.d[m]]) s->gathered[k++] = m;
    for (i32 i = first; i < end; i++) s->in_class[s->topic_class[i]] = 0;
    return s->gathered;
}

/* Sorts partitions, or their places in the array, by their problem. */
static void by_problem(const i32 *problem, Ints parts, i32 problems, i32 *off, i32 *sorted, int places) {
    if (problems == 1) {
        i32 n = 0;
        for (i32 i = 0; i < parts.n; i++) if (problem[parts.d[i]] >= 0) sorted[n++] = places ? i : parts.d[i];
        off[1] = n;
        return;
    }
    for (i32 i = 0; i < parts.n; i++) if (problem[parts.d[i]] >= 0) off[problem[parts.d[i]] + 2]++;
    for (i32 g = 0; g < problems; g++) off[g + 2] += off[g + 1];
    for (i32 i = 0; i < parts.n; i++) {
        i32 g = problem[parts.d[i]];
        if (g >= 0) sorted[off[g + 1]++] = places ? i : parts.d[i];
    }
}

/* Sorts partitions and entries by their problem, and entries by their partition. */
static int split(Share *s, i32 problems) {
    i32 P = s->n_parts, H = s->held.n;
    Ints walk = s->walk.n ? s->walk : s->allowed;
    if (bad_set(s->allowed, s->flags, MAY) || bad_set(walk, s->flags, WALKED)) return BAD_INDEX;
    i32 *stamp = numbers(&s->a, P > H ? P : H);
    if (!stamp) return NO_MEMORY;
    if (bad_rows(s->held_off, s->held, stamp)) return BAD_INDEX;
    if (s->turn.n) {
        if (s->turn.n != H || bad_range(s->turn, H) || bad_set(s->turn, s->lost, 1)) return BAD_INDEX;
        memset(s->lost, 0, (size_t)H);
    }
    for (i32 t = 0; t < s->n_topics; t++) {
        i32 g = s->topic_class_off[t + 1] == s->topic_class_off[t] ? -1 : problems == 1 ? 0 : t, may = 0;
        for (i32 q = s->off.d[t]; q < s->off.d[t + 1]; q++) {
            if (g >= 0 && s->flags[q] & MAY) { may++; s->flags[q] |= THERE; }
            s->problem[q] = s->flags[q] & WALKED ? g : -1;
        }
        if (may) s->count[problems == 1 ? 0 : t] += may;
    }
    for (i32 m = 0; m < s->n_members; m++)
        for (i32 e = s->held_off.d[m]; e < s->held_off.d[m + 1]; e++) {
            i32 q = s->held.d[e];
            s->member_of[e] = m;
            if (s->problem[q] < 0) continue;
            s->flags[q] |= THERE;
            s->holder_off[q + 2]++;
        }
    for (i32 q = 0; q < P; q++) s->holder_off[q + 2] += s->holder_off[q + 1];
    for (i32 i = 0; i < H; i++) {
        i32 e = s->turn.n ? s->turn.d[i] : i, q = s->held.d[e];
        if (s->problem[q] >= 0) s->holder[s->holder_off[q + 1]++] = e;
    }
    by_problem(s->problem, s->held, problems, s->entry_off, s->entry, 1);
    by_problem(s->problem, walk, problems, s->walk_off, s->walked, 0);
    return OK;
}

/* What members keep of what they had: not more than their part, and not more holders of a partition than wanted. */
static int keep(Share *s, i32 g, i32 sharing) {
    i32 first = s->entry_off[g], end = s->entry_off[g + 1];
    for (i32 k = first; k < end; k++) {
        s->have[s->member_of[s->entry[k]]]++;
        s->holders[s->held.d[s->entry[k]]]++;
    }
    for (i32 k = first; k < end; k++) {
        i32 e = s->entry[k], m = s->member_of[e];
        if (s->have[m] <= s->wanted[m]) continue;
        s->lost[e] = 1;
        s->have[m]--;
        s->holders[s->held.d[e]]--;
    }
    for (i32 i = s->walk_off[g]; i < s->walk_off[g + 1]; i++) {
        i32 q = s->walked[i];
        for (i32 k = s->holder_off[q]; s->holders[q] > sharing && k < s->holder_off[q + 1]; k++) {
            i32 e = s->holder[k];
            if (s->lost[e]) continue;
            s->lost[e] = 1;
            s->have[s->member_of[e]]--;
            s->holders[q]--;
        }
    }
    int rc = reserve(&s->out, end - first);
    for (i32 k = first; rc == OK && k < end; k++) {
        i32 e = s->entry[k];
        if (!s->lost[e]) s->out.d[s->out.n++] = (Pair){s->held.d[e], s->member_of[e]};
    }
    return rc;
}

/* Members that lack partitions take them in turns. `lacking[at..n)` are those that this round has not asked yet, and
 * `lacking[0..left)` those that it asked and that still lack some. */
static int deal(Share *s, i32 g, i32 sharing, i32 n) {
    i32 at = 0, left = 0, gave = 0, *lacking = s->lacking, *have = s->have, *kept = s->kept, *got = s->got;
    const i32 *wanted = s->wanted;
    for (i32 i = s->walk_off[g]; i < s->walk_off[g + 1]; i++) {
        i32 q = s->walked[i], missing = s->flags[q] & THERE ? sharing - s->holders[q] : 0;
        if (missing <= 0) continue;
        for (i32 k = s->holder_off[q]; k < s->holder_off[q + 1]; k++)
            if (!s->lost[s->holder[k]]) kept[s->member_of[s->holder[k]]] = q + 1;
        int rc = reserve(&s->out, missing);
        if (rc) return rc;
        Pair *out = s->out.d + s->out.n;
        while (missing > 0) {
            if (at == n) {
                if (!gave) break;
                n = left;
                at = left = gave = 0;
                continue;
            }
            i32 m = lacking[at++];
            if (kept[m] != q + 1) {
                if (got[m] != q + 1) { /* if it was asked before, it counts again and gets nothing */
                    *out++ = (Pair){q, m};
                    got[m] = q + 1;
                    have[m]++;
                }
                missing--;
                gave = 1;
            }
            if (have[m] < wanted[m]) lacking[left++] = m;
        }
        s->out.n = out - s->out.d;
        if (missing) return OK; /* no later partition gets any, either */
    }
    return OK;
}

/* The next integer that is not below a number of 32 bits. */
static i32 up(double x) { return (i32)x + (x > (double)(i32)x); }

/* `members` NULL: all. */
static int share_out(Share *s, i32 g, const i32 *members, i32 n) {
    i64 count = s->count[g], sharing = count ? (n + count - 1) / count : 0;
    double each = (double)(sharing * count) / n;
    i32 lacking = 0;
    for (i32 i = 0; i < n; i++)
        s->wanted[members ? members[i] : i] = up(each * (i + 1.0)) - up(each * i);
    int rc = keep(s, g, (i32)sharing);
    for (i32 i = 0; i < n; i++) {
        i32 m = members ? members[i] : i;
        if (s->have[m] < s->wanted[m]) s->lacking[lacking++] = m;
    }
    if (rc == OK) rc = deal(s, g, (i32)sharing, lacking);
    for (i32 i = 0; i < n; i++) s->wanted[members ? members[i] : i] = s->have[members ? members[i] : i] = 0;
    for (i32 k = s->entry_off[g]; k < s->entry_off[g + 1]; k++) s->have[s->member_of[s->entry[k]]] = 0;
    return rc;
}

static int simple(Share *s, Csr *result) {
    i32 T = s->n_topics, C = s->n_classes, M = s->n_members, P = s->n_parts, H = s->held.n;
    i32 problems = C == 1 ? 1 : T;
    Arena *a = &s->a;
    s->flags = take(a, P, 1);
    s->lost = take(a, H, 1);
    s->in_class = take(a, C, 1);
    s->problem = numbers(a, P);
    s->count = numbers(a, problems);
    s->holder_off = numbers(a, (i64)P + 2);
    s->holder = numbers(a, H);
    s->entry_off = numbers(a, (i64)problems + 2);
    s->entry = numbers(a, H);
    s->walk_off = numbers(a, (i64)problems + 2);
    s->walked = numbers(a, P);
    s->member_of = numbers(a, H);
    s->wanted = numbers(a, M);
    s->have = numbers(a, M);
    s->holders = numbers(a, P);
    s->kept = numbers(a, M);
    s->got = numbers(a, M);
    s->lacking = numbers(a, M);
    s->by_class_off = numbers(a, (i64)C + 2);
    s->by_class = numbers(a, M);
    s->topic_class_off = numbers(a, (i64)T + 2);
    s->topic_class = numbers(a, s->class_topics.n);
    s->gathered = numbers(a, M);
    if (a->failed) return NO_MEMORY;
    subscriptions(s);
    int rc = split(s, problems);
    if (C == 1 && M && rc == OK) rc = share_out(s, 0, NULL, M);
    for (i32 t = 0; C > 1 && t < T && rc == OK; t++) {
        i32 n = 0;
        if (s->topic_class_off[t + 1] == s->topic_class_off[t]) continue;
        const i32 *members = subscribers(s, t, &n);
        rc = share_out(s, t, members, n);
    }
    return rc == OK ? csr_of(a, &s->out, P, M, result) : rc;
}

/* ---- sticky ------------------------------------------------------------------------------------------------------ */

/* java.util.PriorityQueue of members or processes: among equals, the order is that of its binary heap. */
typedef struct { i32 *d; i32 n; const i32 *count; const double *load; } Heap;

static double key(const Heap *h, i32 item) { return h->load ? h->load[item] : (double)h->count[item]; }

static void offer(Heap *h, i32 item) {
    i32 at = h->n++;
    double k = key(h, item);
    while (at > 0) {
        i32 parent = (at - 1) >> 1;
        if (k >= key(h, h->d[parent])) break;
        h->d[at] = h->d[parent];
        at = parent;
    }
    h->d[at] = item;
}

/* The heap has an item. */
static i32 poll(Heap *h) {
    i32 first = h->d[0], last = h->d[--h->n], at = 0;
    if (!h->n) return first;
    double k = key(h, last);
    for (i32 child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && key(h, h->d[child]) > key(h, h->d[child + 1])) child++;
        if (k <= key(h, h->d[child])) break;
        h->d[at] = h->d[child];
    }
    h->d[at] = last;
    return first;
}

/* Tasks per member. A member that reaches it is taken out, and the quota of the others is computed again. */
typedef struct { i32 tasks, members, each; } Quota;

static void set_each(Quota *q) { q->each = q->members ? (i32)(((i64)q->tasks + q->members - 1) / q->members) : 0; }

static void reached(Quota *q, i32 count) {
    if (count != q->each) return;
    q->members--;
    q->tasks -= count;
    set_each(q);
}

typedef struct { i64 sum; i32 hint, member; } Candidate;

typedef struct {
    Ints proc_off, proc_members, off, stateful, active_off, active, standby_off, standby, hint_off, hint;
    const i64 *sums;
    i32 n_procs, n_members, n_subs, n_tasks, replicas;
    Arena a;
    i32 *process_of, *count;      /* of members */
    i32 *tasks;                   /* of processes */
    double *load;
    i32 *heap, *heap_n;           /* process -> its members by count, in the place of proc_members; -1: not made */
    i32 *queue, *passed;
    i32 *owner, *had_active;      /* task -> member or -1 */
    i32 *has;                     /* process -> 1 + the task that was last found there */
    i32 *near_off;
    Candidate *near;
    i32 *by_partition;            /* tasks */
    uint8_t *state;               /* task -> whether it is of a stateful subtopology */
    i32 *standby_at, *standby_next, *left; /* task -> 1 + its last pair in `standbys`; pair -> the one before */
    Pairs standbys;
    Quota of_active, of_all;
} Run;

/* Standby tasks come before reported offsets, higher offsets before lower ones; then members ascend. */
static int cmp_candidate(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->hint != y->hint) return x->hint - y->hint;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return (x->member > y->member) - (x->member < y->member);
}

static int candidates(Run *r) {
    i32 N = r->n_tasks;
    i32 *told = numbers(&r->a, N), *stands = numbers(&r->a, N), *at = numbers(&r->a, (i64)N + 1);
    i64 *sum = take(&r->a, N, sizeof(i64));
    if (r->a.failed) return NO_MEMORY;
    if (bad_rows(r->standby_off, r->standby, told)) return BAD_INDEX;
    memset(told, 0, (size_t)N * sizeof(i32));
    if (bad_rows(r->hint_off, r->hint, told)) return BAD_INDEX;
    memset(told, 0, (size_t)N * sizeof(i32));
    for (i32 e = 0; e < r->standby.n; e++) r->near_off[r->standby.d[e] + 1]++;
    for (i32 e = 0; e < r->hint.n; e++) r->near_off[r->hint.d[e] + 1]++;
    for (i32 t = 0; t < N; t++) { r->near_off[t + 1] += r->near_off[t]; at[t] = r->near_off[t]; }
    for (i32 m = 0; m < r->n_members; m++) {
        for (i32 e = r->hint_off.d[m]; e < r->hint_off.d[m + 1]; e++) {
            told[r->hint.d[e]] = m + 1;
            sum[r->hint.d[e]] = r->sums[e];
        }
        for (i32 e = r->standby_off.d[m]; e < r->standby_off.d[m + 1]; e++) {
            i32 t = r->standby.d[e];
            r->near[at[t]++] = (Candidate){told[t] == m + 1 ? sum[t] : 0, 0, m};
            stands[t] = m + 1;
        }
        for (i32 e = r->hint_off.d[m]; e < r->hint_off.d[m + 1]; e++)
            if (stands[r->hint.d[e]] != m + 1) r->near[at[r->hint.d[e]]++] = (Candidate){r->sums[e], 1, m};
    }
    /* A task that is both a member's standby task and in its report has one candidate less than there is room for. */
    for (i32 t = 0; t < N; t++) {
        if (at[t] - r->near_off[t] > 1) qsort(r->near + r->near_off[t], (size_t)(at[t] - r->near_off[t]), sizeof(Candidate), cmp_candidate);
        for (i32 k = at[t]; k < r->near_off[t + 1]; k++) r->near[k].member = -1;
    }
    return OK;
}

/* Returns a member or -1. For a standby task, processes that have the task do not count. */
static i32 least(const Run *r, i32 t, int standby) {
    i32 found = -1, count = 0;
    double load = 0;
    for (i32 k = r->near_off[t]; k < r->near_off[t + 1] && r->near[k].member >= 0; k++) {
        i32 m = r->near[k].member, p = r->process_of[m];
        if (standby && r->has[p] == t + 1) continue;
        if (found >= 0 && !(r->load[p] < load && r->count[m] < count)) continue;
        found = m;
        load = r->load[p];
        count = r->count[m];
    }
    return found;
}

static int give(Run *r, i32 m, i32 t, int standby) {
    i32 p = r->process_of[m];
    r->tasks[p]++;
    r->load[p] = (double)r->tasks[p] / (double)(r->proc_off.d[p + 1] - r->proc_off.d[p]);
    r->count[m]++;
    reached(&r->of_all, r->count[m]);
    if (!standby) {
        reached(&r->of_active, r->count[m]);
        r->owner[t] = m;
        return OK;
    }
    r->has[p] = t + 1;
    int rc = reserve(&r->standbys, 1);
    if (rc == OK) r->standbys.d[r->standbys.n++] = (Pair){t, m};
    return rc;
}

/* To a member that is named. Its process sorts its members anew before one is taken by its count. */
static int give_to(Run *r, i32 m, i32 t, int standby) {
    r->heap_n[r->process_of[m]] = -1;
    return give(r, m, t, standby);
}

static int give_least(Run *r, i32 p, i32 t, int standby) {
    i32 first = r->proc_off.d[p], end = r->proc_off.d[p + 1];
    Heap h = {r->heap + first, r->heap_n[p], r->count, NULL};
    if (h.n < 0) {
        h.n = 0;
        for (i32 k = first; k < end; k++) offer(&h, r->proc_members.d[k]);
    }
    i32 m = poll(&h);
    int rc = give(r, m, t, standby);
    offer(&h, m);
    r->heap_n[p] = h.n;
    return rc;
}

static Heap by_load(Run *r) {
    Heap h = {r->queue, 0, NULL, r->load};
    for (i32 p = 0; p < r->n_procs; p++) if (r->proc_off.d[p + 1] > r->proc_off.d[p]) offer(&h, p);
    return h;
}

static void assign_active(Run *r) {
    for (i32 i = 0; i < r->n_tasks; i++) {
        i32 t = r->by_partition[i], m = r->had_active[t];
        if (m >= 0 && r->count[m] < r->of_active.each) give_to(r, m, t, 0);
    }
    for (i32 i = 0; i < r->n_tasks; i++) {
        i32 t = r->by_partition[i], m = r->owner[t] < 0 ? least(r, t, 0) : -1;
        if (m >= 0 && r->count[m] < r->of_active.each) give_to(r, m, t, 0);
    }
    Heap queue = by_load(r);
    for (i32 t = 0; t < r->n_tasks; t++) {
        if (r->owner[t] >= 0) continue;
        i32 p = poll(&queue);
        give_least(r, p, t, 0);
        offer(&queue, p);
    }
}

/* Returns the member that has most of the task's state, in a process that has not got the task yet, or -1. */
static i32 restored(const Run *r, i32 t) {
    i32 m = r->had_active[t];
    if (m >= 0 && r->has[r->process_of[m]] != t + 1 && r->count[m] < r->of_all.each) return m;
    m = least(r, t, 1);
    return m >= 0 && r->count[m] < r->of_all.each ? m : -1;
}

/* Returns OK and whether there was a process without the task. */
static int standby_to_least(Run *r, Heap *queue, i32 t, int *placed) {
    i32 n = 0;
    int rc = OK;
    *placed = 0;
    while (queue->n && !*placed) {
        i32 p = poll(queue);
        r->passed[n++] = p;
        if (r->has[p] == t + 1) continue;
        rc = give_least(r, p, t, 1);
        *placed = 1;
    }
    while (n > 0) offer(queue, r->passed[--n]);
    return rc;
}

static int assign_standby(Run *r) {
    i32 N = r->n_tasks;
    for (i32 i = N - 1; i >= 0; i--) {
        i32 t = r->by_partition[i];
        if (!r->state[t]) continue;
        r->has[r->process_of[r->owner[t]]] = t + 1;
        for (i32 k = 0; k < r->replicas; k++) {
            i32 m = restored(r, t);
            if (m < 0) { r->left[t] = r->replicas - k; break; }
            int rc = give_to(r, m, t, 1);
            if (rc) return rc;
        }
    }
    i32 known = (i32)r->standbys.n;
    r->standby_next = numbers(&r->a, known);
    if (!r->standby_next) return NO_MEMORY;
    for (i32 k = 0; k < known; k++) {
        i32 t = r->standbys.d[k].value;
        r->standby_next[k] = r->standby_at[t];
        r->standby_at[t] = k + 1;
    }
    Heap queue = by_load(r);
    for (i32 t = N - 1; t >= 0; t--) {
        if (!r->left[t]) continue;
        r->has[r->process_of[r->owner[t]]] = t + 1;
        for (i32 k = r->standby_at[t]; k; k = r->standby_next[k - 1]) r->has[r->process_of[r->standbys.d[k - 1].member]] = t + 1;
        for (i32 k = 0, placed = 1; k < r->left[t] && placed; k++) {
            int rc = standby_to_least(r, &queue, t, &placed);
            if (rc) return rc;
        }
    }
    return OK;
}

/* Tasks by partition and then by subtopology. */
static int sort_tasks(Run *r) {
    i32 most = 0, N = r->n_tasks;
    for (i32 s = 0; s < r->n_subs; s++) most = r->off.d[s + 1] - r->off.d[s] > most ? r->off.d[s + 1] - r->off.d[s] : most;
    i32 *at = numbers(&r->a, (i64)most + 1);
    if (!at) return NO_MEMORY;
    i64 stateful = 0;
    for (i32 s = 0; s < r->n_subs; s++)
        for (i32 t = r->off.d[s]; t < r->off.d[s + 1]; t++) {
            at[t - r->off.d[s] + 1]++;
            r->state[t] = r->stateful.d[s] != 0;
            stateful += r->state[t];
        }
    for (i32 p = 0; p < most; p++) at[p + 1] += at[p];
    for (i32 s = 0; s < r->n_subs; s++)
        for (i32 t = r->off.d[s]; t < r->off.d[s + 1]; t++) r->by_partition[at[t - r->off.d[s]]++] = t;
    if (stateful && r->replicas > (INT32_MAX - N) / stateful) return TOO_LARGE;
    r->of_active = (Quota){N, r->n_members, 0};
    r->of_all = (Quota){N + (i32)(stateful * r->replicas), r->n_members, 0};
    set_each(&r->of_active);
    set_each(&r->of_all);
    return OK;
}

static int sticky(Run *r, Csr *active, Csr *standby) {
    i32 Q = r->n_procs, M = r->n_members, N = r->n_tasks;
    Arena *a = &r->a;
    r->process_of = filled(a, M, -1);
    r->count = numbers(a, M);
    r->tasks = numbers(a, Q);
    r->load = take(a, Q, sizeof(double));
    r->heap = numbers(a, M);
    r->heap_n = filled(a, Q, -1);
    r->queue = numbers(a, Q);
    r->passed = numbers(a, Q);
    r->owner = filled(a, N, -1);
    r->had_active = filled(a, N, -1);
    r->has = numbers(a, Q);
    r->near_off = numbers(a, (i64)N + 1);
    r->near = take(a, (i64)r->standby.n + r->hint.n, sizeof(Candidate));
    r->by_partition = numbers(a, N);
    r->state = take(a, N, 1);
    r->standby_at = numbers(a, N);
    r->left = numbers(a, N);
    if (a->failed) return NO_MEMORY;
    for (i32 p = 0; p < Q; p++)
        for (i32 k = r->proc_off.d[p]; k < r->proc_off.d[p + 1]; k++) {
            i32 m = r->proc_members.d[k];
            if (r->process_of[m] >= 0) return BAD_INDEX;
            r->process_of[m] = p;
        }
    for (i32 m = 0; m < M; m++)
        for (i32 e = r->active_off.d[m]; e < r->active_off.d[m + 1]; e++) r->had_active[r->active.d[e]] = m;
    int rc = candidates(r);
    if (rc == OK) rc = sort_tasks(r);
    if (rc == OK && M) assign_active(r);
    if (rc == OK && M && r->replicas) rc = assign_standby(r);
    if (rc != OK) return rc;
    Pairs owned = {take(a, N, sizeof(Pair)), 0, N};
    if (!owned.d) return NO_MEMORY;
    for (i32 t = 0; t < N; t++) if (r->owner[t] >= 0) owned.d[owned.n++] = (Pair){t, r->owner[t]};
    rc = csr_of(a, &owned, N, M, active);
    return rc == OK ? csr_of(a, &r->standbys, N, M, standby) : rc;
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

typedef struct { Py_buffer v[12]; int n; } Buffers;

static void release(Buffers *b) { while (b->n > 0) PyBuffer_Release(&b->v[--b->n]); }

static const void *buffer(PyObject *o, Buffers *b, Py_ssize_t size, i32 *n) {
    if (PyObject_GetBuffer(o, &b->v[b->n], PyBUF_C_CONTIGUOUS) < 0) return NULL;
    Py_buffer *v = &b->v[b->n++];
    if (v->len % size || (v->len && (uintptr_t)v->buf % (uintptr_t)size) || v->len / size > MOST_INTS) {
        PyErr_Format(PyExc_ValueError, "not a buffer of %d-bit integers", (int)size * 8);
        return NULL;
    }
    *n = (i32)(v->len / size);
    return v->len ? v->buf : &NOTHING; /* an empty buffer may be at NULL, where nothing may be counted from */
}

/* Reads this many arrays of 32-bit integers. */
static int all_ints(PyObject *const *args, Buffers *b, Ints *const *into, int n) {
    for (int i = 0; i < n; i++)
        if (!(into[i]->d = buffer(args[i], b, sizeof(i32), &into[i]->n))) return -1;
    return 0;
}

static PyObject *fail(int rc) {
    if (rc == NO_MEMORY) return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError, rc == TOO_LARGE ? "the result is too large" : "an index is out of range");
    return NULL;
}

static PyObject *bytes_of(const i32 *d, i64 n) {
    return PyByteArray_FromStringAndSize((const char *)d, (Py_ssize_t)n * (Py_ssize_t)sizeof(i32));
}

static PyObject *py_simple(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Share s = {.n_topics = 0};
    Csr csr = {0};
    PyObject *out = NULL;
    if (nargs != 9) { PyErr_SetString(PyExc_TypeError, "simple takes 9 arrays"); return NULL; }
    Ints *into[] = {&s.off, &s.class_off, &s.class_topics, &s.class_of, &s.allowed, &s.held_off, &s.held, &s.walk, &s.turn};
    if (all_ints(args, &b, into, 9)) goto out;
    s.n_topics = s.off.n - 1;
    s.n_classes = s.class_off.n - 1;
    s.n_members = s.class_of.n;
    s.n_parts = s.off.n ? s.off.d[s.n_topics] : -1;
    if (s.n_parts < 0 || s.n_parts > MOST_INTS || s.n_classes < 0 || bad_offsets(s.off, s.n_topics, s.n_parts) ||
        bad_offsets(s.class_off, s.n_classes, s.class_topics.n) || bad_range(s.class_topics, s.n_topics) ||
        bad_range(s.class_of, s.n_classes) || bad_range(s.allowed, s.n_parts) || bad_range(s.walk, s.n_parts) ||
        bad_offsets(s.held_off, s.n_members, s.held.n) || bad_range(s.held, s.n_parts)) {
        fail(BAD_INDEX);
        goto out;
    }
    for (i32 c = 0; c < s.n_classes; c++) /* topics of a class ascend, and none is there twice */
        for (i32 k = s.class_off.d[c] + 1; k < s.class_off.d[c + 1]; k++)
            if (s.class_topics.d[k] <= s.class_topics.d[k - 1]) { fail(BAD_INDEX); goto out; }
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = simple(&s, &csr);
    Py_END_ALLOW_THREADS
    if (rc != OK) fail(rc);
    else out = Py_BuildValue("(NN)", bytes_of(csr.off, (i64)s.n_members + 1), bytes_of(csr.values, csr.n));
out:
    free(s.out.d);
    free_all(&s.a);
    release(&b);
    return out;
}

static PyObject *py_sticky(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    Buffers b = {.n = 0};
    Run r = {.n_procs = 0};
    Csr active = {0}, standby = {0};
    PyObject *out = NULL;
    i32 n_sums;
    if (nargs != 12) { PyErr_SetString(PyExc_TypeError, "sticky takes 11 arrays and a number"); return NULL; }
    long replicas = PyLong_AsLong(args[11]);
    if (replicas == -1 && PyErr_Occurred()) return NULL;
    Ints *into[] = {&r.proc_off, &r.proc_members, &r.off, &r.stateful, &r.active_off, &r.active, &r.standby_off, &r.standby, &r.hint_off, &r.hint};
    if (all_ints(args, &b, into, 10) || !(r.sums = buffer(args[10], &b, sizeof(i64), &n_sums))) goto out;
    r.n_procs = r.proc_off.n - 1;
    r.n_members = r.proc_members.n;
    r.n_subs = r.off.n - 1;
    r.n_tasks = r.off.n ? r.off.d[r.n_subs] : -1;
    if (replicas < 0 || replicas > INT32_MAX || r.n_procs < 0 || r.n_tasks < 0 || r.n_tasks > MOST_INTS ||
        bad_offsets(r.proc_off, r.n_procs, r.n_members) || bad_range(r.proc_members, r.n_members) ||
        bad_offsets(r.off, r.n_subs, r.n_tasks) || r.stateful.n != r.n_subs || n_sums != r.hint.n ||
        bad_offsets(r.active_off, r.n_members, r.active.n) || bad_range(r.active, r.n_tasks) ||
        bad_offsets(r.standby_off, r.n_members, r.standby.n) || bad_range(r.standby, r.n_tasks) ||
        bad_offsets(r.hint_off, r.n_members, r.hint.n) || bad_range(r.hint, r.n_tasks)) {
        fail(BAD_INDEX);
        goto out;
    }
    r.replicas = (i32)replicas;
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = sticky(&r, &active, &standby);
    Py_END_ALLOW_THREADS
    if (rc != OK) { fail(rc); goto out; }
    out = Py_BuildValue("(NNNN)", bytes_of(active.off, (i64)r.n_members + 1), bytes_of(active.values, active.n),
                        bytes_of(standby.off, (i64)r.n_members + 1), bytes_of(standby.values, standby.n));
out:
    free(r.standbys.d);
    free_all(&r.a);
    release(&b);
    return out;
}

typedef struct { i32 *values; i64 *sums, n, room; } Gathered;

static int more_room(Gathered *g, int with_sums) {
    if (g->n < g->room) return 0;
    i64 room = 2 * g->room + 1024;
    if (room > MOST_INTS) { fail(TOO_LARGE); return -1; }
    i32 *values = realloc(g->values, (size_t)room * sizeof(i32));
    if (values) g->values = values;
    i64 *sums = with_sums && values ? realloc(g->sums, (size_t)room * sizeof(i64)) : NULL;
    if (sums) g->sums = sums;
    if (!values || (with_sums && !sums)) { PyErr_NoMemory(); return -1; }
    g->room = room;
    return 0;
}

/* Appends first + number; what is not below `count` is left out. Returns 1 if it was appended, 0 if not, -1 on an error. */
static int append(Gathered *g, PyObject *number, i32 first, i32 count, int with_sums) {
    int overflow;
    if (!PyLong_Check(number)) { PyErr_SetString(PyExc_TypeError, "not a number"); return -1; }
    long long v = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (v == -1 && !overflow && PyErr_Occurred()) return -1;
    if (overflow || v < 0 || v >= count) return 0;
    if (more_room(g, with_sums)) return -1;
    g->values[g->n++] = first + (i32)v;
    return 1;
}

/* What one key of a row has: numbers, or number -> sum. */
static int gather_key(Gathered *g, PyObject *key, PyObject *numbers, PyObject *index, Ints off, int with_sums) {
    PyObject *number, *sum, *place = PyDict_GetItemWithError(index, key);
    Py_ssize_t in = 0;
    if (!place) return PyErr_Occurred() ? -1 : 0;
    long t = PyLong_AsLong(place);
    if (t == -1 && PyErr_Occurred()) return -1;
    if (t < 0 || t >= off.n - 1) { fail(BAD_INDEX); return -1; }
    i32 first = off.d[t], count = off.d[t + 1] - first;
    if (!with_sums) {
        PyObject *list = PySequence_Fast(numbers, "what a key has must be numbers");
        int rc = list ? 0 : -1;
        for (Py_ssize_t i = 0; rc >= 0 && i < PySequence_Fast_GET_SIZE(list); i++)
            rc = append(g, PySequence_Fast_GET_ITEM(list, i), first, count, 0);
        Py_XDECREF(list);
        return rc < 0 ? -1 : 0;
    }
    if (!PyDict_Check(numbers)) { PyErr_SetString(PyExc_TypeError, "sums must be a dict"); return -1; }
    while (PyDict_Next(numbers, &in, &number, &sum)) {
        int rc = append(g, number, first, count, 1);
        if (rc < 0) return -1;
        if (!rc) continue;
        if (!PyLong_Check(sum)) { PyErr_SetString(PyExc_TypeError, "not a number"); return -1; }
        g->sums[g->n - 1] = PyLong_AsLongLong(sum);
        if (g->sums[g->n - 1] == -1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

/* One row: a dict of key -> numbers, or key -> number -> sum. */
static int gather_row(Gathered *g, PyObject *row, PyObject *index, Ints off, int with_sums) {
    PyObject *key, *numbers;
    Py_ssize_t at = 0;
    int rc = 0;
    if (!PyDict_Check(row)) { PyErr_SetString(PyExc_TypeError, "each row must be a dict"); return -1; }
    while (!rc && PyDict_Next(row, &at, &key, &numbers)) {
        Py_INCREF(key); /* a plug-in's key may empty the row when it is compared, and its numbers may when they are read */
        Py_INCREF(numbers);
        rc = gather_key(g, key, numbers, index, off, with_sums);
        Py_DECREF(numbers);
        Py_DECREF(key);
    }
    return rc;
}

static PyObject *gathered(const char *name, PyObject *const *args, Py_ssize_t nargs, int with_sums) {
    Buffers b = {.n = 0};
    Gathered g = {0};
    Ints off, *into[] = {&off};
    PyObject *out = NULL;
    i32 *ends = NULL;
    if (nargs != 3 || !PyList_Check(args[0]) || !PyDict_Check(args[1])) {
        PyErr_Format(PyExc_TypeError, "%s takes a list, a dict and an array", name);
        return NULL;
    }
    Py_ssize_t rows = PyList_GET_SIZE(args[0]);
    if (all_ints(args + 2, &b, into, 1)) goto out;
    if (rows > MOST_INTS || off.n < 1 || bad_offsets(off, off.n - 1, off.d[off.n - 1])) { fail(BAD_INDEX); goto out; }
    if (!(ends = calloc((size_t)rows + 1, sizeof(i32)))) { PyErr_NoMemory(); goto out; }
    for (Py_ssize_t i = 0; i < rows; i++) {
        i64 begin = g.n;
        PyObject *row = Py_NewRef(PyList_GET_ITEM(args[0], i));
        int rc = gather_row(&g, row, args[1], off, with_sums), rising = 1;
        Py_DECREF(row);
        if (rc) goto out;
        if (PyList_GET_SIZE(args[0]) != rows) { fail(BAD_INDEX); goto out; }
        for (i64 k = begin + 1; k < g.n; k++) rising &= g.values[k] > g.values[k - 1];
        if (!rising && !with_sums) qsort(g.values + begin, (size_t)(g.n - begin), sizeof(i32), cmp_i32);
        ends[i + 1] = (i32)g.n;
    }
    if (with_sums)
        out = Py_BuildValue("(NNN)", bytes_of(ends, rows + 1), bytes_of(g.values, g.n),
                            PyByteArray_FromStringAndSize((const char *)g.sums, (Py_ssize_t)g.n * (Py_ssize_t)sizeof(i64)));
    else out = Py_BuildValue("(NN)", bytes_of(ends, rows + 1), bytes_of(g.values, g.n));
out:
    free(ends);
    free(g.values);
    free(g.sums);
    release(&b);
    return out;
}

static PyObject *py_gather(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    return gathered("gather", args, nargs, 0);
}

static PyObject *py_gather_sums(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    return gathered("gather_sums", args, nargs, 1);
}

static PyMethodDef METHODS[] = {
    {"gather", (PyCFunction)(void (*)(void))py_gather, METH_FASTCALL, "See groups_twin.py."},
    {"gather_sums", (PyCFunction)(void (*)(void))py_gather_sums, METH_FASTCALL, "See groups_twin.py."},
    {"simple", (PyCFunction)(void (*)(void))py_simple, METH_FASTCALL, "See groups_twin.py."},
    {"sticky", (PyCFunction)(void (*)(void))py_sticky, METH_FASTCALL, "See groups_twin.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_groups", "Assignment kernels of share groups and streams groups; groups_twin.py says what they compute.", -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__groups(void) { return PyModule_Create(&MODULE); }
