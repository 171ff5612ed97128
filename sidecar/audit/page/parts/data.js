// The data of the page: texts by their number, times as differences. A group is unpacked when it is first shown.

const data = JSON.parse(document.getElementById('data').textContent);
const text = n => (n < 0 ? '' : data.texts[n]);
const BEGIN = data.from, END = data.until;
const FROM_EXACT = 1, TO_EXACT = 2, CLASSIC = 4;
const ANEW = 1, SUPERSEDED = 2, PERHAPS = 4, OLD_KIND = 8;
const FAULT = 0, POSSIBLE = 1, NOTE = 2;
const GRAVE = ['fault', 'possible', 'note'];

// Sums the differences up. With `counts` they begin anew after each so many.
function sums(deltas, counts) {
  const out = new Float64Array(deltas.length);
  let at = 0;
  for (const count of counts || [deltas.length]) {
    let sum = 0;
    for (const end = at + count; at < end; at++) out[at] = sum += deltas[at];
  }
  return out;
}

// Where things end: what has not ended lasts until the end of the log.
function ends(begins, lengths) {
  return Float64Array.from(begins, (a, i) => (lengths[i] < 0 ? Math.max(END, a) : a + lengths[i]));
}

function starts(counts) {
  let at = 0;
  return counts.map(count => (at += count) - count);
}

function spans(columns, counts) {
  const a = sums(columns.t, counts);
  return { ...columns, a, b: ends(a, columns.d), offset: sums(columns.o, counts) };
}

const unpacked = new Map();

function group(n) {
  if (!unpacked.has(n)) unpacked.set(n, unpack(data.groups[n], n));
  return unpacked.get(n);
}

function unpack(raw, n) {
  const a = sums(raw.epochs.t), next = Float64Array.from(a, (t, i) => Math.max(i + 1 < a.length ? a[i + 1] : END, t));
  const settledAt = Float64Array.from(a, (t, i) => (raw.epochs.settled[i] < 0 ? next[i] : t + raw.epochs.settled[i]));
  return {
    n, raw, id: raw.id, owners: raw.owners,
    lives: spans(raw.lives),
    own: spans(raw.own, raw.own.n), ownStarts: starts(raw.own.n),
    free: spans(raw.free, raw.free.n), freeStarts: starts(raw.free.n),
    epochs: { ...raw.epochs, a, b: next, settledAt, offset: sums(raw.epochs.o) },
    placeName: p => text(raw.places[p]),
  };
}

const coordinators = new Map(data.coordinators.map(c => [c.sp, { sp: c.sp, claims: spans(c.claims), outages: spans(c.outages) }]));
const findings = data.findings;
findings.end = ends(findings.t, findings.d.map(d => Math.max(d, 0)));
const groupNumber = new Map(data.groups.map((g, n) => [`${g.sp}/${g.id}`, n]));

const ownerLabel = m => (m < 0 ? '?' : `m${m + 1}`);

// What people know a member by: the instance id of a static member, else its client id, else its member id.
function ownerName(g, m) {
  if (m < 0) return 'nobody known';
  return text(g.owners.instance_id[m]) || text(g.owners.client_id[m]) || text(g.owners.id[m]);
}

// The first index from `lo` on, below `hi`, whose value is above x; the values rise.
function firstAbove(values, x, lo, hi) {
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (values[mid] > x) hi = mid; else lo = mid + 1;
  }
  return lo;
}

// Makes an element. Texts are always set as text, so a hostile name stays a name.
function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name in made && name !== 'list') made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children.filter(c => c !== null && c !== undefined));
  return made;
}

const byId = id => document.getElementById(id);
