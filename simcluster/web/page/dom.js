// Numbers as people read them, and elements of a page. All text goes in as text, never as markup.
export const $ = (id) => document.getElementById(id);
const MOST_ROWS = 256;

// numbers as people read them
export const number = (value, digits = 4) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(digits))));
export function scaled(value, units, base) {
  if (value === null || value === undefined) return "–";
  let place = 0;
  while (Math.abs(value) >= base && place < units.length - 1) { value /= base; place += 1; }
  return `${number(value, 3)} ${units[place]}`;
}
export const size = (bytes) => scaled(bytes, ["B", "kB", "MB", "GB", "TB"], 1000);
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);
export const rate = (bytes) => (bytes === null ? "–" : scaled(bytes * 8, ["bps", "kbps", "Mbps", "Gbps", "Tbps"], 1000));
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 1) return value < 1e-3 ? `${number(value * 1e6, 3)} us` : `${number(value * 1e3, 3)} ms`;
  if (value < 120) return `${number(value, 3)} s`;
  return value < 7200 ? `${number(value / 60, 3)} min` : `${number(value / 3600, 3)} h`;
}

// elements
export function element(kind, classes, text) {
  const made = document.createElement(kind);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}
export function shape(kind, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
export function table(id, titles, rows) {
  // titles: [title, whether its cells are words]; a row: [cells, class]; a cell: text, or an element
  const head = element("tr");
  for (const [title, words] of titles) {
    const cell = element("th", words ? "words" : "", title);
    cell.scope = "col";
    head.append(cell);
  }
  const body = rows.slice(0, MOST_ROWS).map(([cells, classes]) => {
    const row = element("tr", classes);
    cells.forEach((cell, place) => {
      const made = element("td", titles[place][1] ? "words" : "");
      made.append(cell);
      row.append(made);
    });
    return row;
  });
  if (rows.length > MOST_ROWS) {
    const row = element("tr");
    row.append(element("td", "words", `and ${rows.length - MOST_ROWS} more`));
    body.push(row);
  }
  (typeof id === "string" ? $(id) : id).replaceChildren(head, ...body);
}
