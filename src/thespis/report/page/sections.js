// --- sections -----------------------------------------------------------------------------

function section(id, title, ...content) { return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...content); }

function scrolling(label, ...content) { return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", {}, ...content)); }

function table(head, rows, numeric = []) {
  const cell = (tag, content, i) => h(tag, { class: numeric.includes(i) ? "number" : null, scope: tag === "th" ? "col" : null }, content);
  return scrolling(head.join(", "), h("thead", {}, h("tr", {}, head.map((name, i) => cell("th", name, i)))),
    h("tbody", {}, rows.map(row => h("tr", {}, row.map((content, i) => cell("td", content, i))))));
}

function state(run) { // and why a callback ended it
  return [h("span", { class: `state ${run.state}` }, run.state), run.reason && h("span", { class: "reason" }, run.reason)];
}

function tags(run) { return run.tags.map(tag => h("span", { class: "tag" }, tag)); }

function commands(run) { // the one that started it, and those that resumed it
  return run.commands.map((command, i) => h("div", { class: "command" }, h("code", {}, command.split(" ").flatMap(word => [h("span", {}, word), " "]).slice(0, -1)),
    copier(command, i ? "Copy the command that resumed it" : "Copy the command")));
}

// --- one run ---

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

function about(run) {
  return [h("p", { class: "about" }, state(run), run.name && h("strong", {}, run.name), h("span", { class: "path" }, run.path), tags(run)),
    run.notes && h("p", { class: "notes" }, run.notes), run.processes && h("p", { class: "notes" }, run.processes)];
}

// --- several runs ---

const ago = run => {
  const seconds = Date.parse(data.made) / 1000 - run.active, units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, unit] = units.find(([size]) => seconds >= size) || [1, "s"];
  return run.active == null ? "–" : `${Math.max(0, Math.floor(seconds / size))} ${unit} ago`;
};

// Columns of the table of runs: name, value to sort by, text, and whether it is hidden on phones.
const words = name => ["run", "state"].includes(name); // columns of text, not numbers
const COLUMNS = [
  ["run", run => `${run.name || ""} ${run.title} ${run.path}`.trim().toLowerCase(), named],
  ["last return", run => run.last, run => number(run.last)],
  ["95 % interval", run => run.interval && run.interval[1] - run.interval[0], run => run.interval ? run.interval.map(number).join(" to ") : "–", true],
  ["best", run => run.best, run => number(run.best)],
  ["state", run => run.state, state],
  ["steps", run => run.step, run => `${short(run.step)} of ${short(run.steps ?? 0)}`, true],
  ["steps/s", run => run.fps, run => run.fps == null ? "–" : short(Math.round(run.fps)), true],
  ["time", run => run.elapsed, run => duration(run.elapsed), true],
  ["active", run => run.active, ago, true],
];

const kind = (name, minor) => `${words(name) ? "" : "number"} ${minor ? "minor" : ""}`;

function named(run) { // the name of a run, with a switch
  const box = h("input", { type: "checkbox", onchange: () => show([run.path], box.checked) });
  box.checked = visible(run.path);
  followers.push(() => { box.checked = visible(run.path); });
  return h("label", { class: "run" }, box, h("span", { class: "swatch", colour: colour(run.colour) }),
    h("span", {}, h("b", {}, run.name || run.title), run.name && ` ${run.title}`, tags(run), h("span", { class: "path" }, run.path)));
}

function overview() {
  const find = h("input", { type: "search", id: "find", placeholder: "Find runs", "aria-label": "Find runs by name, path, tag, note or state", oninput: () => change({ find: find.value }) });
  find.value = view.find;
  const body = h("tbody"), said = h("span", { class: "said", role: "status" });
  const rows = runs.map(run => {
    const row = h("tr", {}, COLUMNS.map(([name, , cell, minor]) => h("td", { class: kind(name, minor) }, cell(run))),
      h("td", { class: "number" }, run.commands.length ? copier(run.commands[0], `Copy the command of ${run.path}`) : "–"));
    row.text = [run.name, run.title, run.path, run.state, run.reason, run.notes, ...run.tags].join(" ").toLowerCase();
    return [run, row];
  });
  const heads = COLUMNS.map(([name, , , minor], i) => {
    const turn = () => change({ sort: { column: i, down: view.sort?.column === i ? !view.sort.down : !words(name) } });
    return h("th", { scope: "col", class: kind(name, minor) }, h("button", { type: "button", class: "sort", id: `sort-${i}`, onclick: turn }, name));
  });
  const sought = () => rows.filter(([, row]) => !row.hidden).map(([run]) => run.path);
  const follow = () => {
    const { column, down } = view.sort || {}, value = COLUMNS[column]?.[1], words = view.find.toLowerCase().split(/\s+/);
    const compare = (a, b) => (a == null) - (b == null) || (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1); // unknown values come last
    const sorted = value ? [...rows].sort(([a], [b]) => compare(value(a), value(b))) : rows;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
    sorted.forEach(([run, row], i) => {
      if (body.children[i] !== row) body.insertBefore(row, body.children[i]);
      row.hidden = !words.every(word => row.text.includes(word));
      row.classList.toggle("off", !visible(run.path));
    });
    said.textContent = `${runs.filter(run => visible(run.path)).length} of ${runs.length} runs shown`;
  };
  followers.push(follow);
  follow();
  const all = (text, on) => h("button", { type: "button", onclick: () => show(sought(), on) }, text);
  return section("runs", "Runs",
    h("div", { class: "tools" }, find, all("Show all", true), all("Hide all", false), said),
    scrolling("Runs", h("thead", {}, h("tr", {}, heads, h("th", { scope: "col", class: "number" }, "command"))), body));
}

// --- any number of runs ---

function members() {
  const rows = runs.flatMap(run => run.members.map(row => [
    h("span", {}, h("span", { class: "swatch", colour: colour(run.colour) }), one ? row.name : `${run.name || run.title}, ${row.name}`),
    number(row.last), number(row.best), whole(row.at)]));
  if (rows.length < 2) return null;
  const tuned = runs.every(run => run.tuned);
  return h("details", {}, h("summary", {}, tuned ? "Every member" : "Every seed"),
    table([tuned ? "member" : "seed", "last return", "best return", "at step"], rows, [1, 2, 3]));
}

function media(id, title, found, wide) {
  if (!found.length) return null;
  return section(id, title, h("div", { class: `media ${wide ? "wide" : ""}` }, found.map(item => {
    if (!item.source) return h("figure", {}, h("figcaption", {}, `${item.name} (${item.megabytes.toFixed(1)} MB): `, h("span", { class: "path" }, item.file)));
    const about = item.inside ? item.name : h("a", { href: item.source }, `${item.name} (${item.megabytes.toFixed(1)} MB, beside this page)`);
    const shown = item.moves
      ? h("video", { src: item.source, controls: true, loop: true, muted: true, playsinline: true, preload: item.inside ? "auto" : "metadata", "aria-label": item.name })
      : h("img", { src: item.source, alt: item.name, loading: "lazy", decoding: "async" });
    return h("figure", {}, shown, h("figcaption", {}, about));
  })));
}

function metrics() {
  const groups = [...new Set(data.panels.map(panel => panel.section))];
  const grid = (name, figures) => [h("h3", {}, name), h("div", { class: "grid" }, figures)];
  const spreads = data.histograms.map(chart => new Spread(chart).figure);
  if (!groups.length && !spreads.length) return null;
  return section("metrics", "Metrics", ...groups.flatMap(name => grid(name, data.panels.filter(panel => panel.section === name).map(panel => new Chart(panel, "small").figure))),
    ...spreads.length ? grid("Distributions: the stronger the colour, the more of the values", spreads) : []);
}

const FEW = 8; // most runs with a column each

function programs() {
  const names = new Map();
  for (const run of runs) for (const [name, seconds] of Object.entries(run.programs)) names.set(name, Math.max(seconds, names.get(name) ?? 0));
  const shown = [...names.keys()].sort((a, b) => names.get(b) - names.get(a)).filter(name => names.get(name) >= 0.1);
  if (!shown.length || runs.length > FEW) return null;
  const seconds = run => name => run.programs[name] == null ? "–" : `${run.programs[name].toFixed(1)} s`;
  const rows = shown.map(name => [h("code", {}, name), ...runs.map(run => seconds(run)(name))]);
  return section("compiled", "Compiled programs", table(["program", ...(one ? ["seconds"] : runs.map(brief))], rows, runs.map((_, i) => i + 1)));
}

const brief = run => run.name || run.path.split("/").slice(-2).join("/");

function configuration() {
  const search = h("input", { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" });
  const only = h("button", { type: "button", "aria-pressed": String(runs.length > 1) }, "Only differences");
  const place = h("div", { class: one ? "columns" : null });
  let bodies = [];
  const sift = () => {
    const wanted = search.value.trim().toLowerCase(), differ = !one && only.getAttribute("aria-pressed") === "true";
    for (const [whole, rows] of bodies) {
      for (const row of rows) row.hidden = !row.about.text.includes(wanted) || (differ && !row.about.differs);
      whole.hidden = rows.every(row => row.hidden);
    }
    nothing.hidden = bodies.some(([whole]) => !whole.hidden);
  };
  const nothing = h("p", { class: "notice", hidden: true }, "No such setting.");
  const fill = chosen => {
    const names = [...new Set(chosen.flatMap(run => Object.keys(run.config)))];
    bodies = names.map(group => {
      const known = [...new Set(chosen.flatMap(run => Object.keys(run.config[group] || {})))];
      const rows = known.map(key => {
        const values = chosen.map(run => run.config[group]?.[key] ?? "–"), differs = new Set(values).size > 1;
        const row = h("tr", { class: differs ? "differs" : null }, h("th", { scope: "row" }, key), values.map(value => h("td", { class: "value" }, value)));
        row.about = { text: `${key} ${values.join(" ")}`.toLowerCase(), differs };
        return row;
      });
      return [h("div", {}, h("h3", {}, group), scrolling(group,
        !one && h("thead", {}, h("tr", {}, h("th", {}, ""), chosen.map(run => h("th", { scope: "col" }, h("span", { class: "swatch", colour: colour(run.colour) }), brief(run))))),
        h("tbody", {}, rows))), rows];
    });
    place.replaceChildren(...bodies.map(([whole]) => whole), nothing);
    sift();
  };
  let filled = null;
  const follow = () => { // the columns are those of the runs that are shown
    const chosen = one ? runs : runs.filter(run => visible(run.path)), key = chosen.map(run => run.path).join("\n");
    if (key !== filled) fill(chosen);
    filled = key;
  };
  followers.push(follow);
  follow();
  search.addEventListener("input", sift);
  only.addEventListener("click", () => { only.setAttribute("aria-pressed", String(only.getAttribute("aria-pressed") !== "true")); sift(); });
  return section("configuration", "Configuration", h("div", { class: "tools" }, search, !one && only), place);
}
