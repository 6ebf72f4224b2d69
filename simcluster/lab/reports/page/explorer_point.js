// The view of one point: its settings, numbers, error, and the folder of its run.
"use strict";

const MOST_SEEDS = 200; // limit on the seeds that are offered

/** An element with text or elements in it; never markup. */
function element(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...inside);
  return made;
}

const button = (text, onclick, attributes = {}) =>
  element("button", { type: "button", class: "plain", onclick, ...attributes }, text);

/** A table of [name, value]. */
const pairs = (found) =>
  element("table", { class: "pairs" }, element("tbody", {}, ...found.map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row", class: "text" }, name), element("td", { class: "text" }, value)))));

function settings(row) {
  const found = sweep.own.filter((own) => own.codes[row]).map((own) => [own.name, wordOf(own, row)]);
  if (!sweep.known[row]) found.push(...sweep.keys.map((key) => [key, label(columns.get(key), row)]));
  if (sweep.more) found.push([`and ${sweep.more} more`, "in config.yaml"]);
  return found;
}

function numbers(row) {
  const known = new Set([...sweep.keys, ...sweep.own.map((own) => own.name), "point", "error", "run", "status"]);
  return sweep.columns
    .filter((column) => !known.has(column.name) && label(column, row) !== "")
    .map((column) => [column.title, cell(column, row)]);
}

function whereabouts(row) {
  const run = label(columns.get("run"), row);
  const folder = `points/${encodeURIComponent(run)}`;
  if (!sweep.known[row]) return [element("p", { class: "note" }, "This point left no run.")];
  const again = element("pre", {}, `simcluster report points/${run}`);
  const report = sweep.reports[row]
    ? [element("a", { href: `${folder}/report.html`, id: "report" }, "Open the report of its run")]
    : ["Its run has no report yet. In this page's folder, this writes it:", again,
       element("a", { href: `${folder}/report.html`, id: "report" }, "Open it after that")];
  const config = element("a", { href: `${folder}/config.yaml` }, "config.yaml");
  return [element("p", {}, ...report), element("p", { class: "note" }, "What repeats it: ", config)];
}

/** The same point at its other seeds. */
function siblings(row, choose) {
  const settings = settingColumns().map((column) => codesOf(column)[0]);
  const group = [];
  for (let other = 0; other < rowCount && group.length < MOST_SEEDS; other++) {
    if (settings.every((codes) => codes[other] === codes[row])) group.push(other);
  }
  if (group.length < 2) return [];
  const seeds = group.map((other) =>
    button(label(columns.get("seed"), other), () => choose(other), { "aria-pressed": String(other === row) }));
  return [element("p", { class: "seeds" }, "Seeds: ", ...seeds)];
}

/** Fills *target* with the point *row*, or hides it if that is null; *choose* is called with another one. */
function showPoint(target, row, choose) {
  target.hidden = row === null;
  if (row === null) return;
  const step = (by) => button(by < 0 ? "previous" : "next", () => choose((row + by + rowCount) % rowCount));
  const bad = failed(row);
  const status = element("span", { class: bad ? "pill failed" : "pill" }, label(columns.get("status"), row));
  const error = columns.has("error") ? label(columns.get("error"), row) : "";
  const common = sweep.known[row]
    ? [element("details", {}, element("summary", { class: "note" }, "What all points share"),
        element("pre", {}, sweep.common.join("\n")))]
    : [];
  target.replaceChildren(
    element("div", { class: "heading" }, element("h2", {}, `Point ${row} `, status),
      element("span", {}, step(-1), step(1), button("close", () => choose(null)))),
    ...(error ? [element("pre", { class: "failure", role: "alert" }, error)] : []),
    ...siblings(row, choose),
    element("div", { class: "pair" }, pairs(settings(row)), pairs(numbers(row))),
    ...whereabouts(row), ...common,
  );
}
