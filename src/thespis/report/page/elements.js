// --- the view, which is kept when a live page reloads itself -------------------------------

for (const { programs, config } of data.runs) // their keys may be untrusted: no prototype
  for (const named of [programs, config, ...Object.values(config)]) Object.setPrototypeOf(named, null);
const runs = data.runs, one = runs.length === 1 ? runs[0] : null;
const place = "thespis " + location.pathname;
const view = { axis: "steps", zoom: null, hidden: [], live: true, smooth: 0, logX: false, logY: false, sort: null, find: "", heat: null };
try { Object.assign(view, JSON.parse(sessionStorage.getItem(place) || "{}")); } catch {}
function remember() { try { sessionStorage.setItem(place, JSON.stringify(view)); } catch {} }

const followers = []; // functions that redraw what depends on the view
function change(changes) {
  Object.assign(view, changes);
  remember();
  followers.forEach(follow => follow());
}

// What can be hidden: a run by its path, any other line by the name of its group.
const keys = line => line.runs ? line.runs.map(i => runs[i].path) : [line.group];
const visible = key => !view.hidden.includes(key);
const shown = line => keys(line).some(visible);
function show(names, on) { change({ hidden: on ? view.hidden.filter(name => !names.includes(name)) : [...new Set([...view.hidden, ...names])] }); }

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

function pressed(button, on) { // a button that stays down while it is on
  button.setAttribute("aria-pressed", String(on()));
  followers.push(() => button.setAttribute("aria-pressed", String(on())));
  return button;
}

function copier(text, label) { // a button that copies a text
  const button = h("button", { type: "button", class: "copier", "aria-label": label, title: label, onclick: async () => {
    try { await navigator.clipboard.writeText(text); } catch {
      const area = document.body.appendChild(h("textarea", { class: "skip", readonly: true }, text));
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } }, "Copy");
  return button;
}
