// What is known of one bar or finding, as names and values; shown beside the lanes, in the tooltip and in the table.

function parse(reference) {
  const [kind, owner, id] = (reference || '').split('.');
  return { kind, owner: Number(owner), id: Number(id) };
}

// The columns that a kind of bar lives in, so that its times can be looked up.
function columnsOf(kind, owner) {
  if (kind === 'find') return { a: findings.t, b: findings.end };
  if (kind === 'claim' || kind === 'away') {
    const c = coordinators.get(owner);
    return c && (kind === 'claim' ? c.claims : c.outages);
  }
  if (!data.groups[owner]) return undefined;
  const g = group(owner);
  if (kind === 'settle') return { a: g.epochs.a, b: g.epochs.settledAt };
  return { own: g.own, life: g.lives, free: g.free, epoch: g.epochs }[kind];
}

function timesOf(reference) {
  const { kind, owner, id } = parse(reference), columns = columnsOf(kind, owner);
  return columns && id < columns.a.length ? [columns.a[id], columns.b[id]] : null;
}

const memberWords = (g, m) => (m < 0 ? 'not known' : `${ownerLabel(m)}, ${ownerName(g, m)}`);

function memberFacts(g, m) {
  if (m < 0) return [];
  const o = g.owners;
  return [['member', memberWords(g, m)], ['member id', text(o.id[m])], ['client id', text(o.client_id[m])], ['instance id', text(o.instance_id[m])], ['process', text(o.process_id[m])]];
}

// Begin and end with their offsets; where records are missing, between which offsets they lie.
function endFacts(c, id) {
  const from = c.o[id], to = c.e[id] < 0 ? -1 : from + c.e[id], before = c.from_not_before_offset[id];
  const begin = c.from_exact[id] ? `exact, offset ${from}`
    : `not exact: first seen at offset ${from}, ${before < 0 ? 'nothing earlier is known' : `not so at ${before}`}`;
  const end = to < 0 ? 'open: it has not ended'
    : c.to_exact[id] ? `exact, offset ${to}` : `not exact: still so at offset ${c.to_not_before_offset[id]}, gone at ${to}`;
  const rows = [['begin', begin], ['why it began', text(c.from_why[id])], ['end', end], ['why it ended', text(c.to_why[id])]];
  if (c.revoking_from_ms && c.revoking_from_ms[id] >= 0) rows.push(['had to give it up since', stamp(c.revoking_from_ms[id])]);
  if (c.unseen[id]) rows.push(['missing values', String(c.unseen[id])]);
  return rows;
}

const FACTS = {
  own(n, id) {
    const g = group(n), o = g.own, many = o.many[id], place = o.p[id];
    if (many > 1) return [`${g.placeName(place)}: ${many} intervals`, [['', 'Short intervals, drawn as one to keep the page small. The tables of gold have them all.']]];
    const word = o.classic[id] ? 'generation' : 'member epoch';
    const epochs = o.le[id] > 0 ? `${o.first_epoch[id]} to ${o.first_epoch[id] + o.le[id]}` : `${o.first_epoch[id]}`;
    return [`${g.placeName(place)} owned by ${ownerLabel(o.m[id])}`, [...memberFacts(g, o.m[id]), ...endFacts(o, id), [word, epochs]], o.m[id]];
  },
  life(n, id) {
    const g = group(n), l = g.lives, m = l.m[id];
    return [`Member ${memberWords(g, m)}`, [...memberFacts(g, m), ['host', text(l.client_host[id])], ['rack', text(l.rack_id[id])], ...endFacts(l, id)], m];
  },
  free(n, id) {
    const g = group(n), f = g.free, place = f.p[id];
    const open = f.e[id] < 0;
    return [`${g.placeName(place)} was nobody’s`, [['before', memberWords(g, f.m[id])], ['after', open ? 'still nobody' : memberWords(g, f.to[id])],
      ['offsets', `${f.o[id]} to ${open ? 'the end' : f.o[id] + f.e[id]}`], ['certain', f.perhaps[id] ? 'no: records are missing' : 'yes'],
      ['drawn as one', f.many[id] > 1 ? `${f.many[id]} of them` : '']]];
  },
  epoch(n, id) {
    const g = group(n), e = g.epochs, word = e.classic[id] ? 'Generation' : 'Group epoch';
    const settled = e.settled[id] >= 0 ? lasting(e.settled[id]) : e.superseded[id] ? 'never: the next epoch came first' : 'not yet';
    return [`${word} ${e.epoch[id]}`, [['group', g.id], ['why', text(e.why[id])], ['cause', text(e.cause[id])], ['member', text(e.member_id[id])],
      ['members', String(e.members[id])], ['target assignment after', e.target[id] < 0 ? 'there was none' : lasting(e.target[id])],
      ['assignor', text(e.assignor[id])], ['partitions moved', e.partitions_moved[id] < 0 ? '' : String(e.partitions_moved[id])], ['settled after', settled],
      ['offset', String(e.o[id])], ['first of its kind', e.anew[id] ? 'yes: this was no rebalance' : ''],
      ['certain', e.perhaps[id] ? 'no: records are missing' : 'yes']]];
  },
  settle(n, id) { return FACTS.epoch(n, id); },
  claim(sp, id) {
    const c = coordinators.get(sp).claims;
    return [`Sidecar ${c.node_id[id]} coordinated state partition ${sp}`, [['owner epoch', String(c.claim[id])], ['address', text(c.address[id])],
      ['why', text(c.from_why[id])], ['offset', String(c.o[id])], ['its member id', text(c.member_id[id])], ['generation of the sidecars', String(c.generation[id])],
      ['fenced', c.fenced[id] ? 'yes: it should have been kept out' : '']]];
  },
  away(sp, id) {
    const o = coordinators.get(sp).outages;
    return [`State partition ${sp} without a coordinator`, [['at most', lasting(o.at_most_ms[id])], ['between claims', `${o.former_claim[id]} and ${o.claim[id]}`],
      ['offsets', `${o.o[id]} to ${o.o[id] + o.e[id]}`], ['', 'From the last record of the one to the claim of the next: it was away for no longer than that.']]];
  },
  find(_, id) {
    const g = findings.group[id], kind = findings.kinds[findings.k[id]][1];
    return [kind[0].toUpperCase() + kind.slice(1), [['', text(findings.text[id])], ['group', g < 0 ? '' : data.groups[g].id],
      ['state partition', String(findings.partition[id])], ['offset', String(findings.offset[id])]], findings.owner[id]];
  },
};

// Title, rows [name, value] and the member it is about. Rows without a value are left out.
function factsOf(reference) {
  const { kind, owner, id } = parse(reference), times = timesOf(reference);
  if (!times || !FACTS[kind]) return null;
  const [title, rows, member = -1] = FACTS[kind](owner, id), [a, b] = times;
  const when = b > a ? [['from', stamp(a)], ['to', b >= END ? `${stamp(END)} (end of the log)` : stamp(b)], ['for', lasting(b - a)]] : [['at', stamp(a)]];
  return { title, rows: [...when, ...rows].filter(r => r[1] !== '' && r[1] !== undefined), member, a, b };
}

function showDetail() {
  const box = byId('detail'), facts = factsOf(state.selected);
  box.hidden = !facts;
  byId('detail-none').hidden = Boolean(facts);
  if (!facts) return;
  const list = element('dl');
  for (const [name, value] of facts.rows) list.append(element('dt', {}, name), element('dd', {}, value));
  const button = (words, onclick) => element('button', { type: 'button', onclick }, words);
  const more = [button('Zoom to it', () => lookAt(facts.a, facts.b)), button('Copy link', copyLink)];
  const { kind, owner, id } = parse(state.selected);
  if (kind === 'find' && findings.group[id] >= 0 && state.group !== findings.group[id]) more.push(button('Open group', () => goToFinding(id)));
  if (kind !== 'find' && state.group < 0 && data.groups[owner] && ['epoch', 'settle'].includes(kind)) more.push(button('Open group', () => openAt(owner, facts)));
  if (facts.member >= 0 && state.group >= 0) more.push(button(state.owner === facts.member ? 'Show all members' : 'Only this member', () => highlight(facts.member)));
  box.replaceChildren(
    element('div', { className: 'detail-head' }, element('h3', {}, facts.title), element('button', { type: 'button', className: 'plain', 'aria-label': 'Close', onclick: () => select('') }, '✕')),
    list, element('div', { className: 'row' }, ...more),
  );
}

function copyLink(event) {
  const button = event.target;
  history.replaceState(null, '', address());
  const copied = navigator.clipboard ? navigator.clipboard.writeText(location.href) : Promise.reject();
  copied.then(() => { button.textContent = 'Copied'; }, () => { button.textContent = 'It is in the address bar'; });
}

function openAt(n, facts) {
  const kept = state.selected;
  showGroup(n, true);
  state.selected = kept;
  lookAt(facts.a, facts.b);
  showDetail();
}

function highlight(m) {
  state.owner = state.owner === m ? -1 : m;
  rebuild();
}

function goToFinding(i) {
  if (findings.group[i] >= 0) showGroup(findings.group[i], true);
  else if (state.group >= 0 && !concerns(i)) showGroup(-1, true);
  state.selected = `find.0.${i}`;
  lookAt(findings.t[i], findings.end[i]);
  showDetail();
  const lane = findings.place[i] >= 0 ? lanes.find(l => l.key === `p${findings.place[i]}`) : null;
  reveal(lane);
  toTimeline(lane);
  markFinding();
  return lane;
}

// Scrolls a lane into view, or to the top where there is none.
function reveal(lane) {
  const scroll = byId('scroll');
  if (!lane) scroll.scrollTop = 0;
  else if (lane.y < scroll.scrollTop || lane.y + lane.height > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = Math.max(lane.y - scroll.clientHeight / 2, 0);
  paintSoon();
}

function showTip(hit, x, y) {
  const tip = byId('tip'), facts = hit && factsOf(hit.ref);
  tip.hidden = !facts;
  if (!facts) return;
  const lines = hit.many > 1 ? [`${hit.many} close together; click to zoom to them`] : facts.rows.slice(0, 6).map(r => (r[0] ? `${r[0]}: ${r[1]}` : r[1]));
  tip.replaceChildren(element('b', {}, hit.many > 1 ? 'Many' : facts.title), ...lines.map(l => element('div', {}, l)));
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}
