// --- sweeps -------------------------------------------------------------------------------

const swept = data.sweep;
if (swept) for (const named of [...swept.rows, swept.best?.choices, swept.best?.commands]) // a stranger's names inherit nothing
  if (named) Object.setPrototypeOf(named, null);

const range = row => row.low == null ? "–" : `${number(row.low)} to ${number(row.high)}`;

function winner() { // the best setting, and commands that train it
  const { best, choices } = swept;
  if (!best) return h("p", { class: "notice" }, "No setting is done yet.");
  const named = [best.algo, ...choices.filter(name => best.choices[name] != null).map(name => `${name} = ${best.choices[name]}`)].join(", ");
  const commands = Object.entries(best.commands).filter(([, command]) => command);
  return h("div", { class: "winner" },
    h("div", { class: "cards" },
      card("best setting", named, best.normalised ? `done on ${Object.keys(best.commands).length} environments` : Object.keys(best.commands)[0]),
      card(best.normalised ? "normalised IQM" : `IQM, ${swept.metric}`, number(best.iqm), best.low == null ? null : `95 % interval ${range(best)}`),
      card("jobs", whole(swept.rows.filter(row => row.state === "done").length), `of ${whole(swept.rows.length)} are done`)),
    commands.map(([env, command]) => h("div", { class: "command" }, h("code", {}, command), copier(command, `Copy the command for ${env}`))));
}

function heat() { // a table of two choices, the stronger the colour the better
  if (!swept.maps.length) return null;
  const title = map => `${map.y} and ${map.x}${new Set(swept.maps.map(map => map.env)).size > 1 ? ` on ${map.env}` : ""}`;
  const choose = h("select", { id: "heat", "aria-label": "Choices of the heat map", onchange: () => change({ heat: title(swept.maps[choose.selectedIndex]) }) },
    swept.maps.map(map => h("option", {}, title(map))));
  const body = h("div", { class: "heat" });
  const follow = () => {
    const place = Math.max(0, swept.maps.findIndex(map => title(map) === view.heat)), map = swept.maps[place];
    choose.selectedIndex = place;
    const known = map.iqm.flat().filter(x => x != null), low = Math.min(...known), high = Math.max(...known);
    const cell = (value, jobs) => {
      const share = value == null ? 0 : (value - low) / (high - low || 1);
      const look = value == null ? null : `background: color-mix(in oklab, var(--high) ${Math.round(100 * share)}%, var(--low)); color: var(--${share > 0.55 ? "sheet" : "ink"})`;
      return h("td", { class: "number", style: look, title: value == null ? "no job is done" : `mean of ${jobs} job${jobs > 1 ? "s" : ""}` }, number(value));
    };
    body.replaceChildren(
      h("div", { class: "scale", "data-low": number(low), "data-high": number(high) }, h("i")),
      scrolling(`IQM by ${title(map)}`,
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `${map.y} \\ ${map.x}`), map.columns.map(name => h("th", { scope: "col", class: "number" }, name)))),
        h("tbody", {}, map.lines.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), map.columns.map((_, j) => cell(map.iqm[i][j], map.jobs[i][j])))))));
  };
  followers.push(follow);
  follow();
  return [h("h3", {}, "Two choices: mean IQM of the jobs that are done"), h("div", { class: "tools" }, choose), body];
}

function sweep() {
  if (!swept) return null;
  const several = name => new Set(swept.rows.map(row => row[name])).size > 1;
  const told = ["algo", "env"].filter(several), heads = [...told, ...swept.choices];
  const numeric = heads.map((name, i) => swept.rows.every(row => row[name] !== "" && isFinite(row[name])) ? i : -1).filter(i => i >= 0);
  const rows = swept.rows.map(row => [number(row.iqm), ...heads.map(name => row[name] || "–"), range(row), number(row.best), state(row),
    row.of_steps ? `${short(row.step ?? 0)} of ${short(row.of_steps)}` : "–", row.job.split("-")[0]]);
  const after = heads.length + 1;
  const begun = job => runs.some(run => run.path.replaceAll("\\", "/").endsWith(`/${job}`));
  return section("sweep", "Sweep", winner(),
    ...swept.rows.filter(row => row.error && !begun(row.job)).map(row => h("p", { class: "notice bad", role: "alert" }, `${row.job}: ${row.error}`)),
    ...heat() || [],
    h("h3", {}, `Every job, the best ${several("env") ? "of each environment " : ""}first`),
    table(["IQM", ...heads, "95 % interval", "best", "state", "steps", "job"], rows, [0, ...numeric.map(i => i + 1), after, after + 1, after + 3, after + 4]));
}
