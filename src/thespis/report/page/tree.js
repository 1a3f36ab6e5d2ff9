// --- family trees --------------------------------------------------------------------------

class Tree extends Chart { // a row per member, coloured by score; curves are copies
  constructor(spec) {
    super(spec, "big");
    const { members, scores } = spec.tree, known = [...array(scores)].filter(Number.isFinite).sort((a, b) => a - b);
    this.low = known[Math.floor(0.1 * known.length)] ?? 0;
    this.high = known[known.length - 1] ?? 1;
    this.plot.style.height = `${Math.max(150, members * 22 + 68)}px`;
    this.plot.before(h("div", { class: "scale", "data-low": number(this.low), "data-high": number(this.high) }, h("i")));
  }

  get lines() { return []; }

  get empty() { return false; }

  get end() { return this.spec.tree.edges[this.spec.tree.edges.length - 1]; }

  get along() { return SCALES.linear; }

  describe() { return `Family tree of ${this.spec.tree.members} members. Arrow keys move through it.`; }

  share(score) { return Math.max(0, Math.min(1, (score - this.low) / (this.high - this.low || 1))); }

  content(height) {
    const { members, edges, line, copies } = this.spec.tree, scores = array(this.spec.tree.scores);
    const row = (this.floor - this.pad.top) / members, [x0, x1] = this.range;
    this.row = member => this.pad.top + row * (member + 0.5);
    for (let m = 0; m < members; m++) {
      this.svg.append(s("text", { x: this.pad.left - 8, y: this.row(m) + 4, "text-anchor": "end" }, String(m)));
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
