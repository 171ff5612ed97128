// Pointer, wheel and keyboard. Dragging pans, dragging on the axis or with Shift chooses a range, two fingers zoom.

const pointers = new Map();
let drag = null;

function zoomable(target, onAxis) {
  target.addEventListener('pointerdown', event => press(event, target, onAxis));
  target.addEventListener('pointermove', event => move(event, target));
  target.addEventListener('pointerup', event => release(event, target));
  target.addEventListener('pointercancel', event => { pointers.delete(event.pointerId); drag = null; hideRange(); });
  target.addEventListener('pointerleave', () => showTip(null));
  target.addEventListener('wheel', event => wheel(event, onAxis), { passive: false });
}

const timeAt = clientX => state.a + ((clientX - canvas.getBoundingClientRect().left) / laneWidth()) * span();

function hitAtPoint(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  for (let n = hits.length - 1; n >= 0; n--) {
    const h = hits[n];
    if (x >= h.x - 2 && x <= h.x + h.w + 2 && y >= h.y && y <= h.y + h.h) return h;
  }
  return null;
}

function press(event, target, onAxis) {
  if (event.button) return;
  pointers.set(event.pointerId, event.clientX);
  target.setPointerCapture(event.pointerId);
  showTip(null);
  const range = onAxis || event.shiftKey;
  drag = { x: event.clientX, y: event.clientY, a: state.a, b: state.b, range, moved: false, apart: 0 };
  if (pointers.size === 2) {
    const [p, q] = [...pointers.values()];
    Object.assign(drag, { apart: Math.max(Math.abs(p - q), 10), at: timeAt((p + q) / 2), moved: true });
  }
}

function move(event, target) {
  if (!pointers.has(event.pointerId)) {
    if (target === canvas && event.pointerType === 'mouse') showTip(hitAtPoint(event), event.clientX, event.clientY);
    return;
  }
  pointers.set(event.pointerId, event.clientX);
  if (!drag) return;
  if (pointers.size === 2 && drag.apart) pinch();
  else if (Math.abs(event.clientX - drag.x) > 3 || drag.moved) {
    drag.moved = true;
    if (drag.range) showRange(drag.x, event.clientX);
    else {
      const by = ((drag.x - event.clientX) / laneWidth()) * (drag.b - drag.a);
      look(drag.a + by, drag.b + by);
    }
  }
}

function pinch() {
  const [p, q] = [...pointers.values()], factor = drag.apart / Math.max(Math.abs(p - q), 10);
  look(drag.at - (drag.at - drag.a) * factor, drag.at + (drag.b - drag.at) * factor);
}

function release(event, target) {
  pointers.delete(event.pointerId);
  hideRange();
  if (drag && drag.range && drag.moved && !drag.apart) {
    const [a, b] = [timeAt(drag.x), timeAt(event.clientX)];
    look(Math.min(a, b), Math.max(a, b));
  } else if (drag && !drag.moved && target === canvas) choose(hitAtPoint(event));
  // The finger that stays after a pinch goes on from where the pinch has led.
  drag = pointers.size ? { x: [...pointers.values()][0], a: state.a, b: state.b, range: false, moved: true, apart: 0 } : null;
}

// A click selects a bar; on a run of narrow ones it zooms to them, unless they are all of one moment.
function choose(hit) {
  const wide = hit ? hit.b - hit.a : 0;
  if (hit && hit.many > 1 && wide > 0 && span() > 4 * wide) look(hit.a - wide, hit.b + wide);
  else select(hit ? hit.ref : '');
  markFinding();
}

function showRange(x0, x1) {
  const box = canvas.getBoundingClientRect(), range = byId('range'), left = Math.max(Math.min(x0, x1), box.left), tall = byId('frame').getBoundingClientRect();
  range.hidden = false;
  range.style.left = `${left - tall.left}px`;
  range.style.width = `${Math.min(Math.max(x0, x1), box.right) - left}px`;
}

function hideRange() {
  byId('range').hidden = true;
}

// Plain wheel scrolls the lanes; with Ctrl, or over the axis, it zooms; sideways, or with Shift, it pans.
function wheel(event, onAxis) {
  const size = event.deltaMode ? 30 : 1, sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
  if (event.ctrlKey || event.metaKey || event.altKey || (onAxis && event.deltaY)) {
    event.preventDefault();
    zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY * size)) * 0.005), timeAt(event.clientX));
  } else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    event.preventDefault();
    pan((sideways * size) / laneWidth());
  }
}

function stripPointer(event) {
  if (event.type === 'pointerdown') stripCanvas.setPointerCapture(event.pointerId);
  else if (!stripCanvas.hasPointerCapture(event.pointerId)) return;
  const [least, most] = wholeRange(), box = stripCanvas.getBoundingClientRect();
  const at = least + ((event.clientX - box.left) / box.width) * (most - least);
  look(at - span() / 2, at + span() / 2);
}

// The bar before or after the selected one, in its lane.
function stepBar(step) {
  const at = whereIs(state.selected);
  if (!at) return;
  const i = at.i + step;
  if (i < at.layer.from || i >= at.layer.to) return;
  select(refOf(at.layer, i));
  const [a, b] = timesOf(state.selected);
  if (b < state.a || a > state.b) look(a - span() / 2, a + span() / 2);
}

const KEYS = {
  ArrowLeft: event => pan(event.shiftKey ? -0.8 : -0.2), ArrowRight: event => pan(event.shiftKey ? 0.8 : 0.2),
  a: () => pan(-0.2), d: () => pan(0.2), w: () => zoom(0.5), s: () => zoom(2),
  '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => look(...wholeRange()),
  '/': () => { byId('search').focus(); byId('search').select(); },
  f: () => stepFinding(1), F: () => stepFinding(-1), '[': () => stepBar(-1), ']': () => stepBar(1),
  z: () => { const t = timesOf(state.selected); if (t) lookAt(...t); },
  g: () => showGroup(-1, true), c: () => toggleCompact(), u: () => toggleZone(), t: () => toggleTheme(), '?': () => byId('help').showModal(),
  Escape: () => { if (state.selected) select(''); else if (state.filter || state.owner >= 0) { state.filter = ''; state.owner = -1; rebuild(); } },
};

function keys(event) {
  const typing = event.target.closest('input, select, textarea, dialog');
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key](event);
}
