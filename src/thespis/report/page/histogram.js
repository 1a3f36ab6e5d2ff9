// --- histograms over time -------------------------------------------------------------------

class Spread extends Chart { // a column per range of steps and a row per bin, darker the more values it has
  constructor(spec) {
    super(spec, "small");
    followers.push(() => { this.figure.hidden = !shown(spec); });
    this.figure.hidden = !shown(spec);
  }

  get counted() { // edges, steps, and the share of every bin in its column
    if (!this.shares) {
      const { edges, steps, counts } = this.spec.histogram, bins = edges.length - 1, all = array(counts);
      const total = Array.from({ length: all.length / bins }, (_, i) => mean(all.slice(i * bins, (i + 1) * bins)) * bins);
      this.shares = { edges, steps: array(steps), counts: all, bins, total, share: all.map((n, i) => n / (total[Math.floor(i / bins)] || 1)) };
      this.shares.most = this.shares.share.reduce((a, b) => Math.max(a, b), 0) || 1;
    }
    return this.shares;
  }

  get lines() { return []; }

  get empty() { return false; }

  get end() { return this.counted.steps[this.counted.steps.length - 1] || 1; }

  get start() { return this.along === SCALES.log ? this.counted.steps.find(x => x > 0) / 2 : 0; }

  describe() {
    const { edges, share, bins } = this.counted, last = share.slice(-bins), peak = last.indexOf(Math.max(...last));
    return `Histogram of ${this.spec.title} over steps: in the end most values are between ${number(edges[peak])} and ${number(edges[peak + 1])}. Arrow keys move through it.`;
  }

  content() {
    const { edges, steps, share, bins, most } = this.counted, levels = 16;
    const row = (this.floor - this.pad.top) / bins, edge = i => this.floor - row * i;
    this.bin = y => Math.max(0, Math.min(bins - 1, Math.floor((this.floor - y) / row)));
    this.box = (column, bin) => {
      const [a, b] = [steps[column], steps[column + 1]].map(x => this.x(Math.max(x, this.start)));
      return { x: a, y: edge(bin + 1), width: Math.max(0.5, b - a), height: row };
    };
    const shades = Array.from({ length: levels + 1 }, () => "");
    for (let i = 0; i < share.length; i++) {
      const level = Math.ceil(levels * share[i] / most), { x, y, width, height } = this.box(Math.floor(i / bins), i % bins);
      if (level) shades[level] += `M${x.toFixed(1)} ${y.toFixed(1)}h${(width + 0.3).toFixed(1)}v${(height + 0.3).toFixed(1)}h${(-width - 0.3).toFixed(1)}z`;
    }
    shades.forEach((d, level) => d && this.ink.append(s("path", {
      d, style: `fill: color-mix(in oklab, ${colour(this.spec.colour)} ${Math.round(100 * level / levels)}%, var(--sheet))`,
    })));
    let before = Infinity;
    edges.forEach((value, i) => {
      if (before - edge(i) < 15) return;
      before = edge(i);
      this.svg.append(s("text", { class: "tick-y", x: this.pad.left - 8, y: edge(i) + 4, "text-anchor": "end" }, short(value)));
    });
  }

  stops() { return [...this.counted.steps.slice(1)]; }

  read(x, y) {
    const { edges, steps, counts, share, bins, total } = this.counted;
    const column = Math.max(0, Math.min(steps.length - 2, steps.findIndex((step, i) => i && step >= this.back(x) * (1 - 1e-9)) - 1));
    const mine = [...share.slice(column * bins, (column + 1) * bins)];
    const bin = y == null ? mine.indexOf(Math.max(...mine)) : this.bin(y), place = this.box(column, bin);
    this.over.replaceChildren(s("rect", { ...place, y: this.pad.top, height: this.floor - this.pad.top, class: "choice" }),
      s("rect", { ...place, style: "fill: none; stroke: var(--ink); stroke-width: 1.5" }));
    this.say(place.x + place.width / 2, [
      h("i", {}, `${whole(steps[column])} to ${whole(steps[column + 1])} steps`),
      h("div", {}, `${this.spec.y} from ${number(edges[bin])} to ${number(edges[bin + 1])}`),
      h("div", {}, h("b", {}, `${(100 * mine[bin]).toFixed(1)} %`), h("i", {}, ` ${whole(counts[column * bins + bin])} of ${whole(total[column])}`)),
    ]);
  }
}
