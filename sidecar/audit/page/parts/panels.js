// The parts of the page beside the canvas: verdict, findings, index of groups, lane names, legend, text table.

const FINDINGS_SHOWN = 200, ROWS_SHOWN = 150;
let sortBy = 'faults', findingsShown = FINDINGS_SHOWN, tellTimer = 0;

const SIGNS = { findings: '✖', unknown: '?', clean: '✓' };

function showVerdict() {
  const v = data.verdict, box = byId('verdict');
  box.className = `verdict ${v.state}`;
  const fact = (name, value, className = '') => element('div', { className: `fact ${className}` }, element('b', {}, value), element('span', {}, name));
  const since = v.since < 0 ? ['not known', 'history complete since'] : [stamp(v.since, SECOND), `history complete since (${zone()})`];
  // A zero is good news only where the history is known to be complete.
  const count = (n, name, className) => fact(name, n || (v.known && v.complete) ? String(n) : '0 seen', n ? className : '');
  box.replaceChildren(
    element('div', { className: 'sign', 'aria-hidden': 'true' }, SIGNS[v.state]),
    element('div', { className: 'says' }, element('h2', { id: 'verdict-head' }, v.head), element('p', {}, v.text, data.groups.length > 1 ? element('span', { className: 'quiet' }, ` Of all ${data.groups.length} groups.`) : '')),
    element('div', { className: 'facts' }, fact(since[1], since[0], 'wide'), count(v.faults, v.faults === 1 ? 'finding' : 'findings', 'bad'), count(v.possible, 'possible', 'perhaps'),
      fact('records read', v.records ? v.records.toLocaleString('en') : 'not known'), fact('values missing', v.known ? v.missing.toLocaleString('en') : 'not known', v.missing ? 'perhaps' : '')),
    data.checks.length ? element('ul', { className: 'checks', 'aria-label': 'Other checks' }, ...data.checks.map(checkRow)) : '',
  );
}

// What somebody else checked and handed in; null: a figure that is neither good nor bad.
function checkRow([name, value, good]) {
  const sign = good === null ? '' : good ? '✓ ' : '✖ ';
  return element('li', { className: good === false ? 'bad' : '' }, `${sign}${name}: `, element('b', {}, value));
}

function listedFindings() {
  const chosen = new Set(state.kinds ? state.kinds.split(',') : []), out = [];
  for (let i = 0; i < findings.t.length; i++) {
    if (concerns(i) && (!chosen.size || chosen.has(findings.kinds[findings.k[i]][0]))) out.push(i);
  }
  const longest = i => (findings.kinds[findings.k[i]][3] ? -findings.d[i] : findings.t[i]);
  return out.sort((x, y) => findings.grave[x] - findings.grave[y] || findings.k[x] - findings.k[y] || longest(x) - longest(y));
}

function showFindings() {
  const chosen = new Set(state.kinds ? state.kinds.split(',') : []), chips = [];
  findings.kinds.forEach(([key, name], k) => {
    let here = 0;
    for (let i = 0; i < findings.t.length; i++) if (findings.k[i] === k && concerns(i)) here++;
    const total = state.group < 0 ? findings.kinds[k][2] : here;
    if (total) chips.push(element('button', { type: 'button', className: 'chip', 'aria-pressed': chosen.has(key), onclick: () => toggleKind(key) }, `${name} `, element('b', {}, String(total))));
  });
  byId('findings-title').textContent = state.group < 0 ? 'Findings' : `Findings of ${data.groups[state.group].id} and state partition ${data.groups[state.group].sp}`;
  byId('kinds').replaceChildren(...chips);
  const listed = listedFindings();
  byId('findings-list').replaceChildren(...listed.slice(0, findingsShown).map(findingRow));
  byId('findings-more').hidden = listed.length <= findingsShown;
  byId('findings-more').textContent = `Show more (${listed.length - findingsShown} are left)`;
  byId('findings-none').hidden = listed.length > 0;
  byId('findings-none').textContent = data.verdict.complete ? 'Nothing found.' : 'Nothing found in what is there; what is missing cannot be told.';
  markFinding();
}

function findingRow(i) {
  const g = findings.group[i], kind = findings.kinds[findings.k[i]][1];
  const link = element('a', { href: `#s=find.0.${i}`, onclick: event => { event.preventDefault(); goToFinding(i); } },
    element('span', { className: `mark ${GRAVE[findings.grave[i]]}`, 'aria-label': GRAVE[findings.grave[i]] }),
    element('time', {}, stamp(findings.t[i], SECOND)), element('span', { className: 'what' }, element('span', { className: 'kind' }, `${kind} · `), g >= 0 && state.group < 0 ? element('b', {}, `${data.groups[g].id}: `) : '', text(findings.text[i])));
  return element('li', { 'data-i': i }, link);
}

function toggleKind(key) {
  const chosen = new Set(state.kinds ? state.kinds.split(',') : []);
  if (!chosen.delete(key)) chosen.add(key);
  state.kinds = [...chosen].join(',');
  findingsShown = FINDINGS_SHOWN;
  showFindings();
  writeAddress();
}

function markFinding() {
  const { kind, id } = parse(state.selected);
  let reached = false;
  for (const row of byId('findings-list').children) {
    row.firstChild.tabIndex = -1;
    const here = kind === 'find' && Number(row.dataset.i) === id;
    if (here) row.firstChild.setAttribute('aria-current', 'true'); else row.firstChild.removeAttribute('aria-current');
    if (here) { row.firstChild.tabIndex = 0; reached = true; }
    if (here && row.parentNode.scrollHeight > row.parentNode.clientHeight) row.parentNode.scrollTop = row.offsetTop - row.parentNode.clientHeight / 2;
  }
  if (!reached && byId('findings-list').firstChild) byId('findings-list').firstChild.firstChild.tabIndex = 0;
}

// The list is one stop for Tab; arrows go from finding to finding.
function findingKeys(event) {
  const row = event.target.closest('li'), next = { ArrowDown: 'nextSibling', ArrowUp: 'previousSibling' }[event.key];
  if (!row || !next) return;
  event.preventDefault();
  if (row[next]) row[next].firstChild.focus();
}

function stepFinding(step) {
  const listed = listedFindings();
  if (!listed.length) return;
  const { kind, id } = parse(state.selected), at = kind === 'find' ? listed.indexOf(id) : step > 0 ? -1 : 0;
  goToFinding(listed[(at + step + listed.length) % listed.length]);
}

const COLUMNS = [
  ['id', 'group', g => g.id, g => g.kinds.join(', ')], ['faults', 'findings', g => (g.known && !g.missing ? '' + (g.faults + g.possible) : g.known ? `${g.faults + g.possible} seen` : g.faults + g.possible || 'not known')],
  ['rebalances', 'rebalances', g => String(g.rebalances)], ['settle', 'longest to settle', g => lasting(g.settle)],
  ['unowned', 'longest unowned', g => (g.unowned < 0 ? '–' : lasting(g.unowned))], ['members', 'members', g => String(g.members)],
  ['partitions', 'partitions', g => String(g.partitions)], ['takeovers', 'takeovers', g => (g.takeovers < 0 ? '–' : String(g.takeovers))],
  ['since', 'complete since', g => (g.known ? stamp(g.since, MINUTE) : 'not known')],
];
const sortValue = g => (sortBy === 'faults' ? g.faults * 1e6 + g.possible * 1e3 + Math.min(g.rebalances, 999) : g[sortBy]);

function showIndex() {
  const order = data.groups.map((g, n) => n).sort((x, y) => {
    const [a, b] = [sortValue(data.groups[x]), sortValue(data.groups[y])];
    return sortBy === 'id' ? (a < b ? -1 : 1) : b - a;
  });
  byId('index-head').replaceChildren(...COLUMNS.map(([key, name]) => element('th', { scope: 'col', 'aria-sort': sortBy === key ? (key === 'id' ? 'ascending' : 'descending') : 'none' },
    element('button', { type: 'button', className: 'plain', onclick: () => { sortBy = key; showIndex(); } }, name))));
  byId('index-body').replaceChildren(...order.slice(0, 500).map(indexRow));
  byId('index-note').textContent = order.length > 500 ? `The first 500 of ${order.length} groups; search finds the others.` : '';
}

function indexRow(n) {
  const g = data.groups[n], jump = (at, length) => () => { showGroup(n, true); lookAt(at, at + length); toTimeline(); };
  const cells = COLUMNS.slice(1).map(([key, , shows]) => {
    const jumps = { settle: [g.settleAt, g.settle], unowned: [g.unownedAt, g.unowned] }[key];
    const inner = jumps && jumps[1] > 0 ? element('button', { type: 'button', className: 'plain link', onclick: jump(...jumps) }, shows(g)) : shows(g);
    return element('td', { className: key === 'faults' && g.faults ? 'bad' : key === 'since' ? 'left' : '' }, inner);
  });
  const name = element('button', { type: 'button', className: 'plain link', onclick: () => { showGroup(n); toTimeline(); } }, g.id);
  return element('tr', state.group === n ? { 'aria-current': 'true' } : {}, element('th', { scope: 'row' }, name, element('small', {}, ` ${g.kinds.join(', ')}`)), ...cells);
}

// Names of the lanes in view, beside the canvas; those out of view are not in the document.
// Where rows are low, every third has its name.
function showLabels(inView) {
  const list = byId('labels'), wanted = inView.filter(l => !l.flat || l.third);
  const key = wanted.map(l => `${l.key}@${l.y}`).join() + state.closed.size + state.owner;
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const focused = document.activeElement && document.activeElement.dataset.lane;
  list.replaceChildren(...wanted.map(laneLabel));
  if (focused) list.querySelector(`[data-lane="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function laneLabel(lane) {
  const words = lane.head ? `${state.closed.has(lane.key) ? '▸' : '▾'} ${lane.label} ` : lane.label;
  const fits = Math.floor((byId('labels').clientWidth - 12) / 7.2), short = words.length > fits && !lane.head ? `${words.slice(0, fits >> 1)}…${words.slice(1 - (fits >> 1))}` : words;
  const button = element('button', { type: 'button', title: lane.title || lane.label, 'aria-label': words, 'data-lane': lane.key, onclick: () => pressLane(lane) }, short, lane.head ? element('small', {}, String(lane.count)) : '');
  if (lane.head) button.setAttribute('aria-expanded', String(!state.closed.has(lane.key)));
  const item = element('li', { className: lane.head ? 'head' : lane.flat ? 'third' : '' }, button);
  item.style.top = `${lane.y}px`;
  item.style.height = `${lane.flat ? 3 * lane.height : lane.height}px`;
  return item;
}

// A head opens or closes, a group is gone to, and of any other lane the first bar in view is selected.
function pressLane(lane) {
  if (lane.head) {
    if (!state.closed.delete(lane.key)) state.closed.add(lane.key);
    rebuild();
  } else if (lane.open !== undefined) showGroup(lane.open);
  else {
    const l = lane.layers[lane.layers.length - 1], i = l ? firstVisible(l, state.a) : 0;
    if (l && i < l.to) select(refOf(l, i));
  }
}

function swatch(m) {
  const made = element('canvas', { width: 36, height: 24, className: 'swatch' }), c = made.getContext('2d');
  c.fillStyle = FILLS[m % FILLS.length];
  c.fillRect(0, 0, 36, 24);
  const hatch = Math.floor(m / FILLS.length) % HATCHES.length;
  c.fillStyle = hatch ? pattern(hatch, 'rgba(20,33,46,.38)') : 'transparent';
  c.fillRect(0, 0, 36, 24);
  return made;
}

// Members that own or are there within the time in view.
function showLegend() {
  const box = byId('owners');
  if (state.group < 0) {
    box.replaceChildren(element('p', { className: 'quiet' }, 'Open a group to see its members and partitions.'));
    return;
  }
  const g = group(state.group), here = new Set();
  for (let i = 0; i < g.lives.a.length && g.lives.a[i] < state.b; i++) if (g.lives.b[i] > state.a) here.add(g.lives.m[i]);
  if (state.owner >= 0) here.add(state.owner);
  const owners = [...here].sort((x, y) => x - y);
  const chips = owners.slice(0, 40).map(m => element('button', { type: 'button', className: 'owner', 'aria-pressed': state.owner === m, title: text(g.owners.id[m]), onclick: () => highlight(m) }, swatch(m), element('b', {}, ownerLabel(m)), ` ${ownerName(g, m)}`));
  if (owners.length > 40) chips.push(element('span', { className: 'quiet' }, `and ${owners.length - 40} others in view`));
  box.replaceChildren(...chips);
}

// What is in view as text: for screen readers, for print, and to read exact times.
function tellSoon() {
  clearTimeout(tellTimer);
  tellTimer = setTimeout(tell, 180);
}

function tell() {
  const rows = [];
  let all = 0;
  for (const lane of lanes) {
    for (const l of lane.layers) {
      if (l.kind === 'settle' || (l.kind === 'find' && l.hatch)) continue;
      for (let i = firstVisible(l, state.a); i < l.to && l.a[i] <= state.b; i++) {
        all++;
        if (rows.length < ROWS_SHOWN) rows.push([lane, refOf(l, i)]);
        else { all += l.to - i - 1; break; }
      }
    }
  }
  byId('told').textContent = `${stamp(state.a, SECOND)} to ${stamp(state.b, SECOND)} ${zone()}, ${lasting(span())}`;
  byId('table-note').textContent = all > rows.length ? `The first ${rows.length} in view; zoom in or filter for the others.` : `${all} in view.`;
  byId('table-body').replaceChildren(...rows.map(([lane, reference]) => tableRow(lane, reference)));
  showLegend();
}

function tableRow(lane, reference) {
  const facts = factsOf(reference), find = name => (facts.rows.find(r => r[0] === name) || ['', ''])[1];
  const day = dateOf((state.a + state.b) / 2), brief = ms => (dateOf(ms) === day ? clockOf(ms, 1) : stamp(ms));
  const cells = [brief(facts.a), facts.b > facts.a ? (facts.b >= END ? 'end of the log' : brief(facts.b)) : '', facts.title, find('') || find('why') || find('why it began')];
  const name = element('button', { type: 'button', className: 'plain link', onclick: () => { select(reference); reveal(lane); } }, lane.label);
  return element('tr', {}, element('th', { scope: 'row' }, name), ...cells.map(c => element('td', {}, c)));
}
