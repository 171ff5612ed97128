// The data of the page: texts by their number, tables as page/pack.py packs them. A group's rows are picked out when it
// is first shown.

const data = JSON.parse(document.getElementById('data').textContent);
const text = n => (n < 0 ? '' : data.texts[n]);
const BEGIN = data.from, END = data.until;
const RISING = ['g', 'p', 't', 'o'];
const FAULT = 0, POSSIBLE = 1, NOTE = 2;
const GRAVE = ['fault', 'possible', 'note'];

// All values of a column, of which only those may be there that differ from the common one.
function full(packed, rows) {
  if (Array.isArray(packed)) return packed;
  const out = new Array(rows).fill(packed['']);
  for (const row in packed) if (row) out[row] = packed[row];
  return out;
}

function sums(differences) {
  let sum = 0;
  return Float64Array.from(differences, d => (sum += d));
}

// Where things end: what has not ended lasts until the end of the log.
function ends(begins, lengths) {
  return Float64Array.from(begins, (a, i) => (lengths[i] < 0 ? Math.max(END, a) : a + lengths[i]));
}

function unpack({ rows, columns }) {
  const out = Object.fromEntries(Object.entries(columns).map(([name, packed]) => [name, full(packed, rows)]));
  for (const name of RISING) if (out[name]) out[name] = sums(out[name]);
  return out.d ? { ...out, a: out.t, b: ends(out.t, out.d) } : out;
}

// The first row of columns sorted by one of them, and the first one behind those with this value.
function range(values, n) {
  const from = firstAbove(values, n - 1, 0, values.length);
  return [from, firstAbove(values, n, from, values.length)];
}

function part(columns, by, n) {
  const [from, to] = range(columns[by], n);
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values.slice(from, to)]));
}

const tables = Object.fromEntries(Object.entries(data.tables).map(([name, packed]) => [name, unpack(packed)]));
const unpacked = new Map();

function group(n) {
  if (!unpacked.has(n)) unpacked.set(n, unpackGroup(n));
  return unpacked.get(n);
}

function unpackGroup(n) {
  const [lives, own, free, epochs, owners, places] = ['lives', 'own', 'free', 'epochs', 'owners', 'places'].map(name => part(tables[name], 'g', n));
  const a = epochs.t, next = a.map((t, i) => Math.max(i + 1 < a.length ? a[i + 1] : END, t));
  const settledAt = a.map((t, i) => (epochs.settled[i] < 0 ? next[i] : t + epochs.settled[i]));
  return {
    n, raw: data.groups[n], id: data.groups[n].id, owners, lives, own, free, places: places.name,
    epochs: { ...epochs, a, b: next, settledAt },
    placeName: p => text(places.name[p]),
  };
}

const coordinators = new Map([...new Set([...tables.claims.sp, ...tables.outages.sp])].sort((x, y) => x - y)
  .map(sp => [sp, { sp, claims: part(tables.claims, 'sp', sp), outages: part(tables.outages, 'sp', sp) }]));
const findings = { ...tables.findings, kinds: data.kinds, end: ends(tables.findings.t, tables.findings.d.map(d => Math.max(d, 0))) };
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
