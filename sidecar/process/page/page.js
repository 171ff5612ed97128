'use strict';
// Shows what /api/v1 tells, and asks again every two seconds. Whatever comes from there is shown as text, never as markup.
const EVERY_MS = 2000, LIMIT = 100, STATE_CLASS = { Stable: 'good', Empty: '', Dead: 'bad', NotReady: 'bad' };
const COLUMNS = [
  ['group', 'Group', ''], ['kind', 'Kind', 'less'], ['state', 'State', ''], ['members', 'Members', 'number'],
  ['epoch', 'Epoch', 'number less'], ['lag', 'Lag', 'number less'], ['owner', 'Owner', 'number less'],
  ['changed', 'Changed', 'less'], ['why', 'Why', 'why less'],
];
const $ = id => document.getElementById(id);
const seen = new Map();  // path -> [ETag, body]
const view = { search: '', kind: '', state: '', sort: 'group', at: 0, group: null, members: 0, partitions: 0 };
let timer = 0, round = 0, failedAt = 0, skewMs = 0, wantFocus = '';

// ---- asking ----------------------------------------------------------------------------------------------------
class Refused extends Error { constructor(status, text) { super(text); this.status = status; } }

async function ask(path) {
  const had = seen.get(path), headers = had ? { 'If-None-Match': had[0] } : {};
  const answer = await fetch(path, { headers, cache: 'no-store', credentials: 'same-origin', signal: AbortSignal.timeout(10000) });
  if (answer.status === 304) return had[1];
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.problem || `HTTP ${answer.status}`);
  if (seen.size > 20) seen.clear();
  seen.set(path, [answer.headers.get('ETag'), body]);
  return body;
}

async function look() {
  const mine = ++round;
  clearTimeout(timer);
  try {
    const overview = await ask('/api/v1/overview');
    const path = view.group === null ? listPath() : groupPath();
    let told = null, problem = '';
    try { told = await ask(path); } catch (e) {
      if (!(e instanceof Refused) || e.status === 401) throw e;
      problem = e.message;
    }
    if (mine !== round) return;
    failedAt = 0;
    $('login').hidden = true;
    $('lost').hidden = true;
    $('main').hidden = false;
    showOverview(overview);
    if (view.group === null) showList(told, problem); else showGroup(told, problem);
    live('Live');
    document.body.dataset.ready = String(round);
  } catch (e) {
    if (mine !== round) return;
    failed(e);
  }
  timer = setTimeout(look, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}

function failed(e) {
  if (e instanceof Refused && e.status === 401) {
    $('main').hidden = true;
    if ($('login').hidden) { $('login').hidden = false; $('token').focus(); }
    live('');
    document.body.dataset.ready = 'login';
    return;
  }
  failedAt = failedAt || Date.now();
  $('lost').hidden = false;
  set($('lost'), `No answer since ${clock(failedAt)}: what is shown is from before. Trying again. ${e instanceof Refused ? e.message : ''}`);
  live('Connection lost', true);
}

function live(text, bad = false) { set($('live'), text); $('live').classList.toggle('bad', bad); }

function listPath() {
  const q = new URLSearchParams({ sort: view.sort, limit: LIMIT, cursor: view.at });
  for (const n of ['search', 'kind', 'state']) if (view[n]) q.set(n, view[n]);
  return `/api/v1/groups?${q}`;
}

function groupPath() {
  return `/api/v1/group?${new URLSearchParams({ id: view.group, members: view.members, partitions: view.partitions, limit: LIMIT })}`;
}

// ---- showing ---------------------------------------------------------------------------------------------------
function set(element, text) {
  const now = text === null || text === undefined ? '' : String(text);
  if (element.textContent !== now) element.textContent = now;
}

const two = n => String(n).padStart(2, '0');
function clock(ms) { const d = new Date(ms); return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`; }
function moment(ms) {
  if (!ms) return '';
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(ms)}`;
}
function span(ms) { return ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`; }
function ago(ms) {
  const s = Math.max(0, Math.round((Date.now() + skewMs - ms) / 1000));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.round(s / 60)} min ago`;
  return s < 86400 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} days ago`;
}
const many = (n, one, more) => `${Number(n).toLocaleString('en')} ${n === 1 ? one : more}`;
const known = value => value === null || value === undefined ? 'not known' : value;

/* Rows of a table. Elements stay where they are, so that the focus does: cells are texts, [text, class], or null: left alone. */
function rows(body, wanted) {
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((cells, i) => {
    const row = body.rows[i] || body.insertRow();
    cells.forEach((cell, j) => {
      const at = row.cells[j] || row.insertCell();
      if (cell === null) return;
      const [text, style] = Array.isArray(cell) ? cell : [cell, ''];
      set(at, text);
      if (at.className !== style) at.className = style;
    });
  });
}

function showOverview(o) {
  skewMs = o.now_ms && !seen.skewed ? o.now_ms - Date.now() : skewMs;
  seen.skewed = true;
  const name = `Sidecar of node ${o.node}`;
  set($('title'), name);
  document.title = view.group === null ? name : `${view.group} – ${name}`;
  set($('told'), [o.cluster && `cluster ${o.cluster}`, o.version && `version ${o.version}`, o.role !== 'both' && o.role, o.start_ms !== null && `was ready after ${span(o.start_ms)}`].filter(Boolean).join(', '));
  $('problems').hidden = o.ready;
  if (!o.ready) {
    const list = document.createElement('ul');
    for (const p of o.problems) list.appendChild(document.createElement('li')).textContent = p;
    if ($('problems').textContent !== `Not ready${list.textContent}`) $('problems').replaceChildren('Not ready', list);
  }
  const lists = new Map(o.brokers.map(b => [b.node, b])), there = new Set(o.sidecars.map(s => s.node));
  const alone = o.brokers.filter(b => !there.has(b.node)).map(b => [`${b.node}`, 'none', ['', 'less'], ['', 'less'], ['', 'less'], ['', 'less'], '', brokerGroups(b)]);
  rows($('sidecars'), o.sidecars.map(s => [
    `${s.node}${s.here ? ' (this one)' : ''}`, sidecarHealth(s, o), [s.broker, 'less'], [known(s.version), 'less'],
    [s.since_ms === null ? 'not known' : ago(s.since_ms), 'less'], [s.partitions, 'number less'], [s.groups, 'number'],
    brokerGroups(lists.get(s.node))]).concat(alone));
  set($('owners-told'), o.generation < 0 ? 'No owner is known yet.' : `Generation ${o.generation} of the owners`);
  const g = o.groups;
  set($('counts'), g ? [many(g.total, 'group', 'groups'), ...Object.entries(g.states).sort().map(([s, n]) => `${n} ${s || 'unknown'}`)].join(', ') : '');
  if (g) { options($('kind'), g.kinds, 'All kinds'); options($('state'), g.states, 'All states'); }
}

function sidecarHealth(s, o) {
  if (!s.broker) return ['is not there', 'bad'];
  if (s.answers === false) return ['does not answer this sidecar', 'bad'];
  if (s.here) return o.ready ? ['ready', 'good'] : ['not ready', 'bad'];
  return s.ready === null ? 'not known' : s.ready ? ['ready', 'good'] : ['not ready: ask its /readyz', 'bad'];
}

function brokerGroups(b) {
  if (!b || (b.answered_ms === null && !b.problem)) return ['not known', 'number'];
  if (!b.problem) return [b.groups, 'number'];
  return [b.answered_ms === null ? `not known: ${b.problem}` : `${b.groups}; not known since ${clock(b.answered_ms)}: ${b.problem}`, 'bad'];
}

const atBroker = g => g.broker !== null;
const coordinator = g => atBroker(g) ? `broker ${g.broker}` : g.owner === null ? 'nobody' : g.owner;

function options(select, counts, all) {
  const names = ['', ...new Set([...Object.keys(counts), select.value].filter(Boolean))].sort();
  if ([...select.options].map(o => o.value).join('\n') === names.join('\n')) return;
  const chosen = select.value;
  select.replaceChildren(...names.map(n => new Option(n || all, n)));
  select.value = chosen;
}

function showList(told, problem) {
  $('one').hidden = true;
  $('list').hidden = false;
  const groups = told ? told.groups : [], active = document.activeElement, key = active && active.dataset.group;
  $('groups-none').hidden = groups.length > 0;
  set($('groups-none'), problem || (view.search || view.kind || view.state ? 'No group fits.' : 'There are no groups yet.'));
  rows($('groups'), groups.map(g => [
    null, [g.kind, 'less'], [g.state, STATE_CLASS[g.state] ?? 'busy'], [atBroker(g) ? '' : g.members, 'number'], [atBroker(g) ? '' : known(g.epoch), 'number less'],
    [known(g.lag), 'number less'], [coordinator(g), 'number less'], [g.changed_ms === null ? '' : ago(g.changed_ms), 'moment less'],
    [g.why, 'why less']]));
  groups.forEach((g, i) => {
    const cell = $('groups').rows[i].cells[0];
    const link = cell.firstElementChild || cell.appendChild(document.createElement('a'));
    if (link.dataset.group !== g.group) {
      link.dataset.group = g.group;
      link.href = `#g=${encodeURIComponent(g.group)}`;
    }
    set(link, g.group === '' ? '(no name)' : g.group);
  });
  if (key !== undefined && active.dataset.group !== key) focusGroup(key);
  if (wantFocus && focusGroup(wantFocus)) wantFocus = '';
  const total = told ? told.total : 0;
  set($('range'), total ? `${view.at + 1} to ${view.at + groups.length} of ${total.toLocaleString('en')}` : '');
  $('before').disabled = view.at === 0;
  $('next').disabled = !told || told.next === null;
  if (told && total > 0 && !groups.length) { view.at = 0; look(); }
}

function focusGroup(name) {
  const link = links().find(a => a.dataset.group === name);
  if (link) link.focus();
  return Boolean(link);
}

const links = () => [...$('groups').querySelectorAll('a')];

function head() {
  for (const [name, title, style] of COLUMNS) {
    const th = document.createElement('th');
    th.scope = 'col';
    th.className = style;
    if (name === 'why' || name === 'lag') th.textContent = title;
    else {
      const button = th.appendChild(document.createElement('button'));
      button.type = 'button';
      button.textContent = title;
      button.addEventListener('click', () => {
        view.sort = view.sort === name ? `-${name}` : name;
        view.at = 0;
        sorted();
        look();
      });
    }
    th.dataset.name = name;
    $('groups-head').appendChild(th);
  }
  sorted();
}

function sorted() {
  for (const th of $('groups-head').children) {
    if (view.sort.replace('-', '') === th.dataset.name) th.setAttribute('aria-sort', view.sort[0] === '-' ? 'descending' : 'ascending');
    else th.removeAttribute('aria-sort');
  }
}

// ---- one group -------------------------------------------------------------------------------------------------
function parts(owned) {
  if (typeof owned === 'string') return owned;
  return Object.entries(owned || {}).sort().map(([t, ps]) => `${t}: ${ranges(ps)}`).join('; ');
}

function ranges(numbers) {
  const out = [];
  for (let i = 0; i < numbers.length; i++) {
    const from = numbers[i];
    while (i + 1 < numbers.length && numbers[i + 1] === numbers[i] + 1) i++;
    out.push(numbers[i] === from ? `${from}` : `${from}–${numbers[i]}`);
  }
  return out.join(', ');
}

function without(wanted, owned) {
  if (typeof wanted === 'string' || typeof owned === 'string') return '';
  const left = {};
  for (const [t, ps] of Object.entries(wanted || {})) {
    const had = new Set((owned || {})[t] || []), rest = ps.filter(p => !had.has(p));
    if (rest.length) left[t] = rest;
  }
  return parts(left);
}

function showGroup(g, problem) {
  $('list').hidden = true;
  if ($('one').hidden) { $('one').hidden = false; $('group-title').focus({ preventScroll: true }); window.scrollTo(0, 0); }
  set($('group-title'), view.group);
  for (const section of [...$('one').querySelectorAll('section')].slice(1)) section.hidden = !g || (atBroker(g) && section.classList.contains('ours'));
  $('facts').hidden = !g;
  if (!g) { set($('group-told'), problem); return; }
  const owner = g.owner === null ? 'Nobody owns it now' : g.here ? 'This sidecar owns it' : `Owned by node ${g.owner}`;
  set($('group-told'), atBroker(g) ? `Broker ${g.broker} coordinates it; Kafka's own tools show its members` : `${owner}; partition ${g.partition} of the state topic`);
  const epoch = titled(g.epoch_name || 'epoch');
  set($('epoch-name'), epoch);
  facts([
    ['Kind', g.kind], ['State', g.state], [epoch, atBroker(g) ? '' : known(g.epoch)],
    [`Assigned ${g.epoch_name}`, g.assignment_epoch],
    [titled(g.assignor_name || 'assignor'), g.assignor], ['Topology epoch', g.topology_epoch], ['Subtopologies', lists(g.topology)],
    ['Shutdown asked by', g.shutdown_asked_by], ['Subscribes to', g.subscribes && g.subscribes.join(', ')], ['Partitions with share state', g.initialised], ['Leader', g.leader], ['Last change', g.because],
    ['Lag', known(g.lag)],
    ['Where', { sidecar: 'at the sidecars', broker: 'at the broker', comes: 'comes from the broker', leaves: 'goes back to the broker' }[g.where]],
    ['Managed', `${g.managed}${g.managed_why ? ` (${g.managed_why})` : ''}`], ['Rebalance asked for', g.rebalance_asked],
    ['Problems', (g.problems || []).join('; ')],
  ]);
  rows($('members'), g.members.rows.map(m => [
    m.member + (m.instance ? ` (static, ${m.instance})` : ''), `${m.client || ''} ${m.host || ''}`.trim(), [m.protocol, m.process && `process ${m.process}`].filter(Boolean).join(', '), [(m.topics || []).join(', '), m.regex].filter(Boolean).join('; pattern '),
    [known(m.epoch), 'number'], [m.state || '', m.state === 'STABLE' ? 'good' : 'busy'], [parts(m.owns), 'why'],
    [parts(m.gives_up), 'busy'], [without(m.target, m.owns) + claims(m), 'busy']]));
  rows($('partitions'), g.partitions.rows.map(p => [
    p.name, atBroker(g) ? 'not known' : p.owner || (p.leaves ? [`${p.leaves} has yet to give it up`, 'busy'] : ['nobody', 'bad']),
    atBroker(g) ? 'not known' : p.target === null ? ['nobody', ''] : p.target === p.owner ? 'the same' : [p.target, 'busy'],
    [known(p.committed), 'number'], [known(p.end), 'number'], [known(p.lag), 'number']]));
  pages('members', g.members);
  pages('partitions', g.partitions);
  rows($('rebalances'), g.rebalances.map((r, i) => [
    moment(r.at_ms), [r.epoch, 'number'], [r.why, 'why'], crowd(r.joined), crowd(r.left), [known(r.moved), 'number'],
    r.settled_ms === null ? (i === 0 && !g.at_rest ? ['goes on', 'busy'] : '') : span(Math.max(0, r.settled_ms - r.at_ms))]));
}

const titled = text => text[0].toUpperCase() + text.slice(1);
const lists = of => Object.entries(of || {}).map(([name, items]) => `${name}: ${items.join(', ')}`).join('; ');
const claims = m => (m.stale_claims || []).map(c => ` Stale claim: ${c.topic} ${ranges(c.partitions)} of generation ${c.generation}`).join('');
const crowd = c => c.count ? `${c.count}: ${c.names.join(', ')}${c.count > c.names.length ? ', …' : ''}` : '';

function facts(list) {
  const told = list.filter(([, v]) => v !== '' && v !== null && v !== undefined), at = $('facts');
  while (at.children.length > 2 * told.length) at.lastChild.remove();
  told.forEach(([name, value], i) => {
    set(at.children[2 * i] || at.appendChild(document.createElement('dt')), name);
    set(at.children[2 * i + 1] || at.appendChild(document.createElement('dd')), value);
  });
}

function pages(name, part) {
  set($(`${name}-told`), part.total ? `${part.begin + 1} to ${part.begin + part.rows.length} of ${part.total}` : 'none');
  const at = $(`${name}-pages`);
  at.hidden = part.total <= LIMIT;
  if (!at.children.length) {
    for (const [text, step] of [['Before', -LIMIT], ['Next', LIMIT]]) {
      const button = at.appendChild(document.createElement('button'));
      button.type = 'button';
      button.textContent = text;
      button.setAttribute('aria-label', `${name}: ${text.toLowerCase()}`);
      button.addEventListener('click', () => { view[name] = Math.max(0, view[name] + step); look(); });
    }
  }
  at.children[0].disabled = part.begin === 0;
  at.children[1].disabled = part.begin + LIMIT >= part.total;
}

// ---- input -----------------------------------------------------------------------------------------------------
function route() {
  const found = /^#g=(.*)$/s.exec(location.hash), before = view.group;
  let name = null;
  try { name = found ? decodeURIComponent(found[1]) : null; } catch { name = null; }
  if (before !== null && name === null) wantFocus = before;
  view.group = name;
  view.members = view.partitions = 0;
  look();
}

function back() { location.hash = ''; }

function move(step) {
  const all = links(), at = all.indexOf(document.activeElement);
  const to = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  if (to) to.focus();
}

function turn(step) {
  const button = step < 0 ? $('before') : $('next');
  if (button.disabled) return;
  view.at = Math.max(0, view.at + step * LIMIT);
  look();
}

function theme(next) {
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem('theme', next); } catch { /* a browser that keeps nothing */ }
}

function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || $('help').open || !$('login').hidden) return;
  const typing = e.target.matches('input, select');
  if (e.key === 'Escape') {
    if (typing && e.target.value && e.target === $('search')) { e.target.value = ''; searched(); } else if (typing) e.target.blur();
    else if (view.group !== null) back();
  } else if (typing) {
    if (e.target === $('search') && (e.key === 'ArrowDown' || e.key === 'Enter')) move(1); else return;
  } else if (e.key === '?') $('help').showModal();
  else if (e.key === 't') $('theme').click();
  else if (view.group !== null) return;
  else if (e.key === '/') $('search').focus();
  else if (e.key === 'j' || e.key === 'ArrowDown') move(1);
  else if (e.key === 'k' || e.key === 'ArrowUp') move(-1);
  else if (e.key === 'n') turn(1);
  else if (e.key === 'p') turn(-1);
  else return;
  e.preventDefault();
}

let typed = 0;
function searched() {
  clearTimeout(typed);
  typed = setTimeout(() => { view.search = $('search').value; view.at = 0; look(); }, 150);
}

async function login(e) {
  e.preventDefault();
  set($('login-told'), '');
  try {
    const answer = await fetch('/login', { method: 'POST', body: new URLSearchParams({ token: $('token').value }), credentials: 'same-origin' });
    if (answer.ok) { $('token').value = ''; look(); return; }
    set($('login-told'), (await answer.json()).problem);
  } catch { set($('login-told'), 'no answer'); }
  $('token').select();
}

function begin() {
  let kept = null;
  try { kept = localStorage.getItem('theme'); } catch { /* a browser that keeps nothing */ }
  const wanted = kept || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  document.documentElement.dataset.theme = wanted;
  head();
  $('theme').addEventListener('click', () => theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
  $('help-open').addEventListener('click', () => $('help').showModal());
  $('skip').addEventListener('click', e => { e.preventDefault(); if (view.group !== null) back(); $('search').focus(); });
  $('back').addEventListener('click', e => { e.preventDefault(); back(); });
  $('before').addEventListener('click', () => turn(-1));
  $('next').addEventListener('click', () => turn(1));
  $('search').addEventListener('input', searched);
  for (const n of ['kind', 'state']) $(n).addEventListener('change', () => { view[n] = $(n).value; view.at = 0; look(); });
  $('login').addEventListener('submit', login);
  document.addEventListener('keydown', key);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) look(); });
  window.addEventListener('hashchange', route);
  route();
}

begin();
