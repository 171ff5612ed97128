// Puts the page together.

function rebuild() {
  rebuildLanes();
  layout();
  showFindings();
  showIndex();
  showCrumbs();
  showDetail();
  changed();
}

// The lanes get the height they need, up to most of the window.
function layout() {
  const scroll = byId('scroll'), most = Math.max(260, Math.round(innerHeight * 0.66));
  byId('tall').style.height = `${lanesHeight}px`;
  scroll.style.height = `${Math.min(lanesHeight, most)}px`;
  byId('frame').style.setProperty('--bar', `${scroll.offsetWidth - scroll.clientWidth}px`);
}

// Brings the lanes into the window where they are not all in it, and one of them out from under what is told of it: on a
// small window that lies over the lanes.
function toTimeline(lane) {
  const box = byId('timeline').getBoundingClientRect();
  if (box.top < 0 || box.bottom > innerHeight) byId('timeline').scrollIntoView({ block: 'start' });
  if (!lane || byId('detail').hidden || getComputedStyle(byId('detail')).position !== 'fixed') return;
  const scroll = byId('scroll'), bottom = scroll.getBoundingClientRect().top + lane.y + lane.height - scroll.scrollTop;
  window.scrollBy(0, Math.max(bottom + 8 - byId('detail').getBoundingClientRect().top, 0));
}

function showCrumbs() {
  const pick = byId('pick');
  if (pick.options.length !== data.groups.length + 1) {
    pick.replaceChildren(element('option', { value: -1 }, `All groups (${data.groups.length})`), ...data.groups.map((g, n) => element('option', { value: n }, g.id)));
  }
  pick.value = String(state.group);
  const chips = byId('filters'), made = [];
  const chip = (words, onclick) => element('button', { type: 'button', className: 'chip', 'aria-label': `Remove: ${words}`, onclick }, `${words} ✕`);
  if (state.filter) made.push(chip(`lanes with “${state.filter}”`, () => setFilter('')));
  if (state.owner >= 0 && state.group >= 0) made.push(chip(`only ${ownerLabel(state.owner)}`, () => highlight(state.owner)));
  chips.replaceChildren(...made);
  byId('compact').setAttribute('aria-pressed', String(state.compact));
  byId('zone').textContent = state.local ? 'Local time' : 'UTC';
}

function toggleCompact() {
  state.compact = !state.compact;
  rebuild();
}

function toggleZone() {
  state.local = !state.local;
  showAll();
}

const dark = window.matchMedia('(prefers-color-scheme: dark)'), print = window.matchMedia('print');

function toggleTheme() {
  state.theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  showTheme();
}

// Paper is always light.
function showTheme() {
  document.documentElement.dataset.theme = print.matches ? 'light' : state.theme || (dark.matches ? 'dark' : 'light');
  readColours();
  layout();
  paint();
}

function showAll() {
  showVerdict();
  byId('range-of-log').textContent = `${stamp(BEGIN, SECOND)} to ${stamp(END, SECOND)} ${zone()}: ${lasting(END - BEGIN)}, ${data.groups.length} ${data.groups.length === 1 ? 'group' : 'groups'}, ${coordinators.size} ${coordinators.size === 1 ? 'state partition' : 'state partitions'}`;
  byId('left-out').hidden = !data.leftOut.length;
  byId('left-out-list').replaceChildren(...data.leftOut.map(words => element('li', {}, words)));
  rebuild();
}

function listen() {
  zoomable(canvas, false);
  zoomable(axisCanvas, true);
  for (const type of ['pointerdown', 'pointermove']) stripCanvas.addEventListener(type, stripPointer);
  stripCanvas.addEventListener('wheel', event => { event.preventDefault(); zoom(Math.exp(event.deltaY * 0.003)); }, { passive: false });
  canvas.addEventListener('dblclick', event => zoom(0.25, timeAt(event.clientX)));
  document.addEventListener('keydown', keys);
  byId('scroll').addEventListener('scroll', paintSoon, { passive: true });
  byId('findings-list').addEventListener('keydown', findingKeys);
  byId('search').addEventListener('input', showHits);
  byId('search').addEventListener('keydown', searchKeys);
  byId('search').addEventListener('blur', closeHits);
  byId('pick').addEventListener('change', event => showGroup(Number(event.target.value)));
  const press = { 'zoom-in': () => zoom(0.5), 'zoom-out': () => zoom(2), whole: () => look(...wholeRange()), compact: toggleCompact, zone: toggleZone,
    theme: toggleTheme, trace: saveTrace, 'help-open': () => byId('help').showModal(), 'help-close': () => byId('help').close(), 'print-it': () => window.print(), skip: () => { toTimeline(); byId('scroll').focus(); },
    'finding-next': () => stepFinding(1), 'finding-back': () => stepFinding(-1), 'findings-more': () => { findingsShown += FINDINGS_SHOWN; showFindings(); } };
  for (const [id, does] of Object.entries(press)) byId(id).addEventListener('click', does);
  new ResizeObserver(() => { layout(); paintSoon(); }).observe(byId('frame'));
  window.addEventListener('popstate', () => { readAddress(); showAll(); });
  dark.addEventListener('change', showTheme);
  print.addEventListener('change', showTheme);
  window.addEventListener('beforeprint', () => { tell(); showTheme(); });
  window.addEventListener('afterprint', showTheme);
}

readAddress();
document.documentElement.dataset.theme = dark.matches ? 'dark' : 'light';
readColours();
showAll();
listen();
showTheme();
if (state.group >= 0 && location.hash) toTimeline();
document.body.dataset.ready = Math.round(performance.now());
