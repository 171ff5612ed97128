// What is looked at. All of it is in the address, so that a link leads to a moment.

const LEAST_SPAN = 5; // Milliseconds: further in there is nothing to see.

const state = {
  group: -1, a: BEGIN, b: END, filter: '', owner: -1, selected: '', kinds: '',
  local: false, theme: '', compact: false, closed: new Set(),
};
let addressTimer = 0;

const span = () => state.b - state.a;
const fullSpan = () => Math.max(END - BEGIN, 1000);

// The whole range with a little room, so that the first and last bars can be seen.
function wholeRange() {
  const room = fullSpan() * 0.01;
  return [BEGIN - room, END + room];
}

function look(a, b) {
  const [least, most] = wholeRange();
  const width = Math.min(Math.max(b - a, LEAST_SPAN), most - least);
  const middle = (a + b) / 2;
  state.a = Math.min(Math.max(middle - width / 2, least), most - width);
  state.b = state.a + width;
  changed();
}

function zoom(factor, at = (state.a + state.b) / 2) {
  const width = Math.max(span() * factor, LEAST_SPAN), part = (at - state.a) / span();
  look(at - width * part, at + width * (1 - part));
}

const pan = part => look(state.a + span() * part, state.b + span() * part);

// Shows a time span with room on both sides, so that what led to it is seen too.
function lookAt(a, b) {
  const room = Math.max((b - a) * 0.6, 2000);
  look(a - room, b + room);
}

function showGroup(n, keepTime = false) {
  if (n === state.group) return;
  rememberAddress();
  Object.assign(state, { group: n, owner: -1, filter: '', selected: '' });
  if (!keepTime) look(...wholeRange());
  rebuild();
}

function address() {
  const parts = [];
  const put = (key, value) => parts.push(`${key}=${encodeURIComponent(value)}`);
  if (state.group >= 0) put('g', `${data.groups[state.group].sp}/${data.groups[state.group].id}`);
  put('t', `${Math.round(state.a)}..${Math.round(state.b)}`);
  if (state.filter) put('q', state.filter);
  if (state.owner >= 0) put('m', state.owner + 1);
  if (state.selected) put('s', state.selected);
  if (state.kinds) put('k', state.kinds);
  if (state.local) put('z', 'local');
  if (state.compact) put('c', 1);
  return '#' + parts.join('&');
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const times = (given.get('t') || '').split('..').map(Number);
  state.group = groupNumber.get(given.get('g')) ?? (data.groups.length === 1 ? 0 : -1);
  state.filter = given.get('q') || '';
  state.owner = (Number(given.get('m')) || 0) - 1;
  state.selected = given.get('s') || '';
  state.kinds = given.get('k') || '';
  state.local = given.get('z') === 'local';
  state.compact = given.get('c') === '1';
  if (times.length === 2 && times[1] > times[0]) look(...times); else look(...wholeRange());
}

// Going to another group is a step that Back takes back; zooming is not.
function rememberAddress() {
  history.pushState(null, '', address());
}

function writeAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(null, '', address()), 120);
}

function changed() {
  writeAddress();
  paintSoon();
}

function select(reference) {
  state.selected = reference;
  showDetail();
  changed();
}
