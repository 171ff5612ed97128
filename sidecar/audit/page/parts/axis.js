// What lies over all lanes (marks, the selection), the axis above them, and the strip that shows the whole range.

const STRIP = 44, AXIS = 40;

function paintMarks(inView, top, height) {
  const lane = inView.find(l => l.marks);
  let free = -Infinity;
  for (const [ms, words, fault] of data.marks) {
    const x = X(ms);
    if (x < -200 || x > laneWidth()) continue;
    pen.fillStyle = pen.strokeStyle = fault ? colours.fault : colours.soft;
    pen.lineWidth = fault ? 1.5 : 1;
    pen.setLineDash(fault ? [] : [4, 4]);
    pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height); pen.stroke();
    pen.setLineDash([]);
    if (!lane || x < free) continue;
    pen.font = `${fault ? 600 : 400} 11px system-ui, sans-serif`;
    pen.textBaseline = 'middle';
    const wide = pen.measureText(words).width, from = Math.max(Math.min(x + 4, laneWidth() - wide - 4), 2), y = lane.y - top + lane.height / 2;
    if (from < free) continue;
    pen.fillText(words, from, y);
    free = from + wide + 6;
  }
}

// The time span of what is selected, through all lanes; and a frame round the bar itself.
function paintSelection(inView, top, height) {
  const [a, b] = timesOf(state.selected) || [];
  if (a === undefined) return;
  pen.fillStyle = colours.accent;
  pen.globalAlpha = X(b) - X(a) < 2 ? 0.6 : 0.1;
  pen.fillRect(X(a) - 1, 0, Math.max(X(b) - X(a), 2), height);
  pen.globalAlpha = 1;
  Object.assign(pen, { strokeStyle: colours.accent, lineWidth: 2.5 });
  for (const hit of hits) {
    if (hit.ref === state.selected && hit.many === 1) pen.strokeRect(hit.x - 1, hit.y - 1, hit.w + 2, hit.h + 2);
  }
}

function paintAxis(grid) {
  const wide = axisCanvas.clientWidth, p = axisPen;
  fit(axisCanvas, p, wide, AXIS);
  p.textBaseline = 'middle';
  p.font = '600 11px system-ui, sans-serif';
  p.fillStyle = colours.ink;
  let free = -Infinity;
  const over = eras(state.a, state.b, wide);
  over.forEach((era, n) => {
    const x = Math.max(X(era.at), 0), next = n + 1 < over.length ? X(over[n + 1].at) : wide;
    const words = p.measureText(era.label).width;
    if (x < free || words + 8 > next - x) return;
    p.fillText(era.label, x + 4, 11);
    if (X(era.at) > 1) p.fillRect(Math.round(x), 3, 1, 14);
    free = x + words + 12;
  });
  p.font = '11px system-ui, sans-serif';
  p.fillStyle = colours.soft;
  for (const t of grid) {
    p.fillRect(Math.round(X(t.at)), AXIS - 6, 1, 6);
    if (X(t.at) + p.measureText(t.label).width < wide - 2) p.fillText(t.label, X(t.at) + 3, 29);
  }
}

// The strip shows all there is: rebalances below, findings above, and the part in view.
function stripPicture(wide) {
  const picture = element('canvas', { width: 1, height: 1 }), p = picture.getContext('2d');
  fit(picture, p, wide, STRIP);
  const [least, most] = wholeRange(), at = ms => ((ms - least) / (most - least)) * wide;
  const bins = new Float64Array(Math.ceil(wide / 3) + 1);
  for (let n = 0; n < data.groups.length; n++) {
    if (state.group < 0 || state.group === n) for (const t of group(n).epochs.a) bins[Math.max(Math.floor(at(t) / 3), 0)]++;
  }
  const highest = Math.max(...bins, 1);
  p.fillStyle = colours.busy;
  bins.forEach((n, i) => { if (n) p.fillRect(i * 3, STRIP - 2 - Math.max((n / highest) * 22, 3), 2, Math.max((n / highest) * 22, 3)); });
  for (let grave = NOTE; grave >= FAULT; grave--) {
    for (let i = 0; i < findings.t.length; i++) if (findings.grave[i] === grave && concerns(i)) glyph(p, grave, at(findings.t[i]), 9, 3.5);
  }
  return picture;
}

function paintStrip() {
  const wide = stripCanvas.clientWidth, [least, most] = wholeRange();
  fit(stripCanvas, stripPen, wide, STRIP);
  const key = `${wide} ${state.group}`;
  if (!strip || strip.key !== key) strip = { key, picture: stripPicture(wide) };
  stripPen.drawImage(strip.picture, 0, 0, wide, STRIP);
  const x = ((state.a - least) / (most - least)) * wide, w = Math.max((span() / (most - least)) * wide, 3);
  stripPen.fillStyle = colours.page;
  stripPen.globalAlpha = 0.65;
  stripPen.fillRect(0, 0, x, STRIP);
  stripPen.fillRect(x + w, 0, wide, STRIP);
  stripPen.globalAlpha = 1;
  Object.assign(stripPen, { strokeStyle: colours.accent, lineWidth: 2 });
  stripPen.strokeRect(x + 1, 1, w - 2, STRIP - 2);
}

// Whether a finding belongs to what is shown: all, or a group and its state partition.
function concerns(i) {
  if (state.group < 0) return true;
  return findings.group[i] === state.group || (findings.group[i] < 0 && findings.partition[i] === data.groups[state.group].sp);
}
