// --- charts -------------------------------------------------------------------------------

const charts = [];
const drawn = new IntersectionObserver(entries => {
  for (const entry of entries) {
    entry.target.chart.seen = entry.isIntersecting;
    if (entry.isIntersecting) entry.target.chart.draw();
  }
}, { rootMargin: "300px" });
const sized = new ResizeObserver(entries => entries.forEach(entry => entry.target.chart.changed()));
followers.push(() => charts.forEach(chart => chart.changed()));
addEventListener("beforeprint", () => charts.forEach(chart => chart.draw())); // also those not yet scrolled to

class Chart {
  constructor(spec, size) {
    this.spec = spec;
    this.fixed = !spec.series || spec.series.every(line => !line.by.time); // has no axis of time
    this.svg = s("svg", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.plot = h("div", {
      class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": this.describe(),
      onpointermove: event => this.move(event), onpointerdown: event => this.press(event),
      onpointerup: event => this.release(event), onpointercancel: () => this.leave(), onpointerleave: () => this.leave(),
      ondblclick: () => change({ zoom: null }), onkeydown: event => this.key(event), onblur: () => this.leave(),
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
    if (!groups.length || (groups.length < 2 && groups[0].members < 2)) return null;
    const everything = groups.map(line => this.whole(line)).flatMap(keys);
    return h("div", { class: "legend" }, groups.map(this.whole, this).map(line => {
      const count = line.members > 1 ? ` (${line.members} ${line.tuned ? "members" : "seeds"})` : "";
      return pressed(h("button", {
        type: "button", colour: colour(line.colour), title: "Show or hide; with Shift, show this alone", onclick: event => {
          if (event.shiftKey) change({ hidden: [...new Set([...view.hidden, ...everything])].filter(key => !keys(line).includes(key)) });
          else show(keys(line), !shown(line));
        },
      }, line.group + count), () => shown(line));
    }));
  }

  whole(line) { return this.spec.series.find(other => other.group === line.group && other.bold) || line; }

  describe() {
    const summaries = this.spec.series.filter(line => line.bold).map(line => {
      const y = array(Object.values(line.by)[0].y);
      return `${line.name} goes from ${number(y[0])} to ${number(y[y.length - 1])}`;
    });
    return `${this.spec.title}: ${summaries.join("; ")}. Arrow keys read values, plus and minus zoom, Escape shows all.`;
  }

  get axis() { return this.fixed ? "steps" : view.axis; }

  get along() { return view.logX ? SCALES.log : SCALES.linear; } // the scale of x

  get lines() { return this.chosen ??= this.choose(); }

  choose() { // the lines of this axis that are not hidden, with their numbers
    return this.spec.series.filter(line => line.by[this.axis] && shown(line)).map(line => {
      const found = { ...line, ...this.numbers(line) };
      if (!view.smooth || line.step) return found;
      return { ...found, raw: found.y, y: smoothed(found.y, view.smooth) };
    });
  }

  numbers(line) {
    if (line.bold && line.runs?.length > 1 && !keys(line).every(visible)) return this.some(line);
    const { x, y, low, high } = line.by[this.axis];
    return { x: array(x), y: array(y), low: low == null ? null : array(low), high: high == null ? null : array(high) };
  }

  some(line) { // the statistic over the visible runs of a group
    const members = this.spec.series.filter(other => other.group === line.group && !other.bold && other.by[this.axis] && shown(other));
    const key = `${this.axis} ${members.map(member => this.spec.series.indexOf(member))}`;
    this.known ??= new Map();
    if (!this.known.has(key)) this.known.set(key, combine(members.map(member => this.numbers(member)), line));
    return this.known.get(key);
  }

  get empty() { return !this.lines.length; }

  get end() { return Math.max(1e-9, ...this.lines.map(line => line.x[line.x.length - 1] ?? 0)); }

  get start() { // a logarithmic axis starts at the first positive value
    if (this.along !== SCALES.log) return 0;
    const first = Math.min(...this.lines.map(line => line.x.find(x => x > 0) ?? Infinity));
    return Number.isFinite(first) && first < this.end ? first : this.end / 10;
  }

  get range() {
    const zoomed = view.zoom && view.zoom.axis === this.axis, start = this.start;
    const [from, to] = zoomed ? [Math.max(start, view.zoom.range[0]), view.zoom.range[1]] : [start, this.end];
    return to > from ? [from, to] : [from, from * 2 + 1];
  }

  changed() { this.stale = true; this.chosen = null; if (this.seen) this.draw(); }

  draw() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (!width || (!this.stale && this.width === width && this.height === height)) return;
    Object.assign(this, { width, height, stale: false });
    const big = height > 250;
    this.pad = { left: big ? 74 : 64, right: 14, top: 10, bottom: 38 };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    this.figure.classList.toggle("empty", this.empty);
    if (this.empty) {
      this.shown = [];
      this.svg.append(s("text", { x: width / 2, y: 24, "text-anchor": "middle" }, "all of its runs are hidden"));
      return;
    }
    const { left, right, top, bottom } = this.pad, along = this.along, [x0, x1] = this.range.map(along.to);
    this.x = value => left + (along.to(value) - x0) / (x1 - x0) * (width - left - right);
    this.back = pixel => along.back(x0 + (pixel - left) / (width - left - right) * (x1 - x0));
    this.floor = height - bottom;
    const clip = "clip" + charts.indexOf(this);
    this.ink = s("g", { "clip-path": `url(#${clip})` });
    this.over = s("g");
    this.svg.append(s("defs", {}, s("clipPath", { id: clip },
      s("rect", { x: left - 1, y: 0, width: Math.max(0, width - left - right + 8), height: this.floor + 4 }))));
    this.below(big);
    const middle = (top + this.floor) / 2;
    this.svg.append(s("text", { class: "title-y", x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` },
      fitted(this.spec.y || this.spec.title, (this.floor - top) / (big ? 6.3 : 5.7))));
    this.content(height, big);
    this.svg.append(this.ink, this.over);
  }

  below(big) { // the x axis
    const [x0, x1] = this.range, { left, right } = this.pad, along = this.along;
    const time = this.axis === "time", unit = !time ? 1 : x1 > 7200 ? 3600 : x1 > 180 ? 60 : 1;
    const count = Math.max(2, Math.floor((this.width - left - right) / (big && this.width > 500 ? 110 : 75)));
    this.svg.append(s("line", { class: "axis", x1: left, x2: this.width - right, y1: this.floor, y2: this.floor }));
    let before = -Infinity;
    for (const tick of along.ticks(along.to(x0 / unit), along.to(x1 / unit), count)) {
      const text = time ? String(+tick.toPrecision(6)) : short(tick), at = this.x(tick * unit);
      if (at - before < 8 * text.length || at > this.width - right + 2) continue;
      before = at;
      this.svg.append(s("text", { class: "tick-x", x: at, y: this.floor + 16, "text-anchor": "middle" }, text));
    }
    const name = time ? { 1: "seconds", 60: "minutes", 3600: "hours" }[unit] : "environment steps";
    this.svg.append(s("text", { class: "title-x", x: (left + this.width - right) / 2, y: this.floor + 33, "text-anchor": "middle" }, name));
  }

  content(height, big) {
    const lines = this.lines, [x0, x1] = this.range;
    const values = [];
    for (const line of lines) {
      for (const column of [line.y, line.low, line.high, line.bold && line.raw]) {
        if (!column) continue;
        for (let i = 0; i < column.length; i++) {
          const inside = line.x[i] >= x0 && line.x[i] <= x1 || line.x[i] < x0 && line.x[i + 1] > x1;
          if (inside && Number.isFinite(column[i])) values.push(column[i]);
        }
      }
    }
    values.sort((a, b) => a - b);
    const scale = this.spec.scale && this.spec.scale !== "linear" ? SCALES[this.spec.scale]
      : !view.logY ? SCALES.linear : values[0] > 0 ? SCALES.log : symmetric(values);
    const laid = values.map(scale.to).filter(Number.isFinite);
    this.shown = lines.filter(() => laid.length);
    if (!laid.length) {
      this.svg.append(s("text", { x: this.width / 2, y: height / 2, "text-anchor": "middle" }, "nothing here"));
      this.y = () => 0;
      return;
    }
    let low = laid[0], high = laid[laid.length - 1];
    if (this.spec.floor) { // failed runs must not compress the others
      const usual = laid[Math.floor(0.05 * laid.length)];
      low = Math.max(low, usual - 0.5 * (high - usual));
    }
    const margin = 0.06 * (high - low || Math.abs(high) || 1);
    low -= margin; high += margin;
    const { top, left, right } = this.pad;
    this.y = value => this.floor - (scale.to(value) - low) / (high - low) * (this.floor - top);
    let before = Infinity;
    for (const tick of scale.ticks(low, high, big ? 6 : 4)) {
      const y = this.y(tick);
      if (y < top - 4 || y > this.floor + 1 || before - y < 13) continue;
      before = y;
      this.svg.append(
        s("line", { class: "rule", x1: left, x2: this.width - right, y1: y, y2: y }),
        s("text", { class: "tick-y", x: left - 8, y: y + 4, "text-anchor": "end" }, short(tick)));
    }
    const many = lines.length > 12, mark = (line, kind, more) => s("path", { class: kind, colour: colour(line.colour), d: this.path(line), ...more });
    for (const line of lines) if (line.low) this.ink.append(s("path", { class: "band", colour: colour(line.colour), d: this.area(line) }));
    for (const line of lines) if (line.raw && line.bold) this.ink.append(mark({ ...line, y: line.raw }, "line raw"));
    for (const line of [...lines.filter(line => !line.bold), ...lines.filter(line => line.bold)]) {
      if (line.bold && big && lines.length > 1) this.ink.append(mark(line, "halo"));
      line.mark = mark(line, `line ${line.bold ? "bold" : line.colour < 0 ? "faint other" : many ? "faint many" : "faint"}`,
        { "stroke-dasharray": line.bold ? dashes(line.colour) : null });
      this.ink.append(line.mark);
      if (line.x.length === 1) this.ink.append(s("circle", { class: "dot", colour: colour(line.colour), cx: this.x(line.x[0]), cy: this.y(line.y[0]), r: line.bold ? 5 : 3 }));
    }
  }

  path(line) {
    let d = "", pen = false, before;
    for (let i = 0; i < line.x.length; i++) {
      const x = this.x(line.x[i]), y = this.y(line.y[i]);
      if (!Number.isFinite(x) || !Number.isFinite(y)) { pen = false; continue; }
      const at = `${x.toFixed(1)} ${y.toFixed(1)}`;
      d += !pen ? `M${at}` : line.step ? `L${x.toFixed(1)} ${before}L${at}` : `L${at}`;
      before = y.toFixed(1);
      pen = true;
    }
    return d;
  }

  area(line) {
    const there = [], back = [];
    for (let i = 0; i < line.x.length; i++) {
      const x = this.x(line.x[i]), low = this.y(line.low[i]), high = this.y(line.high[i]);
      if (![x, low, high].every(Number.isFinite)) continue;
      there.push(`${x.toFixed(1)} ${high.toFixed(1)}`);
      back.push(`${x.toFixed(1)} ${low.toFixed(1)}`);
    }
    return there.length ? `M${there.join("L")}L${back.reverse().join("L")}Z` : "";
  }

  // --- zooming ---

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
    change({ zoom: { axis: this.axis, range: [Math.max(0, range[0]), Math.min(this.end, range[1])] } });
  }

  scale(factor) {
    const { left, right } = this.pad, middle = (left + this.width - right) / 2, half = (this.width - left - right) / 2 * factor;
    const range = [Math.max(this.start, this.back(middle - half)), Math.min(this.end, this.back(middle + half))];
    change({ zoom: range[0] <= this.start && range[1] >= this.end ? null : { axis: this.axis, range } });
  }

  // --- reading values ---

  move(event) {
    if (!this.x || this.empty) return;
    const box = this.plot.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    if (this.from != null) {
      const [a, b] = [this.from, x].sort((a, b) => a - b);
      this.over.replaceChildren(s("rect", { class: "choice", x: a, y: this.pad.top, width: b - a, height: this.floor - this.pad.top }));
      this.tip.hidden = true;
    } else this.read(x, y);
  }

  leave() {
    if (this.from != null) return;
    this.tip.hidden = true;
    this.over?.replaceChildren();
    this.shown?.forEach(line => line.mark?.classList.remove("near"));
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
    else if (event.key === "Escape" || event.key === "0") change({ zoom: null });
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
    const marked = [...bold.slice(0, 12), ...near ? [near] : []];
    if (!marked.length) return this.leave();
    const at = marked[0].at, step = marked[0].line.step ? value : marked[0].line.x[marked[0].i];
    this.over.replaceChildren(
      s("line", { class: "cursor", x1: at, x2: at, y1: this.pad.top, y2: this.floor }),
      ...marked.map(one => s("circle", { class: "dot", colour: colour(one.line.colour), cx: one.at, cy: one.y, r: one.line.bold ? 4.5 : 3.5 })));
    this.say(at, [
      h("i", {}, this.axis === "time" ? duration(step) : `${whole(step)} steps`),
      ...marked.map(({ line, i }) => h("div", {}, h("span", { colour: colour(line.colour) }), `${line.name} `, h("b", {}, number(line.y[i])),
        line.raw && h("i", {}, ` smoothed, ${number(line.raw[i])} as logged`), line.low && h("i", {}, ` [${number(line.low[i])}, ${number(line.high[i])}]`))),
    ]);
  }

  say(at, children) {
    this.tip.replaceChildren(...children);
    this.tip.hidden = false;
    const left = at > this.width / 2;
    Object.assign(this.tip.style, { top: "12px", left: left ? "auto" : `${at + 14}px`, right: left ? `${this.width - at + 14}px` : "auto" });
  }
}

const fitted = (text, letters) => text.length <= letters ? text : text.slice(0, Math.max(1, letters - 1)) + "…";
