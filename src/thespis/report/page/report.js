"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);

// --- numbers ------------------------------------------------------------------------------

const decoded = new Map();
function array(place) { // an array that was packed as text
  if (!decoded.has(place)) {
    const text = data.numbers[place];
    const bytes = Uint8Array.from(atob(text.slice(1)), c => c.charCodeAt(0));
    decoded.set(place, text[0] === "8" ? new Float64Array(bytes.buffer) : new Float32Array(bytes.buffer));
  }
  return decoded.get(place);
}

const minus = text => text.replace(/-/g, "\u2212");
function short(x) {
  const size = Math.abs(x), [unit, letter] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([unit]) => size >= Math.max(unit, 1e4)) || [1, ""];
  return minus(size && size < 1e-3 ? String(+x.toPrecision(3)).includes("e") ? String(+x.toPrecision(3)) : (+x.toPrecision(3)).toExponential()
    : +(x / unit).toPrecision(4) + letter);
}
const number = x => x == null || !isFinite(x) ? "–" : minus(Math.abs(x) >= 1e7 || (x && Math.abs(x) < 1e-3) ? x.toExponential(3)
  : x.toLocaleString("en", { maximumFractionDigits: Math.abs(x) >= 1000 ? 0 : Math.abs(x) >= 10 ? 1 : 4 }));
const whole = x => x == null ? "–" : Math.round(x).toLocaleString("en");
function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60), two = n => String(n).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${two(Math.round(seconds) % 60)} min` : `${Math.floor(minutes / 60)}:${two(minutes % 60)} h`;
}

function steps(low, high, count) { // round numbers within a range
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = power * ([1, 2, 2.5, 5, 10].find(n => n * power >= raw) || 10), found = [];
  for (let x = Math.ceil(low / step - 1e-9); x * step <= high + 1e-9 * step; x++) found.push(+(x * step).toPrecision(12));
  return found;
}

// How values are laid out along y: forwards, backwards, and where the rules are.
const SCALES = {
  linear: { to: y => y, ticks: steps },
  log: { to: Math.log10, ticks: (low, high, count) => decades(low, high, count).map(x => 10 ** x) },
  gamma: { to: y => -Math.log10(1 - y), ticks: (low, high, count) => decades(-high, -low, count).map(x => 1 - 10 ** x) },
};
function decades(low, high, count) {
  const found = [];
  for (let e = Math.floor(low); e <= Math.ceil(high); e++) for (const m of [1, 2, 5]) {
    const x = e + Math.log10(m);
    if (x >= low - 1e-9 && x <= high + 1e-9) found.push(x);
  }
  return found.length > count + 2 ? found.filter(x => Math.abs(x - Math.round(x)) < 1e-6) : found;
}

// --- what is remembered, also when a live page loads itself again ---------------------------

const place = "thespis " + location.pathname + " " + data.title;
const view = { axis: "steps", zoom: null, hidden: [], live: true };
try { Object.assign(view, JSON.parse(sessionStorage.getItem(place) || "{}")); } catch {}
function remember() { try { sessionStorage.setItem(place, JSON.stringify(view)); } catch {} }

// --- elements -----------------------------------------------------------------------------

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "colour") element.style.setProperty("--colour", value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child != null && child !== false));
  return element;
}
const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const colour = index => index < 0 ? "var(--other)" : `var(--c${index % 7})`;
const dashes = index => [null, "7 4", "2 4", "8 3 2 3"][Math.floor(Math.max(0, index) / 7) % 4];

// --- charts -------------------------------------------------------------------------------

const charts = [];
const drawn = new IntersectionObserver(entries => {
  for (const entry of entries) {
    entry.target.chart.seen = entry.isIntersecting;
    if (entry.isIntersecting) entry.target.chart.draw();
  }
}, { rootMargin: "300px" });
const sized = new ResizeObserver(entries => entries.forEach(entry => entry.target.chart.changed()));

function zoom(range) {
  view.zoom = range;
  remember();
  charts.forEach(chart => chart.changed());
  document.getElementById("reset").hidden = !range;
}

class Chart {
  constructor(spec, size) {
    this.spec = spec;
    this.fixed = !!spec.tree || spec.series.every(line => !line.by.time); // has no axis of time
    this.svg = s("svg", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.plot = h("div", {
      class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": this.describe(),
      onpointermove: event => this.move(event), onpointerdown: event => this.press(event),
      onpointerup: event => this.release(event), onpointercancel: () => this.leave(), onpointerleave: () => this.leave(),
      ondblclick: () => zoom(null), onkeydown: event => this.key(event), onblur: () => this.leave(),
    }, this.svg, this.tip);
    this.figure = h("figure", { class: `chart ${size}`, id: `chart-${spec.id}` },
      h("figcaption", {}, spec.title, spec.note && h("small", {}, spec.note),
        h("span", { class: "zoom" },
          h("button", { type: "button", title: "Zoom in (+)", "aria-label": "Zoom in", onclick: () => this.scale(0.5) }, "+"),
          h("button", { type: "button", title: "Zoom out (−)", "aria-label": "Zoom out", onclick: () => this.scale(2) }, "−"))),
      size === "big" && this.legend(), this.plot);
    this.plot.chart = this;
    charts.push(this);
    drawn.observe(this.plot);
    sized.observe(this.plot);
  }

  legend() {
    const groups = [...new Map((this.spec.series || []).map(line => [line.group, line])).values()];
    if (this.spec.tree || (groups.length < 2 && groups[0]?.members < 2)) return null;
    const count = line => line.members > 1 ? ` (${line.members} seeds)` : "";
    return h("div", { class: "legend" }, groups.map(line => {
      const bold = this.spec.series.find(other => other.group === line.group && other.bold) || line;
      return h("button", {
        type: "button", colour: colour(line.colour), "aria-pressed": String(!view.hidden.includes(line.group)),
        title: "Show or hide", onclick: event => {
          const off = view.hidden.includes(line.group);
          view.hidden = off ? view.hidden.filter(group => group !== line.group) : [...view.hidden, line.group];
          remember();
          event.currentTarget.setAttribute("aria-pressed", String(off));
          charts.forEach(chart => chart.changed());
        },
      }, line.group + count(bold));
    }));
  }

  describe() {
    if (this.spec.tree) return `Family tree of ${this.spec.tree.members} members. Arrow keys move through it.`;
    const told = this.spec.series.filter(line => line.bold).map(line => {
      const y = array(Object.values(line.by)[0].y);
      return `${line.name} goes from ${number(y[0])} to ${number(y[y.length - 1])}`;
    });
    return `${this.spec.title}: ${told.join("; ")}. Arrow keys read values, plus and minus zoom, Escape shows all.`;
  }

  get axis() { return this.fixed ? "steps" : view.axis; }

  get lines() { // of this axis that are not hidden, with their numbers
    return this.spec.series.filter(line => line.by[this.axis] && !view.hidden.includes(line.group)).map(line => {
      const { x, y, low, high } = line.by[this.axis];
      return { ...line, x: array(x), y: array(y), low: low == null ? null : array(low), high: high == null ? null : array(high) };
    });
  }

  get end() {
    if (this.spec.tree) return this.spec.tree.edges[this.spec.tree.edges.length - 1];
    return Math.max(1e-9, ...this.lines.map(line => line.x[line.x.length - 1]));
  }

  get range() {
    const zoomed = view.zoom && view.zoom.axis === this.axis;
    const [from, to] = zoomed ? view.zoom.range : [0, this.end];
    return to > from ? [from, to] : [from, from + 1];
  }

  changed() { this.stale = true; if (this.seen) this.draw(); }

  draw() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (!width || (!this.stale && this.width === width)) return;
    Object.assign(this, { width, stale: false });
    const big = height > 250;
    this.pad = { left: big ? 58 : 50, right: 14, top: 10, bottom: big ? 38 : 24 };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    const [x0, x1] = this.range, { left, right, top, bottom } = this.pad;
    this.x = value => left + (value - x0) / (x1 - x0) * (width - left - right);
    this.back = pixel => x0 + (pixel - left) / (width - left - right) * (x1 - x0);
    this.floor = height - bottom;
    const clip = "clip" + charts.indexOf(this);
    this.ink = s("g", { "clip-path": `url(#${clip})` });
    this.over = s("g");
    this.svg.append(s("defs", {}, s("clipPath", { id: clip },
      s("rect", { x: left - 1, y: 0, width: Math.max(0, width - left - right + 8), height: this.floor + 4 }))));
    this.below(big);
    this.content(height, big);
    this.svg.append(this.ink, this.over);
  }

  below(big) { // the x axis
    const [x0, x1] = this.range, { left, right } = this.pad;
    const time = this.axis === "time", unit = !time ? 1 : x1 > 7200 ? 3600 : x1 > 180 ? 60 : 1;
    const count = Math.max(2, Math.floor((this.width - left - right) / (big ? 110 : 75)));
    this.svg.append(s("line", { class: "axis", x1: left, x2: this.width - right, y1: this.floor, y2: this.floor }));
    for (const tick of steps(x0 / unit, x1 / unit, count)) {
      const text = time ? String(+tick.toPrecision(6)) : short(tick);
      this.svg.append(s("text", { class: "tick-x", x: this.x(tick * unit), y: this.floor + 17, "text-anchor": "middle" }, text));
    }
    const name = time ? { 1: "seconds", 60: "minutes", 3600: "hours" }[unit] : "environment steps";
    if (big) this.svg.append(s("text", { x: this.width - right, y: this.floor + 34, "text-anchor": "end" }, name));
  }

  content(height, big) {
    const lines = this.lines, scale = SCALES[this.spec.scale || "linear"], [x0, x1] = this.range;
    const values = [];
    for (const line of lines) {
      for (const column of [line.y, line.low, line.high]) {
        if (!column) continue;
        for (let i = 0; i < column.length; i++) {
          const inside = line.x[i] >= x0 && line.x[i] <= x1 || line.x[i] < x0 && line.x[i + 1] > x1;
          const y = scale.to(column[i]);
          if (inside && Number.isFinite(y)) values.push(y);
        }
      }
    }
    if (!values.length) {
      this.svg.append(s("text", { x: this.width / 2, y: height / 2, "text-anchor": "middle" }, "nothing here"));
      this.y = () => 0;
      return;
    }
    values.sort((a, b) => a - b);
    let low = values[0], high = values[values.length - 1];
    if (this.spec.floor) { // what failed shall not squeeze the rest
      const usual = values[Math.floor(0.05 * values.length)];
      low = Math.max(low, usual - 0.5 * (high - usual));
    }
    const margin = 0.06 * (high - low || Math.abs(high) || 1);
    low -= margin; high += margin;
    const { top, left, right } = this.pad;
    this.y = value => this.floor - (scale.to(value) - low) / (high - low) * (this.floor - top);
    for (const tick of scale.ticks(low, high, big ? 6 : 4)) {
      const y = this.y(tick);
      if (y < top - 4 || y > this.floor + 1) continue;
      this.svg.append(
        s("line", { class: "rule", x1: left, x2: this.width - right, y1: y, y2: y }),
        s("text", { class: "tick-y", x: left - 8, y: y + 4, "text-anchor": "end" }, short(tick)));
    }
    const many = lines.length > 12;
    for (const line of lines) if (line.low) this.ink.append(s("path", { class: "band", colour: colour(line.colour), d: this.area(line) }));
    for (const line of [...lines.filter(line => !line.bold), ...lines.filter(line => line.bold)]) {
      const d = this.path(line);
      if (line.bold && big && lines.length > 1) this.ink.append(s("path", { class: "halo", d }));
      line.mark = s("path", {
        class: `line ${line.bold ? "bold" : line.colour < 0 ? "faint other" : many ? "faint many" : "faint"}`, colour: colour(line.colour), d,
        "stroke-dasharray": line.bold ? dashes(line.colour) : null,
      });
      this.ink.append(line.mark);
      if (line.x.length === 1) this.ink.append(s("circle", { class: "dot", colour: colour(line.colour), cx: this.x(line.x[0]), cy: this.y(line.y[0]), r: line.bold ? 5 : 3 }));
    }
    this.shown = lines;
  }

  path(line) {
    let d = "", pen = false, before;
    for (let i = 0; i < line.x.length; i++) {
      const y = this.y(line.y[i]);
      if (!Number.isFinite(y)) { pen = false; continue; }
      const at = `${this.x(line.x[i]).toFixed(1)} ${y.toFixed(1)}`;
      d += !pen ? `M${at}` : line.step ? `L${this.x(line.x[i]).toFixed(1)} ${before}L${at}` : `L${at}`;
      before = y.toFixed(1);
      pen = true;
    }
    return d;
  }

  area(line) {
    const there = [], back = [];
    for (let i = 0; i < line.x.length; i++) {
      if (!Number.isFinite(line.low[i]) || !Number.isFinite(line.high[i])) continue;
      const x = this.x(line.x[i]).toFixed(1);
      there.push(`${x} ${this.y(line.high[i]).toFixed(1)}`);
      back.push(`${x} ${this.y(line.low[i]).toFixed(1)}`);
    }
    return there.length ? `M${there.join("L")}L${back.reverse().join("L")}Z` : "";
  }

  // --- reading values ---

  move(event) {
    if (!this.x) return;
    const box = this.plot.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    if (this.from != null) {
      const [a, b] = [this.from, x].sort((a, b) => a - b);
      this.over.replaceChildren(s("rect", { class: "choice", x: a, y: this.pad.top, width: b - a, height: this.floor - this.pad.top }));
      this.tip.hidden = true;
    } else this.read(x, y);
  }

  press(event) {
    if (event.button || event.pointerType === "touch") return this.move(event);
    this.from = event.clientX - this.plot.getBoundingClientRect().left;
    this.plot.setPointerCapture(event.pointerId);
  }

  release(event) {
    if (this.from == null) return;
    const to = event.clientX - this.plot.getBoundingClientRect().left, from = this.from;
    this.from = null;
    this.over.replaceChildren();
    if (Math.abs(to - from) < 6) return;
    const range = [this.back(Math.min(from, to)), this.back(Math.max(from, to))];
    zoom({ axis: this.axis, range: [Math.max(0, range[0]), Math.min(this.end, range[1])] });
  }

  leave() {
    if (this.from != null) return;
    this.tip.hidden = true;
    this.over?.replaceChildren();
    this.shown?.forEach(line => line.mark.classList.remove("near"));
  }

  scale(factor) {
    const [x0, x1] = this.range, middle = (x0 + x1) / 2, half = (x1 - x0) / 2 * factor;
    const range = [Math.max(0, middle - half), Math.min(this.end, middle + half)];
    zoom(range[0] <= 0 && range[1] >= this.end ? null : { axis: this.axis, range });
  }

  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move && this.x) {
      const stops = this.stops().filter(x => x >= this.range[0] && x <= this.range[1]);
      if (!stops.length) return;
      this.stop = Math.min(stops.length - 1, Math.max(0, (this.stop ?? (move > 0 ? -1 : stops.length)) + move));
      this.read(this.x(stops[this.stop]), null);
    } else if (event.key === "+" || event.key === "=") this.scale(0.5);
    else if (event.key === "-") this.scale(2);
    else if (event.key === "Escape" || event.key === "0") zoom(null);
    else return;
    event.preventDefault();
  }

  stops() { return [...(this.shown || []).find(line => line.bold)?.x || []]; }

  read(x, y) {
    const shown = this.shown || [];
    if (!shown.length) return;
    const value = this.back(x), found = [];
    for (const line of shown) {
      const i = nearest(line.x, value, line.step);
      if (i < 0 || !Number.isFinite(line.y[i])) continue;
      const at = line.step ? x : this.x(line.x[i]);
      found.push({ line, i, at, y: this.y(line.y[i]) });
      line.mark.classList.remove("near");
    }
    const bold = found.filter(one => one.line.bold);
    const faint = found.filter(one => !one.line.bold).map(one => ({ ...one, far: y == null ? Infinity : Math.abs(one.y - y) }));
    faint.sort((a, b) => a.far - b.far);
    const near = faint.length && faint[0].far < 14 ? faint[0] : null;
    near?.line.mark.classList.add("near");
    const told = [...bold, ...near ? [near] : []];
    if (!told.length) return this.leave();
    const at = told[0].at, step = told[0].line.step ? value : told[0].line.x[told[0].i];
    this.over.replaceChildren(
      s("line", { class: "cursor", x1: at, x2: at, y1: this.pad.top, y2: this.floor }),
      ...told.map(one => s("circle", { class: "dot", colour: colour(one.line.colour), cx: one.at, cy: one.y, r: one.line.bold ? 4.5 : 3.5 })));
    this.say(at, [
      h("i", {}, this.axis === "time" ? duration(step) : `${whole(step)} steps`),
      ...told.map(({ line, i }) => h("div", {}, h("span", { colour: colour(line.colour) }), `${line.name} `, h("b", {}, number(line.y[i])),
        line.low && h("i", {}, ` [${number(line.low[i])}, ${number(line.high[i])}]`))),
    ]);
  }

  say(at, children) {
    this.tip.replaceChildren(...children);
    this.tip.hidden = false;
    const left = at > this.width / 2;
    Object.assign(this.tip.style, { top: "12px", left: left ? "auto" : `${at + 14}px`, right: left ? `${this.width - at + 14}px` : "auto" });
  }
}

function nearest(x, value, before) { // the place of the nearest, or of the last before
  let low = 0, high = x.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= value) low = middle; else high = middle;
  }
  return before ? (x[high] <= value ? high : low) : value - x[low] < x[high] - value ? low : high;
}

class Tree extends Chart { // a row per member, coloured by score; curves are copies
  constructor(spec) {
    super(spec, "big");
    const { members, scores } = spec.tree, known = [...array(scores)].filter(Number.isFinite).sort((a, b) => a - b);
    this.low = known[Math.floor(0.1 * known.length)] ?? 0;
    this.high = known[known.length - 1] ?? 1;
    this.plot.style.height = `${Math.max(150, members * 22 + 60)}px`;
    this.plot.before(h("div", { class: "scale", "data-low": number(this.low), "data-high": number(this.high) }, h("i")));
  }

  get lines() { return []; }

  share(score) { return Math.max(0, Math.min(1, (score - this.low) / (this.high - this.low || 1))); }

  content(height) {
    const { members, edges, line, copies } = this.spec.tree, scores = array(this.spec.tree.scores);
    const row = (this.floor - this.pad.top) / members, [x0, x1] = this.range;
    this.row = member => this.pad.top + row * (member + 0.5);
    for (let m = 0; m < members; m++) {
      this.svg.append(s("text", { x: this.pad.left - 10, y: this.row(m) + 4, "text-anchor": "end" }, String(m)));
      for (let era = 0; era + 1 < edges.length; era++) {
        if (edges[era + 1] < x0 || edges[era] > x1) continue;
        const score = scores[era * members + m], share = Math.round(100 * this.share(score));
        this.ink.append(s("rect", {
          class: "segment", x: this.x(edges[era]).toFixed(1), y: this.row(m) - row * 0.3, height: row * 0.6,
          width: Math.max(0.3, this.x(edges[era + 1]) - this.x(edges[era])).toFixed(1),
          style: `fill: ${Number.isFinite(score) ? `color-mix(in oklab, var(--high) ${share}%, var(--low))` : "var(--grid)"}`,
        }));
      }
    }
    const reach = Math.min(0.02 * (x1 - x0), ...edges.slice(1).map((edge, i) => 0.35 * (edge - edges[i]) || Infinity));
    const bend = (step, from, to) => {
      const [a, b, c] = [step - reach, step, step + reach].map(x => this.x(x).toFixed(1));
      return `L${a} ${this.row(from)}C${b} ${this.row(from)} ${b} ${this.row(to)} ${c} ${this.row(to)}`;
    };
    const all = copies.map(([step, from, to]) => "M" + bend(step, from, to).slice(1)).join("");
    this.ink.append(s("path", { class: "copy", d: all }));
    const rounds = edges.slice(1, -1);
    const track = `M${this.x(0)} ${this.row(line[0])}` + rounds.map((step, i) => bend(step, line[i], line[i + 1])).join("")
      + `L${this.x(this.end)} ${this.row(line[line.length - 1])}`;
    this.ink.append(s("path", { class: "under", d: track }), s("path", { class: "winning", d: track }),
      s("circle", { cx: this.x(this.end), cy: this.row(line[line.length - 1]), r: 5, style: "fill: var(--ink)" }));
  }

  stops() { return this.spec.tree.edges.slice(0, -1).map((edge, i) => (edge + this.spec.tree.edges[i + 1]) / 2); }

  read(x, y) {
    const { members, edges, scores, tuned, line, copies, metric } = this.spec.tree, value = this.back(x);
    const era = Math.max(0, Math.min(edges.length - 2, edges.findLastIndex(edge => edge <= value)));
    const height = (this.floor - this.pad.top) / members;
    const m = y == null ? line[era] : Math.max(0, Math.min(members - 1, Math.floor((y - this.pad.top) / height)));
    const copied = copies.find(([step, , to]) => step === edges[era] && to === m);
    this.over.replaceChildren(s("rect", {
      x: Math.max(this.pad.left, this.x(edges[era])), y: this.row(m) - height * 0.4, height: height * 0.8, rx: 3,
      width: Math.max(1, Math.min(this.width - this.pad.right, this.x(edges[era + 1])) - Math.max(this.pad.left, this.x(edges[era]))),
      style: "fill: none; stroke: var(--accent); stroke-width: 2",
    }));
    this.say(this.x(Math.min(Math.max(value, this.range[0]), this.range[1])), [
      h("b", {}, `member ${m}`), h("i", {}, ` ${whole(edges[era])} to ${whole(edges[era + 1])} steps`),
      copied && h("div", {}, `a copy of member ${copied[1]}`),
      h("div", {}, `${metric} `, h("b", {}, number(array(scores)[era * members + m]))),
      ...Object.entries(tuned).map(([name, place]) => h("div", {}, `${name} `, h("b", {}, number(array(place)[era * members + m])))),
    ].filter(Boolean));
  }
}

// --- sections -----------------------------------------------------------------------------

const runs = data.runs, one = runs.length === 1 ? runs[0] : null;

function table(head, rows, numeric = []) {
  const cell = (tag, content, i) => h(tag, { class: numeric.includes(i) ? "number" : null, scope: tag === "th" ? "col" : null }, content);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": head.join(", ") }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name, i) => cell("th", name, i)))),
    h("tbody", {}, rows.map(row => h("tr", {}, row.map((content, i) => cell("td", content, i)))))));
}

function state(run) { return h("span", { class: `state ${run.state}` }, run.state); }

function card(name, value, more, ...extra) {
  return h("dl", { class: "card" }, h("dt", {}, name), h("dd", {}, value), more && h("dd", {}, more), ...extra);
}

function cards(run) {
  const several = run.members.length > 1, range = run.interval;
  const share = run.steps ? run.step / run.steps : 0;
  const left = run.left == null ? null : `${duration(run.left)} left`;
  return h("div", { class: "cards" },
    card(run.tuned ? "last return of the best member" : several ? "last return, IQM" : "last return", number(run.last),
      range ? `95 % interval ${number(range[0])} to ${number(range[1])}` : run.members.length ? null : "no evaluation yet"),
    card("best return", number(run.best), several ? "of any evaluation of any " + (run.tuned ? "member" : "seed") : "of any evaluation"),
    card("environment steps", whole(run.step), `of ${whole(run.steps)}${left ? ", " + left : ""}`,
      run.state !== "done" && h("progress", { value: share, max: 1, "aria-label": "progress" })),
    card("steps per second", run.fps == null ? "–" : short(Math.round(run.fps)), several ? `of every ${run.tuned ? "member" : "seed"}` : run.updates ? `${whole(run.updates)} updates` : null),
    card("time", duration(run.elapsed), run.compiled == null ? null : `${duration(run.compiled)} of it compiling`));
}

function section(id, title, ...content) { return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...content); }

function overview() {
  const head = ["run", "state", "steps", "last return", "95 % interval", "best", "steps/s", "time", "compiling"];
  return section("runs", "Runs", table(head, runs.map(run => [
    h("span", {}, h("span", { class: "swatch", colour: colour(run.colour) }), `${run.title} `, h("span", { class: "path" }, run.path)), state(run),
    `${short(run.step)} of ${short(run.steps ?? 0)}`, number(run.last), run.interval ? run.interval.map(number).join(" to ") : "–",
    number(run.best), run.fps == null ? "–" : short(Math.round(run.fps)), duration(run.elapsed), duration(run.compiled),
  ]), [2, 3, 4, 5, 6, 7, 8]));
}

function members() {
  const rows = runs.flatMap(run => run.members.map(row => [
    h("span", {}, h("span", { class: "swatch", colour: colour(run.colour) }), one ? row.name : `${run.title}, ${row.name}`),
    number(row.last), number(row.best), whole(row.at)]));
  if (rows.length < 2) return null;
  return h("details", {}, h("summary", {}, one?.tuned ? "Every member" : "Every seed"),
    table([one?.tuned ? "member" : "seed", "last return", "best return", "at step"], rows, [1, 2, 3]));
}

function media(id, title, found, wide) {
  if (!found.length) return null;
  return section(id, title, h("div", { class: `media ${wide ? "wide" : ""}` }, found.map(item => {
    const about = item.inside ? item.name : h("a", { href: item.source }, `${item.name} (${item.megabytes.toFixed(1)} MB, beside this page)`);
    const shown = item.moves
      ? h("video", { src: item.source, controls: true, loop: true, muted: true, playsinline: true, preload: item.inside ? "auto" : "metadata", "aria-label": item.name })
      : h("img", { src: item.source, alt: item.name, loading: "lazy", decoding: "async" });
    return h("figure", {}, shown, h("figcaption", {}, about));
  })));
}

function programs() {
  const names = new Map();
  for (const run of runs) for (const [name, seconds] of Object.entries(run.programs)) names.set(name, Math.max(seconds, names.get(name) ?? 0));
  const shown = [...names.keys()].sort((a, b) => names.get(b) - names.get(a)).filter(name => names.get(name) >= 0.1);
  if (!shown.length) return null;
  const seconds = run => name => run.programs[name] == null ? "–" : `${run.programs[name].toFixed(1)} s`;
  const rows = shown.map(name => [h("code", {}, name), ...runs.map(run => seconds(run)(name))]);
  return section("compiled", "Compiled programs", table(["program", ...(one ? ["seconds"] : runs.map(run => run.path))], rows, runs.map((_, i) => i + 1)));
}

function configuration() {
  const search = h("input", { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" });
  const only = h("button", { type: "button", "aria-pressed": "false" }, "Only differences");
  const bodies = [];
  const names = [...new Set(runs.flatMap(run => Object.keys(run.config)))];
  const tables = names.map(group => {
    const keys = [...new Set(runs.flatMap(run => Object.keys(run.config[group] || {})))];
    const rows = keys.map(key => {
      const values = runs.map(run => run.config[group]?.[key] ?? "–"), differs = new Set(values).size > 1;
      const row = h("tr", { class: differs ? "differs" : null }, h("th", { scope: "row" }, key), values.map(value => h("td", { class: "value" }, value)));
      row.about = { text: `${key} ${values.join(" ")}`.toLowerCase(), differs };
      return row;
    });
    const whole = h("div", {}, h("h3", {}, group), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": group }, h("table", {},
      runs.length > 1 && h("thead", {}, h("tr", {}, h("th", {}, ""), runs.map(run => h("th", {}, run.path.split("/").slice(-2).join("/"))))),
      h("tbody", {}, rows))));
    bodies.push([whole, rows]);
    return whole;
  });
  const sift = () => {
    const wanted = search.value.trim().toLowerCase(), differ = only.getAttribute("aria-pressed") === "true";
    for (const [whole, rows] of bodies) {
      for (const row of rows) row.hidden = !row.about.text.includes(wanted) || (differ && !row.about.differs);
      whole.hidden = rows.every(row => row.hidden);
    }
  };
  search.addEventListener("input", sift);
  only.addEventListener("click", () => { only.setAttribute("aria-pressed", String(only.getAttribute("aria-pressed") !== "true")); sift(); });
  const commands = runs.filter(run => run.command).map(run => {
    const copy = h("button", { type: "button", onclick: async event => {
      try { await navigator.clipboard.writeText(run.command); copy.textContent = "copied"; } catch { getSelection().selectAllChildren(event.target.previousSibling); }
    } }, "Copy");
    return h("div", { class: "command" }, h("code", {}, run.command), copy);
  });
  return section("configuration", "Configuration", ...commands, h("div", { class: "tools" }, search, runs.length > 1 && only), h("div", { class: one ? "columns" : null }, tables));
}

function metrics() {
  const groups = [...new Set(data.panels.map(panel => panel.section))];
  if (!groups.length) return null;
  return section("metrics", "Metrics", ...groups.flatMap(name => [h("h3", {}, name),
    h("div", { class: "grid" }, data.panels.filter(panel => panel.section === name).map(panel => new Chart(panel, "small").figure))]));
}

function theme() {
  const root = document.documentElement, dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = h("button", { type: "button", id: "theme", onclick: () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("thespis-theme", root.dataset.theme); } catch {}
    tell();
  } });
  const tell = () => { button.textContent = dark() ? "☀" : "☾"; button.setAttribute("aria-label", dark() ? "Light colours" : "Dark colours"); button.title = button.getAttribute("aria-label"); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
  return button;
}

function axes() {
  const set = axis => () => {
    Object.assign(view, { axis, zoom: null });
    zoom(null);
    pair.querySelectorAll("button").forEach(button => button.setAttribute("aria-pressed", String(button.dataset.axis === axis)));
  };
  const option = (axis, text) => h("button", { type: "button", "data-axis": axis, "aria-pressed": String(view.axis === axis), onclick: set(axis) }, text);
  const pair = h("div", { class: "pair", role: "group", "aria-label": "Axis of the curves" }, option("steps", "Steps"), option("time", "Time"));
  return pair;
}

function live() {
  if (!data.live) return null;
  const button = h("button", { type: "button", class: "live", "aria-pressed": String(view.live), onclick: () => {
    view.live = !view.live;
    button.setAttribute("aria-pressed", String(view.live));
    remember();
  } }, "Live");
  setInterval(() => {
    const busy = document.hidden || charts.some(chart => chart.from != null || !chart.tip.hidden) || document.activeElement?.tagName === "INPUT"
      || [...document.querySelectorAll("video")].some(video => !video.paused);
    if (view.live && !busy) location.reload();
  }, 1000 * data.live);
  return button;
}

// --- the page -----------------------------------------------------------------------------

const curves = section("curves", "Learning curves",
  ...(data.population ? [new Chart(data.population.members, "big").figure] : data.returns.filter(chart => chart.series.length).map(chart => new Chart(chart, "big").figure)));
if (!curves.querySelector("figure")) curves.append(h("p", { class: "notice" }, "There is no evaluation yet."));
const list = members();
if (list) curves.append(list);
const people = data.population && section("population", "Population", new Tree(data.population.tree).figure,
  data.population.schedules.length ? h("h3", {}, "Hyper-parameters along the winning line, and what the others tried") : null,
  h("div", { class: "grid" }, data.population.schedules.map(chart => new Chart(chart, "small").figure)));
const parts = [!one && overview(), curves, people, media("videos", "Videos", data.videos), media("pictures", "Pictures", data.pictures, true), metrics(), programs(), configuration()].filter(Boolean);
const made = new Date(data.made);

document.getElementById("page").append(
  h("header", { class: "bar" }, h("div", { class: "wrap" },
    h("nav", { "aria-label": "Sections" }, parts.map(part => h("a", { href: `#${part.id}` }, part.querySelector("h2").textContent))),
    h("button", { type: "button", id: "reset", hidden: !view.zoom, onclick: () => zoom(null) }, "Show all"), axes(), live(), theme())),
  h("main", { class: "wrap", id: "main" },
    h("h1", {}, data.title),
    one && h("p", {}, state(one), " ", h("span", { class: "path" }, one.path)),
    ...runs.filter(run => run.error).map(run => h("p", { class: "notice bad", role: "alert" }, `${run.path}: ${run.error}`)),
    one && cards(one), ...parts,
    h("footer", {}, `Thespis ${data.version}, ${made.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" })}. `,
      "Drag over a chart to zoom, double-click or ", h("kbd", {}, "Esc"), " to see all; with a chart in focus ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " read values.")));
document.getElementById("reset").hidden = !view.zoom;
document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
