// The same as Chrome trace JSON, which ui.perfetto.dev opens.

const COORDINATORS = 1, MARKS = 2, GROUPS = 10;

function processEvents(pid, name) {
  return [
    { ph: 'M', pid, tid: 0, name: 'process_name', args: { name } },
    { ph: 'M', pid, tid: 0, name: 'process_sort_index', args: { sort_index: pid } },
  ];
}

// Slices of a thread must not cross, so what crosses goes to a second thread beside the first.
function laneEvents(pid, numbers, name, slices) {
  const free = [], threads = [], out = [];
  for (const [begin, end, title, args] of slices.slice().sort((x, y) => x[0] - y[0])) {
    let at = free.findIndex(until => until <= begin);
    if (at < 0) {
      at = free.push(0) - 1;
      const tid = numbers.next++;
      threads.push(tid);
      out.push({ ph: 'M', pid, tid, name: 'thread_name', args: { name: at ? `${name} (${at + 1})` : name } });
      out.push({ ph: 'M', pid, tid, name: 'thread_sort_index', args: { sort_index: tid } });
    }
    free[at] = end;
    out.push({ ph: 'X', pid, tid: threads[at], ts: begin * 1000, dur: (end - begin) * 1000, name: title, args });
  }
  return out;
}

const instant = (pid, ms, name, args) => ({ ph: 'i', s: 'p', pid, tid: 0, ts: ms * 1000, name, args });

function claimSlices(c) {
  const claims = Array.from(c.claims.a, (a, n) => [a, c.claims.b[n], `sidecar ${c.claims.node_id[n]}, claim ${c.claims.claim[n]}`,
    { offset: c.claims.o[n], why: text(c.claims.from_why[n]), address: text(c.claims.address[n]) }]);
  const outages = Array.from(c.outages.a, (a, n) => [a, c.outages.b[n], 'no coordinator', { at_most_ms: c.outages.at_most_ms[n] }]);
  return [...claims, ...outages];
}

function groupEvents(n) {
  const g = group(n), pid = GROUPS + n, e = g.epochs, numbers = { next: 1 }, byName = new Map();
  const epochs = Array.from(e.a, (a, i) => [a, e.b[i], `epoch ${e.epoch[i]}`, { why: text(e.why[i]), cause: text(e.cause[i]), members: e.members[i] }]);
  const settling = Array.from(e.a, (a, i) => {
    const told = e.superseded[i] ? 'superseded' : e.settled[i] >= 0 ? 'settled' : 'not settled yet';
    return [a, e.settledAt[i], `epoch ${e.epoch[i]} ${told}`, { moved: e.partitions_moved[i] }];
  });
  g.lives.a.forEach((a, i) => {
    const m = g.lives.m[i], name = `member ${ownerName(g, m)}`;
    if (!byName.has(name)) byName.set(name, []);
    byName.get(name).push([a, g.lives.b[i], ownerLabel(m), { member_id: text(g.owners.id[m]), began: text(g.lives.from_why[i]), ended: text(g.lives.to_why[i]) }]);
  });
  const places = g.places.map((_, p) => [g.placeName(p), placeSlices(g, p)]);
  const rows = [['group epoch', epochs], ['settling', settling], ...byName, ...places];
  return [...processEvents(pid, `group ${g.id}`), ...rows.flatMap(([name, slices]) => laneEvents(pid, numbers, name, slices))];
}

function placeSlices(g, p) {
  const out = [], o = g.own;
  for (let [i, end] = range(o.p, p); i < end; i++) {
    const many = o.many[i], m = o.m[i];
    out.push([o.a[i], o.b[i], many > 1 ? `${many} intervals` : ownerLabel(m),
      { member_id: text(g.owners.id[m]), offset: o.o[i], epoch: o.first_epoch[i], began: text(o.from_why[i]), ended: text(o.to_why[i]) }]);
  }
  return out;
}

// `n`: the number of one group; below zero all of them.
function traceOf(n) {
  const events = processEvents(COORDINATORS, 'coordinators'), numbers = { next: 1 };
  const mine = sp => n < 0 || data.groups[n].sp === sp;
  for (const c of coordinators.values()) if (mine(c.sp)) events.push(...laneEvents(COORDINATORS, numbers, `state partition ${c.sp}`, claimSlices(c)));
  events.push(...processEvents(MARKS, 'marks'), ...data.marks.map(([ms, words, fault]) => instant(MARKS, ms, words, { fault })));
  for (let i = 0; i < data.groups.length; i++) if (n < 0 || i === n) for (const event of groupEvents(i)) events.push(event);
  for (let i = 0; i < findings.t.length; i++) {
    const g = findings.group[i];
    if (g < 0 ? !mine(findings.partition[i]) : n >= 0 && g !== n) continue;
    events.push(instant(g < 0 ? COORDINATORS : GROUPS + g, findings.t[i], `${findings.kinds[findings.k[i]][1]}: ${text(findings.text[i])}`, { offset: findings.offset[i] }));
  }
  return { traceEvents: events, displayTimeUnit: 'ms', otherData: { title: data.title, verdict: data.verdict.head } };
}

function saveTrace() {
  const name = state.group < 0 ? 'all-groups' : data.groups[state.group].id.replace(/[^\w.-]+/g, '_').slice(0, 80);
  const url = URL.createObjectURL(new Blob([JSON.stringify(traceOf(state.group))], { type: 'application/json' }));
  element('a', { href: url, download: `trace-${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
