// One field to find groups, members, partitions and findings, and to show only lanes that match.

const HITS_SHOWN = 24;
let hitsFound = [], hitAt = -1;

function search(words) {
  const wanted = words.trim().toLowerCase(), out = [];
  if (!wanted) return out;
  const has = value => value.toLowerCase().includes(wanted);
  const order = data.groups.map((_, n) => n).sort((x, y) => (y === state.group) - (x === state.group));
  for (const n of order) if (has(data.groups[n].id)) out.push({ kind: 'group', label: data.groups[n].id, note: '', go: () => showGroup(n) });
  for (const n of order) {
    if (out.length >= HITS_SHOWN) break;
    searchGroup(n, has, wanted, out);
  }
  for (let i = 0; i < findings.t.length && out.length < HITS_SHOWN; i++) {
    if (has(text(findings.text[i]))) out.push({ kind: 'finding', label: text(findings.text[i]), note: stamp(findings.t[i], SECOND), go: () => goToFinding(i) });
  }
  return out.slice(0, HITS_SHOWN);
}

function searchGroup(n, has, wanted, out) {
  const g = group(n), o = g.owners;
  for (let p = 0; p < g.places.length && out.length < HITS_SHOWN; p++) {
    if (has(g.placeName(p))) out.push({ kind: 'partition', label: g.placeName(p), note: g.id, go: () => goToLane(n, `p${p}`, -1) });
  }
  for (let m = 0; m < o.id.length && out.length < HITS_SHOWN; m++) {
    const names = [text(o.id[m]), text(o.client_id[m]), text(o.instance_id[m])];
    if (names.some(has) || ownerLabel(m) === wanted) out.push({ kind: 'member', label: `${ownerLabel(m)} ${ownerName(g, m)}`, note: `${g.id} · ${names[0]}`, go: () => goToMember(n, m) });
  }
}

function goToLane(n, key) {
  showGroup(n, true);
  state.filter = '';
  rebuild();
  const lane = lanes.find(l => l.key === key);
  if (lane) pressLane(lane);
  reveal(lane);
  return lane;
}

// Shows the whole life of a member, with the others faint.
function goToMember(n, m) {
  showGroup(n, true);
  state.owner = m;
  state.filter = '';
  rebuild();
  const g = group(n), life = g.lives.m.indexOf(m);
  if (life < 0) return undefined;
  lookAt(g.lives.a[life], g.lives.b[life]);
  select(`life.${n}.${life}`);
  const at = whereIs(state.selected);
  reveal(at && at.lane);
  return at && at.lane;
}

function showHits() {
  const field = byId('search'), list = byId('hits'), words = field.value;
  hitsFound = search(words);
  if (words.trim()) hitsFound.push({ kind: 'filter', label: `Show only lanes with “${words.trim()}”`, note: '', go: () => setFilter(words.trim()) });
  hitAt = hitsFound.length ? 0 : -1;
  list.hidden = !hitsFound.length;
  field.setAttribute('aria-expanded', String(!list.hidden));
  list.replaceChildren(...hitsFound.map((h, i) => element('li', { id: `hit${i}`, role: 'option', onmousedown: event => { event.preventDefault(); take(i); } },
    element('span', { className: 'kind' }, h.kind), element('span', { className: 'what' }, h.label), element('small', {}, h.note))));
  markHit();
}

function markHit() {
  [...byId('hits').children].forEach((row, i) => row.setAttribute('aria-selected', String(i === hitAt)));
  if (hitAt >= 0) {
    byId('search').setAttribute('aria-activedescendant', `hit${hitAt}`);
    byId('hits').children[hitAt].scrollIntoView({ block: 'nearest' });
  }
}

function take(i) {
  const hit = hitsFound[i];
  closeHits();
  byId('search').value = '';
  byId('scroll').focus({ preventScroll: true });
  toTimeline(hit && hit.go());
}

function closeHits() {
  byId('hits').hidden = true;
  byId('search').setAttribute('aria-expanded', 'false');
}

function setFilter(words) {
  state.filter = words;
  rebuild();
}

function searchKeys(event) {
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    if (hitsFound.length) hitAt = (hitAt + (event.key === 'ArrowDown' ? 1 : -1) + hitsFound.length) % hitsFound.length;
    markHit();
  } else if (event.key === 'Enter') take(hitAt);
  else if (event.key === 'Escape') { closeHits(); byId('scroll').focus({ preventScroll: true }); }
  else return;
  event.preventDefault();
}
