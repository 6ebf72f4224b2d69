// The page: choices, filters and the table of points, kept in step with each other and with the address.
"use strict";
const at = (id) => document.getElementById(id);
const MORE = 100; // the rows by which the table grows
const LISTED = 200; // limit on the failed points that are listed
let state, unknown, figure, lines;
let rows = new Uint32Array();
let length = MORE;
let waiting = 0;

const options = (found, none) => [
  ...(none === undefined ? [] : [element("option", { value: "" }, none)]),
  ...found.map((column) => element("option", { value: column.name }, column.title)),
];

function fillChoices() {
  at("x").replaceChildren(...options(sweep.columns));
  at("y").replaceChildren(...options(sweep.columns));
  at("colour").replaceChildren(...options(sweep.columns, "one for all"));
  at("add").replaceChildren(...options(sweep.columns, "choose..."));
}

/** Show the current choices in the controls. */
function showChoices() {
  for (const axis of ["x", "y", "colour"]) {
    at(axis).value = state[axis];
    const column = columns.get(state[axis]);
    at(`${axis}-log`).checked = isLog(state, axis);
    at(`${axis}-log`).disabled = !column || !isNumber(column) || (axis === "colour" && inColours(column));
  }
  for (const choice of at("seeds").children) choice.setAttribute("aria-pressed", String(choice.dataset.value === state.seeds));
}

/** Make a field for each filter; fields stay while the reader types. */
function showFilters() {
  at("filters").replaceChildren(...[...state.filters].map(([name, filter]) => fields(columns.get(name), filter)));
}

function fields(column, filter) {
  const field = (kind, word) => {
    const input = element("input", { type: "text", size: "9", "aria-label": `${column.title}, ${word}`, placeholder: word });
    input.value = filter[kind];
    const check = () => input.setAttribute("aria-invalid", String(kind !== "has" && !Number.isFinite(Number(filter[kind]))));
    input.addEventListener("input", () => { filter[kind] = input.value.trim(); check(); later(); });
    check();
    return input;
  };
  const tick = (said) => {
    const input = element("input", { type: "checkbox" });
    input.checked = filter.is.has(said);
    input.addEventListener("change", () => { filter.is[input.checked ? "add" : "delete"](said); later(); });
    const row = column.words ? said : shown(Number(said));
    return element("label", { class: "check" }, input, ` ${said === "" ? "nothing" : row}`);
  };
  const drop = button("remove", () => { state.filters.delete(column.name); showFilters(); update(); });
  const few = distinct(column).length <= FEW ? distinct(column).map(tick) : [];
  const rest = isNumber(column) ? [field("min", "from"), field("max", "to")] : few.length ? [] : [field("has", "contains")];
  return element("fieldset", {}, element("legend", {}, column.title), ...few, ...rest, drop);
}

/** Return the first *length* rows of *found* in the chosen order. */
function sorted(found) {
  const name = state.sort.replace(/^-/, "");
  if (!name) return [...found.subarray(0, length)];
  const column = columns.get(name);
  const sign = state.sort.startsWith("-") ? -1 : 1;
  // Each cell sorts by a number; empty cells come last in both directions.
  const rank = new Map(isNumber(column) ? [] : wordsOf(column).sort().map((word, place) => [word, place]));
  const keys = new Float64Array(rowCount);
  for (const row of found) {
    const key = isNumber(column) ? column.values[row] : rank.get(wordOf(column, row)) ?? NaN;
    keys[row] = Number.isNaN(key) ? Infinity : sign * key;
  }
  return [...Uint32Array.from(found).sort((a, b) => keys[a] - keys[b] || a - b).subarray(0, length)];
}

function showTable() {
  const shownColumns = sweep.shown.map((name) => columns.get(name));
  at("heads").replaceChildren(...shownColumns.map((column) => {
    const now = state.sort.replace(/^-/, "") === column.name;
    const down = now && !state.sort.startsWith("-");
    const turn = () => { state.sort = down ? `-${column.name}` : column.name; update(); at("heads").querySelector("[aria-sort] button").focus(); };
    const sort = now ? { "aria-sort": down ? "ascending" : "descending" } : {};
    return element("th", { scope: "col", class: isNumber(column) ? "" : "text", ...sort },
      button(column.title + (now ? (down ? " ↑" : " ↓") : ""), turn));
  }));
  at("rows").replaceChildren(...sorted(rows).map((row) =>
    element("tr", row === state.point ? { class: "chosen" } : {}, ...shownColumns.map((column) =>
      element("td", { class: column.name === "error" ? "text error" : isNumber(column) ? "" : "text" },
        column.name === "point" ? button(String(row), () => choose(row)) : cell(column, row))))));
  at("more").hidden = rows.length <= length;
  at("more").textContent = `${Math.min(MORE, rows.length - length)} more of ${rows.length - length}`;
}

function showFailures() {
  const bad = [...rows.filter(failed)];
  at("failures").hidden = !bad.length;
  const rest = bad.length > LISTED ? ` The first ${LISTED} of them:` : "";
  at("failed").textContent = `${bad.length} of the ${rows.length} points shown failed.${rest}`;
  at("errors").replaceChildren(...bad.slice(0, LISTED).map((row) =>
    element("li", {}, button(`Point ${row}`, () => choose(row)), ` ${columns.has("error") ? label(columns.get("error"), row) : ""}`)));
}

function showStatus([drawn, crosses]) {
  const words = [`${rows.length} of ${rowCount} points`];
  words.push(drawn === rows.length ? "all drawn" : `${drawn} ${state.seeds === "mean" ? "places" : "of them"} drawn`);
  if (crosses) words.push("crosses are of runs that failed");
  const lacks = (axis) => {
    const column = columns.get(state[axis]), log = isLog(state, axis);
    return rows.some((row) => (isNumber(column) ? Number.isNaN(column.values[row]) || (log && column.values[row] <= 0) : !column.codes[row]));
  };
  const lacking = ["x", "y"].filter(lacks);
  for (const axis of lacking) words.push(`some have no ${columns.get(state[axis]).title}${isLog(state, axis) ? " above 0" : ""}`);
  if (unknown.length) words.push(`the address asks for what is not here: ${unknown.join(", ")}`);
  at("status").textContent = `${words.join("; ")}.`;
  document.documentElement.dataset.places = String(drawn);
}

/** Draw the whole page again from the choices. */
function update() {
  clearTimeout(waiting);
  rows = chosenRows(state);
  showChoices();
  showStatus(figure.draw(state, rows));
  showLines();
  showImportance(at("importance"), at("method"), state, rows);
  showTable();
  showFailures();
  showPoint(at("detail"), state.point, choose);
  if (location.hash !== addressOf(state)) history.replaceState(null, "", addressOf(state));
}

function showLines() {
  const column = columns.get(state.colour), names = column && inColours(column) ? distinct(column) : [];
  const hue = new Map(names.map((name, index) => [name, COLOURS[index] ?? "#9aa5b1"]));
  const colourOf = !column ? () => COLOURS[0] : names.length ? (row) => hue.get(label(column, row)) ?? "#9aa5b1"
    : (row) => (Number.isNaN(column.values[row]) ? "#9aa5b1" : shades[Math.min(63, Math.max(0, Math.round(63 * figure.colours.where(column.values[row])) || 0))]);
  const [drawn, leftOut] = lines.draw(state, rows, colourOf);
  const words = [`${drawn === rows.length ? `A line for each of ${rows.length} points` : `${drawn} lines, for one in ${Math.ceil(rows.length / MOST_LINES)} of ${rows.length} points`}`];
  if (leftOut > 0) words.push(`${leftOut} more settings have no axis`);
  at("lines-status").textContent = `${words.join("; ")}.`;
}

/** Filter by a range of the axis *scale*, or remove its filter. */
function select(scale, ends) {
  const { name } = scale.column;
  if (ends === null) state.filters.delete(name);
  else scale.choose(filterOf(state, name), ...ends);
}

/** Redraw after a pause in typing. */
function later() {
  clearTimeout(waiting);
  waiting = setTimeout(update, 150);
}

function choose(row, stay = false) {
  state.point = row;
  update();
  if (row !== null) at("detail").focus({ preventScroll: stay });
}

for (const axis of ["x", "y", "colour"]) {
  at(axis).addEventListener("change", () => { state[axis] = at(axis).value; delete state.log[axis]; update(); });
  at(`${axis}-log`).addEventListener("change", () => { state.log[axis] = at(`${axis}-log`).checked; update(); });
}
for (const one of at("seeds").children) one.addEventListener("click", () => { state.seeds = one.dataset.value; update(); });
at("add").addEventListener("change", () => {
  if (at("add").value) filterOf(state, at("add").value);
  at("add").value = "";
  showFilters();
  at("filters").lastElementChild?.querySelector("input").focus();
});
at("clear").addEventListener("click", () => { state.filters.clear(); showFilters(); update(); });
at("more").addEventListener("click", () => { length += MORE; showTable(); });
window.addEventListener("hashchange", () => { if (location.hash !== addressOf(state)) { [state, unknown] = readAddress(); showFilters(); update(); } });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);

function start() {
  [state, unknown] = readAddress();
  figure = new Figure(at("figure"), at("legend"), (row) => choose(row, true), ([x, y], a, b) => {
    select(x, [a[0], b[0]]);
    select(y, [a[1], b[1]]);
    showFilters();
    update();
  });
  lines = new Lines(at("lines"), (scale, ends) => { select(scale, ends); showFilters(); update(); });
  fillChoices();
  showFilters();
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  at("count").textContent = `${plural(rowCount, "point")}, ${plural(distinct(columns.get("seed")).length, "seed")}`;
  at("seeds").hidden = distinct(columns.get("seed")).length < 2;
  update();
  new ResizeObserver(() => { figure.paint(); showLines(); }).observe(at("figure"));
  document.documentElement.dataset.drawn = "true";
}

Promise.all([inflated("data"), inflated("columns")]).then(([head, bytes]) => {
  openSweep(JSON.parse(new TextDecoder().decode(head)), bytes);
  start();
}, (error) => explainEmpty([at("figure"), at("lines")], error));
