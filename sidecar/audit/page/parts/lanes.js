// The rows of the timeline. A lane has layers; a layer is a run of bars a[i] to b[i], ordered by begin.
// A reference such as `own.2.15` names the 15th interval of group 2, and so on for the other kinds.

let lanes = [];
let lanesHeight = 0;
const HEAD = 26, TALL = 24, FLAT = 7;

// `ids`: the numbers of the bars, if the layer has picked some and copied their times.
function layer(kind, owner, a, b, from = 0, to = a.length, ids = null) {
  return { kind, owner, a, b, from, to, ids, reach: null };
}

const idOf = (l, i) => (l.ids ? l.ids[i] : i);
const refOf = (l, i) => `${l.kind}.${l.owner}.${idOf(l, i)}`;

// How far right anything up to a bar reaches: bars may overlap, and a long one may hide behind short ones.
function firstVisible(l, time) {
  if (!l.reach) {
    l.reach = new Float64Array(l.to - l.from);
    let far = -Infinity;
    for (let i = l.from; i < l.to; i++) l.reach[i - l.from] = far = Math.max(far, l.b[i]);
  }
  return l.from + firstAbove(l.reach, time, 0, l.reach.length);
}

function pickedLayer(kind, owner, picked, a, b) {
  return layer(kind, owner, Float64Array.from(picked, i => a[i]), Float64Array.from(picked, i => b[i]), 0, picked.length, picked);
}

let findingsByGroup = null;

// Findings of a group; of -1 those that belong to none.
function findingsOf(n) {
  if (!findingsByGroup) {
    findingsByGroup = new Map();
    findings.group.forEach((g, i) => findingsByGroup.has(g) ? findingsByGroup.get(g).push(i) : findingsByGroup.set(g, [i]));
  }
  return findingsByGroup.get(n) || [];
}

function findingLayer(picked) {
  return pickedLayer('find', 0, picked, findings.t, findings.end);
}

function coordinatorLane(sp) {
  const c = coordinators.get(sp);
  const layers = c ? [layer('claim', sp, c.claims.a, c.claims.b), layer('away', sp, c.outages.a, c.outages.b)] : [];
  return { key: `sp${sp}`, label: `state partition ${sp}`, title: `Coordinators of state partition ${sp}`, layers };
}

const head = (key, label, count) => ({ key, label, count, head: true, layers: [] });

// Adds a section; if it is closed, its head only.
function section(key, label, made, note = made.length) {
  if (!made.length) return [];
  return [head(key, label, note), ...(state.closed.has(key) ? [] : made)];
}

function overviewLanes() {
  const rows = data.groups.map((raw, n) => {
    const g = group(n), e = g.epochs;
    return {
      key: `g${n}`, label: raw.id, title: `Group ${raw.id}: open it`, open: n, since: raw.since,
      layers: [layer('epoch', n, e.a, e.b), layer('settle', n, e.a, e.settledAt), findingLayer(findingsOf(n).filter(i => findings.grave[i] < NOTE))],
    };
  });
  const parts = [...coordinators.keys()].map(coordinatorLane);
  const found = { key: 'found', label: 'findings', layers: [findingLayer(findings.t.map((_, i) => i))] };
  return [...marksLane(), found, ...section('groups', 'Groups', rows.filter(matches)), ...section('parts', 'Coordinators', parts.filter(matches))];
}

function marksLane() {
  return data.marks.length ? [{ key: 'marks', label: 'what was done', layers: [], marks: true }] : [];
}

function groupLanes(n) {
  const g = group(n), sp = g.raw.sp, e = g.epochs, since = g.raw.since;
  const mine = [...findingsOf(n), ...findingsOf(-1).filter(i => findings.partition[i] === sp)].sort((x, y) => x - y);
  const word = g.raw.kinds.some(k => k !== 'classic') ? 'group epoch' : 'generation';
  const fixed = [
    ...marksLane(),
    { key: 'found', label: 'findings', layers: [findingLayer(mine)], since },
    { ...coordinatorLane(sp), label: `coordinator (${sp})` },
    { key: 'epochs', label: word, layers: [layer('epoch', n, e.a, e.b)], since },
    { key: 'settling', label: 'settling', layers: [layer('settle', n, e.a, e.settledAt)], since },
  ];
  const members = memberLanes(g).filter(matches), places = placeLanes(g).filter(matches), several = new Set(g.lives.m).size;
  return [
    ...fixed,
    ...section('members', 'Members', members, several === members.length ? several : `${several} in ${members.length} lanes`),
    ...section('places', 'Partitions', places),
  ];
}

// One lane for each instance id or client id; a second one where two of that name were there at once.
function memberLanes(g) {
  const byName = new Map();
  for (let i = 0; i < g.lives.a.length; i++) {
    const name = ownerName(g, g.lives.m[i]);
    if (!byName.has(name)) byName.set(name, []);
    const rows = byName.get(name);
    const at = rows.findIndex(r => r.until <= g.lives.a[i]);
    const row = at >= 0 ? rows[at] : rows[rows.push({ picked: [] }) - 1];
    row.picked.push(i);
    row.until = g.lives.b[i];
  }
  const out = [];
  for (const [name, rows] of byName) {
    rows.forEach((r, k) => out.push({
      key: `m${name}.${k}`, label: k ? `${name} (${k + 1})` : name, canBeFlat: true, since: g.raw.since, owners: r.picked.map(i => g.lives.m[i]),
      words: r.picked.length < 50 ? r.picked.map(i => text(g.owners.id[g.lives.m[i]])).join(' ') : '',
      layers: [pickedLayer('life', g.n, r.picked, g.lives.a, g.lives.b)],
    }));
  }
  return out;
}

function placeLanes(g) {
  const overlaps = new Map();
  for (const i of findingsOf(g.n)) {
    if (findings.place[i] < 0 || findings.k[i] > 1) continue;
    if (!overlaps.has(findings.place[i])) overlaps.set(findings.place[i], []);
    overlaps.get(findings.place[i]).push(i);
  }
  return g.places.map((_, p) => {
    const run = (kind, of) => layer(kind, g.n, of.a, of.b, ...range(of.p, p));
    const layers = [run('free', g.free), run('own', g.own)];
    if (overlaps.has(p)) layers.push({ ...pickedLayer('find', 0, overlaps.get(p), findings.t, findings.end), hatch: true });
    return { key: `p${p}`, label: g.placeName(p), layers, since: g.raw.since, canBeFlat: true };
  });
}

function matches(lane) {
  const wanted = state.filter.toLowerCase();
  return !wanted || lane.label.toLowerCase().includes(wanted) || (lane.words || '').toLowerCase().includes(wanted)
    || (lane.owners || []).some(m => ownerLabel(m) === wanted);
}

function rebuildLanes() {
  lanes = state.group < 0 ? overviewLanes() : groupLanes(state.group);
  let y = 0, nth = 0;
  for (const lane of lanes) {
    nth = lane.head ? 0 : nth + 1;
    lane.third = nth % 3 === 1;
    const flat = state.compact && lane.canBeFlat;
    lane.y = y;
    lane.height = lane.head ? HEAD : flat ? FLAT : TALL;
    lane.flat = flat;
    y += lane.height;
  }
  lanesHeight = y;
}

// The lanes between two heights, by the order of their y.
function lanesBetween(top, bottom) {
  let at = 0;
  for (let hi = lanes.length; at < hi;) {
    const mid = (at + hi) >> 1;
    if (lanes[mid].y + lanes[mid].height > top) hi = mid; else at = mid + 1;
  }
  const out = [];
  for (; at < lanes.length && lanes[at].y < bottom; at++) out.push(lanes[at]);
  return out;
}

// Where a reference is drawn: its lane, layer and place in it.
function whereIs(reference) {
  for (const lane of lanes) {
    for (const l of lane.layers) {
      const [kind, owner, id] = reference.split('.');
      if (l.kind !== kind || String(l.owner) !== owner) continue;
      const i = l.ids ? l.ids.indexOf(Number(id)) : Number(id);
      if (i >= l.from && i < l.to) return { lane, layer: l, i };
    }
  }
  return null;
}
