// Times as people read them, in UTC or local, and the ticks of the axis from milliseconds to years.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND,
  MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 7 * DAY];
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const DAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const MONDAY = 4 * DAY; // The first Monday after the begin of Unix time: weeks are counted from here.

const two = n => String(n).padStart(2, '0');

// Minutes that the shown clock is ahead of UTC.
const ahead = ms => (state.local ? -new Date(ms).getTimezoneOffset() : 0) * MINUTE;

// A date whose UTC fields are what the shown clock says.
const shown = ms => new Date(ms + ahead(ms));

function dateOf(ms) {
  const d = shown(ms);
  return `${DAYS[d.getUTCDay()]} ${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]} ${d.getUTCFullYear()}`;
}

// `step`: how fine; ms are shown below a second, seconds below a minute.
function clockOf(ms, step) {
  const d = shown(ms), minutes = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
  if (step >= MINUTE) return minutes;
  const seconds = `${minutes}:${two(d.getUTCSeconds())}`;
  return step >= SECOND ? seconds : `${seconds}.${String(d.getUTCMilliseconds()).padStart(3, '0')}`;
}

const zone = () => (state.local ? 'local' : 'UTC');

function stamp(ms, step = 1) {
  const d = shown(ms);
  return `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())} ${clockOf(ms, step)}`;
}

function lasting(ms) {
  if (ms < 0) return '–';
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ${Math.floor((ms % MINUTE) / SECOND)} s`;
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)} h ${Math.floor((ms % HOUR) / MINUTE)} min`;
  return `${Math.floor(ms / DAY)} d ${Math.floor((ms % DAY) / HOUR)} h`;
}

// Ticks between a and b that are at least `room` pixels apart, on whole units of the shown clock.
function ticks(a, b, width, room) {
  const least = ((b - a) / width) * room;
  const step = STEPS.find(s => s >= least);
  if (step === undefined) return monthTicks(a, b, least);
  const from = step === 7 * DAY ? MONDAY : 0, out = [];
  for (let t = Math.ceil((a + ahead(a) - from) / step) * step + from; t - ahead(t) <= b; t += step) {
    const at = t - ahead(t - ahead(t));
    if (at >= a) out.push({ at, label: tickLabel(at, step) });
  }
  return out;
}

function tickLabel(at, step) {
  const d = shown(at);
  if (step >= DAY) return `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]}`;
  return step < SECOND ? clockOf(at, step).slice(6) + ' s' : clockOf(at, step);
}

function monthTicks(a, b, least) {
  const every = [1, 3, 6, 12, 24, 60, 120].find(n => n * 28 * DAY >= least) || 120, first = shown(a), out = [];
  for (let month = Math.floor(first.getUTCMonth() / every) * every; ; month += every) {
    const t = Date.UTC(first.getUTCFullYear(), month, 1), at = t - ahead(t);
    if (at > b) return out;
    const d = new Date(t);
    if (at >= a) out.push({ at, label: `${MONTHS[d.getUTCMonth()]} ${d.getUTCFullYear()}` });
  }
}

// Below a second a tick says the second only, so the row above names the minute.
function minutes(a, b) {
  const out = [];
  for (let at = Math.floor(a / MINUTE) * MINUTE; at <= b; at += MINUTE) out.push({ at: Math.max(at, a), label: `${dateOf(at)}, ${clockOf(at, MINUTE)}` });
  return out;
}

// The row above the ticks: where a day (or, further out, a month) begins.
function eras(a, b, width) {
  if ((b - a) / width * 90 < SECOND) return minutes(a, b);
  const days = b - a < 12 * DAY, out = [], first = shown(a);
  if (days && (b - a) / width * 120 > DAY) return [{ at: a, label: dateOf(a) }];
  for (let n = 0; ; n++) {
    const t = days ? Date.UTC(first.getUTCFullYear(), first.getUTCMonth(), first.getUTCDate() + n)
      : Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + n, 1);
    const at = t - ahead(t);
    if (at > b) return out;
    const d = new Date(t);
    out.push({ at: Math.max(at, a), label: days ? dateOf(at) : `${MONTHS[d.getUTCMonth()]} ${d.getUTCFullYear()}` });
  }
}
