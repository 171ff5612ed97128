// Draws the lanes, the axis and the overview strip. Only lanes in view are drawn, and of bars that are narrower than a
// pixel a whole run as one block, so the time taken hangs on the pixels, not on how many bars there are.

const FILLS = ['#77aadd', '#eedd88', '#ee8866', '#44bb99', '#ffaabb', '#bbcc33', '#99ddff', '#c8b8e0'];
const NODE_FILLS = ['#b9c6d6', '#d9d2c0', '#bcd0c0', '#d5bfcd', '#c3c3dc', '#d6d6d6'];
const INK = '#14212e';
const NARROW = 2; // Pixels below which bars are drawn together.
const patterns = new Map();
let colours = {}, hits = [], waiting = 0, strip = null;

const canvas = byId('lanes'), pen = canvas.getContext('2d');
const axisCanvas = byId('axis'), axisPen = axisCanvas.getContext('2d');
const stripCanvas = byId('strip'), stripPen = stripCanvas.getContext('2d');
const laneWidth = () => canvas.clientWidth;
const X = ms => ((ms - state.a) / (state.b - state.a)) * laneWidth();

// The second way, beside the label, to tell owners apart when the colours begin again.
const HATCHES = [
  [],
  [[0, 8, 8, 0], [-4, 4, 4, -4], [4, 12, 12, 4]],
  [[0, 0, 8, 8], [-4, 4, 4, 12], [4, -4, 12, 4]],
  [[4, 0, 4, 8]],
  [[0, 4, 8, 4]],
  [[4, 0, 4, 8], [0, 4, 8, 4]],
];

function pattern(which, colour, width = 1.4) {
  const key = `${which} ${colour} ${width}`;
  if (!patterns.has(key)) {
    const tile = element('canvas', { width: 8, height: 8 }), c = tile.getContext('2d');
    Object.assign(c, { strokeStyle: colour, lineWidth: width });
    for (const [x0, y0, x1, y1] of HATCHES[which]) {
      c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke();
    }
    patterns.set(key, pen.createPattern(tile, 'repeat'));
  }
  return patterns.get(key);
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['ink', 'soft', 'line', 'panel', 'page', 'fault', 'possible', 'note', 'busy', 'accent', 'band', 'epoch', 'epoch2', 'settle']) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colours.strength = document.documentElement.dataset.theme === 'dark' ? 0.88 : 1;
  patterns.clear();
  strip = null;
}

function fit(c, p, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  if (c.width !== Math.round(width * scale) || c.height !== Math.round(height * scale)) {
    c.width = Math.round(width * scale);
    c.height = Math.round(height * scale);
    c.style.height = `${height}px`;
  }
  p.setTransform(scale, 0, 0, scale, 0, 0);
  p.clearRect(0, 0, width, height);
}

function paintSoon() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; paint(); });
}

function paint() {
  const begun = performance.now(), scroll = byId('scroll'), top = scroll.scrollTop, height = scroll.clientHeight;
  fit(canvas, pen, laneWidth(), height);
  hits = [];
  const inView = lanesBetween(top, top + height), grid = ticks(state.a, state.b, laneWidth(), 90);
  paintGround(inView, grid, top, height);
  for (const lane of inView) paintLane(lane, lane.y - top);
  paintMarks(inView, top, height);
  paintSelection(inView, top, height);
  paintAxis(grid);
  paintStrip();
  showLabels(inView);
  Object.assign(document.body.dataset, {
    from: Math.round(state.a), to: Math.round(state.b), paint: (performance.now() - begun).toFixed(1), bars: hits.length,
  });
  tellSoon();
}

function paintGround(inView, grid, top, height) {
  const wide = laneWidth();
  pen.fillStyle = colours.line;
  for (const t of grid) pen.fillRect(Math.round(X(t.at)), 0, 1, height);
  for (const lane of inView) {
    const y = lane.y - top;
    if (lane.head) {
      pen.fillStyle = colours.band;
      pen.fillRect(0, y, wide, lane.height);
    } else if (!lane.flat) {
      pen.fillStyle = colours.line;
      pen.fillRect(0, y + lane.height - 1, wide, 1);
    }
    if (lane.since > BEGIN && X(lane.since) > 0) {
      pen.fillStyle = pattern(2, colours.line, 2);
      pen.fillRect(0, y, Math.min(X(lane.since), wide), lane.height);
    }
  }
  pen.fillStyle = colours.page;
  pen.globalAlpha = 0.75;
  pen.fillRect(X(END), 0, wide, height);
  pen.fillRect(0, 0, X(BEGIN), height);
  pen.globalAlpha = 1;
}

function paintLane(lane, y) {
  const inset = lane.flat ? 0 : 3, h = lane.height - (lane.flat ? 1 : 7);
  for (const l of lane.layers) {
    if (l.kind === 'find' && !l.hatch) paintGlyphs(l, y, lane.height); else paintLayer(lane, l, y + inset, h);
  }
}

function paintLayer(lane, l, y, h) {
  const narrow = lane.flat ? 3 * NARROW : NARROW;
  for (let i = firstVisible(l, state.a); i < l.to && l.a[i] < state.b;) {
    const x = X(l.a[i]);
    let right = X(l.b[i]), next = i + 1;
    if (right - x < narrow) {
      while (next < l.to && X(l.b[next]) - X(l.a[next]) < narrow && X(l.a[next]) - right < 1) right = Math.max(right, X(l.b[next++]));
    }
    const left = Math.max(x, -2), width = Math.max(Math.min(right, laneWidth() + 2) - left, NARROW);
    if (next - i > 1) paintBusy(l, left, y, width, h, next - i); else paintBar(l, i, left, y, width, h);
    hits.push({ x: left, y, w: width, h, ref: refOf(l, i), many: next - i, a: l.a[i], b: l.b[next - 1] });
    i = next;
  }
}

// Many bars on few pixels: one neutral block, which says how many where there is room.
function paintBusy(l, x, y, w, h, many) {
  pen.fillStyle = l.kind === 'find' ? colours.fault : l.kind === 'free' ? colours.soft : colours.busy;
  pen.fillRect(x, y, w, h);
  label(`${many}`, x, y, w, h, colours.panel);
}

function paintBar(l, i, x, y, w, h) {
  const id = idOf(l, i);
  if (l.kind === 'own') paintOwned(l.owner, id, x, y, w, h);
  else if (l.kind === 'life') paintLife(l.owner, id, x, y, w, h);
  else if (l.kind === 'free') paintFree(x, y, w, h);
  else if (l.kind === 'claim') paintClaim(l.owner, id, x, y, w, h);
  else if (l.kind === 'away') paintAway(l.owner, id, x, y, w, h);
  else if (l.kind === 'epoch') paintEpoch(l.owner, id, x, y, w, h);
  else if (l.kind === 'settle') paintSettling(l.owner, id, x, y, w, h);
  else if (l.kind === 'find') paintOverlap(id, x, y, w, h);
}

// A text inside a bar, if it fits.
function label(words, x, y, w, h, colour) {
  const from = Math.max(x, 0), room = Math.min(x + w, laneWidth()) - from - 6;
  if (h < 12 || room < 10) return;
  pen.font = '11px system-ui, sans-serif';
  if (pen.measureText(words).width > room) return;
  pen.fillStyle = colour;
  pen.textBaseline = 'middle';
  pen.fillText(words, from + 4, y + h / 2 + 0.5);
}

function paintOwner(m, x, y, w, h) {
  pen.globalAlpha = state.owner >= 0 && state.owner !== m ? 0.18 : colours.strength;
  pen.fillStyle = FILLS[m % FILLS.length];
  pen.fillRect(x, y, w, h);
  const hatch = Math.floor(m / FILLS.length) % HATCHES.length;
  if (hatch && w > 4 && h > 9) {
    pen.fillStyle = pattern(hatch, 'rgba(20,33,46,.38)');
    pen.fillRect(x, y, w, h);
  }
  if (w > 3) {
    pen.fillStyle = 'rgba(20,33,46,.55)';
    pen.fillRect(x, y, 1, h);
  }
}

function paintOwned(n, id, x, y, w, h) {
  const g = group(n), own = g.own, m = own.m[id], many = own.many[id];
  if (many > 1) {
    paintBusy({ kind: 'own' }, x, y, w, h, many);
    return;
  }
  paintOwner(m, x, y, w, h);
  const revoking = own.revoking_from_ms[id];
  if (revoking >= 0) {
    const from = Math.max(X(revoking), x);
    pen.fillStyle = pattern(1, 'rgba(20,33,46,.75)', 2);
    pen.fillRect(from, y, x + w - from, h);
  }
  pen.globalAlpha = state.owner >= 0 && state.owner !== m ? 0.45 : 1;
  paintEnds(own, id, x, y, w, h);
  if (h < 12 || w < 16) { // no room for words, and to measure them takes most of the time
    pen.globalAlpha = 1;
    return;
  }
  const name = ownerName(g, m);
  pen.font = '11px system-ui, sans-serif';
  const words = w > 90 && pen.measureText(name).width < w - 50 ? `${ownerLabel(m)} ${name}` : ownerLabel(m), wide = pen.measureText(words).width;
  if (revoking >= 0 && h > 11 && wide < w - 12 && X(revoking) < Math.max(x, 0) + wide + 8) {
    pen.fillStyle = FILLS[m % FILLS.length];
    pen.fillRect(Math.max(x, 0) + 2, y + 2, wide + 4, h - 4);
  }
  label(words, x, y, w, h, INK);
  pen.globalAlpha = 1;
}

// A dashed edge: compaction may have taken the record at which it truly began or ended.
function paintEnds(c, id, x, y, w, h) {
  if (w < 8 || h < 12) return;
  pen.fillStyle = INK;
  for (let at = y; at < y + h; at += 5) {
    if (!c.from_exact[id]) pen.fillRect(x, at, 2.5, 2.5);
    if (c.d[id] >= 0 && !c.to_exact[id]) pen.fillRect(x + w - 2.5, at, 2.5, 2.5);
  }
}

function paintLife(n, id, x, y, w, h) {
  const g = group(n), m = g.lives.m[id];
  paintOwner(m, x, y, w, h);
  pen.globalAlpha = state.owner >= 0 && state.owner !== m ? 0.45 : 1;
  paintEnds(g.lives, id, x, y, w, h);
  label(ownerLabel(m), x, y, w, h, INK);
  pen.globalAlpha = 1;
}

function paintFree(x, y, w, h) {
  if (w < 3) {
    pen.fillStyle = colours.soft;
    pen.fillRect(x, y + h / 2 - 1, w, 2);
    return;
  }
  Object.assign(pen, { strokeStyle: colours.soft, lineWidth: 1 });
  pen.setLineDash([3, 3]);
  pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  pen.setLineDash([]);
  label('nobody', x, y, w, h, colours.soft);
}

function paintClaim(sp, id, x, y, w, h) {
  const c = coordinators.get(sp).claims;
  pen.fillStyle = NODE_FILLS[c.node_id[id] % NODE_FILLS.length];
  pen.globalAlpha = colours.strength;
  pen.fillRect(x, y, w, h);
  pen.globalAlpha = 1;
  pen.fillStyle = c.fenced[id] ? colours.fault : 'rgba(20,33,46,.55)';
  pen.fillRect(x, y, c.fenced[id] ? 3 : 1, h);
  const full = `sidecar ${c.node_id[id]}, claim ${c.claim[id]}`;
  label(w > 120 ? full : `sidecar ${c.node_id[id]}`, x, y, w, h, INK);
}

function paintAway(sp, id, x, y, w, h) {
  pen.fillStyle = colours.panel;
  pen.fillRect(x, y, w, h);
  pen.fillStyle = pattern(1, colours.fault, 2);
  pen.fillRect(x, y, w, h);
  Object.assign(pen, { strokeStyle: colours.fault, lineWidth: 1 });
  pen.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 0.5), h - 1);
  const words = `away ≤ ${lasting(coordinators.get(sp).outages.at_most_ms[id])}`;
  pen.font = '11px system-ui, sans-serif';
  const wide = pen.measureText(words).width;
  if (wide > w - 12) return;
  pen.fillStyle = colours.panel;
  pen.fillRect(Math.max(x, 0) + 2, y + 2, wide + 5, h - 4);
  label(words, x, y, w, h, colours.fault);
}

function paintEpoch(n, id, x, y, w, h) {
  const e = group(n).epochs;
  pen.fillStyle = e.epoch[id] % 2 ? colours.epoch : colours.epoch2;
  pen.fillRect(x, y, w, h);
  pen.fillStyle = colours.accent;
  if (w > 2) pen.fillRect(x, y, 1, h);
  if (state.group >= 0) label(w > 90 && e.why[id] >= 0 ? `${e.epoch[id]}: ${text(e.why[id])}` : `${e.epoch[id]}`, x, y, w, h, colours.ink);
  else label(`epoch ${e.epoch[id]}`, x + 6, y, w - 6, h, colours.ink);
}

function paintSettling(n, id, x, y, w, h) {
  const e = group(n).epochs, done = e.settled[id] >= 0;
  pen.fillStyle = done ? colours.settle : colours.possible;
  pen.fillRect(x, y, w, h);
  if (!done) {
    pen.fillStyle = pattern(2, colours.panel, 2);
    pen.fillRect(x, y, w, h);
  }
  if (e.target[id] >= 0 && w > 6) {
    pen.fillStyle = colours.panel;
    pen.fillRect(X(e.a[id] + e.target[id]) - 1, y + 2, 2, h - 4);
  }
  label(lasting(e.settledAt[id] - e.a[id]), x, y, w, h, colours.panel);
}

function paintOverlap(id, x, y, w, h) {
  const colour = findings.grave[id] === FAULT ? colours.fault : colours.possible, wide = Math.max(w, 3);
  pen.fillStyle = pattern(1, colour, 3);
  pen.fillRect(x, y, wide, h);
  Object.assign(pen, { strokeStyle: colour, lineWidth: 2 });
  pen.strokeRect(x, y, wide, h);
  const words = `${findings.grave[id] === FAULT ? 'two owners' : 'perhaps two'}, ${ownerLabel(findings.owner[id])} came`;
  pen.font = '600 11px system-ui, sans-serif';
  if (wide < pen.measureText(words).width + 20 || h < 12) return;
  pen.fillStyle = colours.panel;
  pen.fillRect(Math.max(x, 0) + 2, y + 2, pen.measureText(words).width + 6, h - 4);
  label(words, Math.max(x, 0) + 1, y, w, h, colour);
}

// A square must not be, a diamond may have been, a dot is good to know: shape says it, not colour alone.
function glyph(c, grave, x, y, r) {
  c.fillStyle = colours[GRAVE[grave]];
  c.beginPath();
  if (grave === FAULT) c.rect(x - r, y - r, 2 * r, 2 * r);
  else if (grave === POSSIBLE) { c.moveTo(x, y - r * 1.3); c.lineTo(x + r * 1.3, y); c.lineTo(x, y + r * 1.3); c.lineTo(x - r * 1.3, y); }
  else c.arc(x, y, r * 0.85, 0, 7);
  c.fill();
}

// Findings that would hide each other share the sign of the gravest, with their number.
function paintGlyphs(l, y, height) {
  const middle = y + height / 2;
  for (let i = firstAbove(l.a, state.a, l.from, l.to); i < l.to && l.a[i] < state.b;) {
    const x = X(l.a[i]);
    let next = i + 1, worst = i;
    for (; next < l.to && X(l.a[next]) - x < 13; next++) if (findings.grave[idOf(l, next)] < findings.grave[idOf(l, worst)]) worst = next;
    glyph(pen, findings.grave[idOf(l, worst)], x, middle, 5.5);
    if (next - i > 1) {
      pen.font = '600 9px system-ui, sans-serif';
      pen.textAlign = 'center';
      pen.fillStyle = colours.panel;
      pen.fillText(next - i > 9 ? '+' : next - i, x, middle + 0.5);
      pen.textAlign = 'start';
    }
    hits.push({ x: x - 7, y, w: 14, h: height, ref: refOf(l, worst), many: next - i, a: l.a[i], b: l.a[next - 1] });
    i = next;
  }
}
