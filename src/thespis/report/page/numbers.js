"use strict"; // These scripts are concatenated into one in the page.
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

// --- scales -------------------------------------------------------------------------------

function steps(low, high, count) { // round numbers within a range
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = power * ([1, 2, 2.5, 5, 10].find(n => n * power >= raw) || 10), found = [];
  for (let x = Math.ceil(low / step - 1e-9); x * step <= high + 1e-9 * step; x++) found.push(+(x * step).toPrecision(12));
  return found;
}

function decades(low, high, count) { // round logarithms within a range of them
  const found = [];
  for (let e = Math.floor(low); e <= Math.ceil(high); e++) for (const m of [1, 2, 5]) {
    const x = e + Math.log10(m);
    if (x >= low - 1e-9 && x <= high + 1e-9) found.push(x);
  }
  return found.length > count + 2 ? found.filter(x => Math.abs(x - Math.round(x)) < 1e-6) : found;
}

function logarithms(low, high, count) { // round numbers between two logarithms, evenly spread if these are close
  const found = decades(low, high, count).map(x => +(10 ** x).toPrecision(12));
  return found.length > 2 ? found : steps(10 ** low, 10 ** high, count);
}

// Scales of an axis: the transformation, its inverse, and the ticks.
const SCALES = {
  linear: { to: y => y, back: y => y, ticks: steps },
  log: { to: Math.log10, back: y => 10 ** y, ticks: logarithms },
  gamma: { to: y => -Math.log10(1 - y), ticks: (low, high, count) => {
    const found = decades(-high, -low, count).map(x => 1 - 10 ** x).reverse();
    return found.length > 1 ? found : steps(1 - 10 ** -low, 1 - 10 ** -high, count);
  } },
};

function symmetric(values) { // logarithmic on both sides of 0, which has no logarithm, and even near it
  const sizes = values.map(Math.abs).filter(x => x > 0).sort((a, b) => a - b), largest = sizes[sizes.length - 1] ?? 1;
  const unit = 10 ** Math.floor(Math.log10(Math.max(sizes[Math.floor(0.05 * sizes.length)] ?? 1, 1e-4 * largest)));
  const to = y => Math.sign(y) * Math.log10(1 + Math.abs(y) / unit), back = z => Math.sign(z) * unit * (10 ** Math.abs(z) - 1);
  const ticks = (low, high, count) => {
    const found = [0];
    for (let size = unit; size <= 10 * largest; size *= 10) for (const m of [1, 2, 5]) found.push(m * size, -m * size);
    const inside = found.filter(y => to(y) >= low && to(y) <= high).sort((a, b) => a - b);
    if (inside.length < 3) return steps(back(low), back(high), count);
    return inside.length > count + 2 ? inside.filter(y => !y || Number.isInteger(+Math.log10(Math.abs(y) / unit).toFixed(6))) : inside;
  };
  return { to, back, ticks };
}

// --- statistics ---------------------------------------------------------------------------

function smoothed(y, weight) { // an exponential moving average, which restarts after a gap
  const found = new Float32Array(y.length);
  for (let i = 0, sum = 0, mass = 0; i < y.length; i++) {
    if (Number.isFinite(y[i])) {
      sum = weight * sum + (1 - weight) * y[i];
      mass = weight * mass + 1 - weight;
      found[i] = sum / mass;
    } else [found[i], sum, mass] = [NaN, 0, 0];
  }
  return found;
}

function nearest(x, value, before) { // the index of the nearest value, or of the last one before
  let low = 0, high = x.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= value) low = middle; else high = middle;
  }
  return before ? (x[high] <= value ? high : low) : value - x[low] < x[high] - value ? low : high;
}

function between(line, value) { // the value of a line at any x
  const i = nearest(line.x, value, true), j = Math.min(i + 1, line.x.length - 1), width = line.x[j] - line.x[i];
  return width > 0 ? line.y[i] + (line.y[j] - line.y[i]) * (value - line.x[i]) / width : line.y[i];
}

const mean = values => values.reduce((sum, x) => sum + x, 0) / values.length;
function iqm(values) { // as thespis.report.statistics
  const n = values.length, sorted = [...values].sort((a, b) => a - b);
  return sorted.reduce((sum, x, i) => sum + x * Math.max(0, Math.min(i + 1, 0.75 * n) - Math.max(i, 0.25 * n)), 0) / (0.5 * n);
}

function combine(lines, { iqm: robust, tuned }) { // the statistic of some lines, with an interval if there are two seeds or more
  const start = Math.max(...lines.map(line => line.x[0])), end = Math.min(...lines.map(line => line.x[line.x.length - 1]));
  let x = [...new Set(lines.flatMap(line => [...line.x]))].filter(x => x >= start && x <= end).sort((a, b) => a - b);
  if (x.length > 250) x = Array.from({ length: 250 }, (_, i) => x[Math.round(i * (x.length - 1) / 249)]);
  const values = x.map(at => lines.map(line => between(line, at))), statistic = robust ? iqm : mean;
  const found = { x: Float64Array.from(x), y: Float32Array.from(values, statistic), low: null, high: null };
  if (!robust || tuned || lines.length < 2) return found;
  let state = 1; // of a random number generator, so that the same runs have the same interval
  const draw = n => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return Math.floor(state / 2 ** 32 * n); };
  const draws = Array.from({ length: 400 }, () => lines.map(() => draw(lines.length)));
  const ends = values.map(seeds => {
    const again = draws.map(drawn => iqm(drawn.map(i => seeds[i]))).sort((a, b) => a - b);
    return [again[10], again[389]];
  });
  return { ...found, low: Float32Array.from(ends, pair => pair[0]), high: Float32Array.from(ends, pair => pair[1]) };
}
