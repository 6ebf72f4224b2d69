// The marks of the figure: which points are drawn where. This file only computes: explorer_plot.js draws.
"use strict";
const OF_ONE = ["seed", "point"]; // columns that have no mean over seeds
const COLOURS = [
  "#2f7fb8", "#d1495b", "#2a9d74", "#e0862b", "#8a63c9", "#7d8a97", "#b0863a", "#c764a6", "#3fb1c5", "#6a8d2f",
];

/** Return whether a column's values have a colour each instead of a scale. */
const inColours = (column) => !isNumber(column) || (column.swept && distinct(column).length <= COLOURS.length);

/** The words of a column's axis, in its order. */
const wordsOf = (column) => distinct(column).filter((word) => word !== "");

/** For each group the mean of its numbers, or the place of its first word; NaN where there is none or, if *log*, none above 0. */
function places(column, log, rows, numbers, count) {
  const sums = new Float64Array(count), firsts = new Float64Array(count).fill(NaN), known = new Uint32Array(count), differ = new Uint8Array(count);
  if (!isNumber(column)) {
    const at = new Map(wordsOf(column).map((word, index) => [word, index]));
    const [codes, size] = codesOf(column), ofCode = new Float64Array(size).fill(-1);
    for (let index = 0; index < rows.length; index++) {
      if (!Number.isNaN(firsts[numbers[index]])) continue;
      const code = codes[rows[index]];
      if (ofCode[code] === -1) ofCode[code] = at.get(wordOf(column, rows[index])) ?? NaN;
      firsts[numbers[index]] = ofCode[code];
    }
    return firsts;
  }
  for (let index = 0; index < rows.length; index++) {
    const value = column.values[rows[index]], group = numbers[index];
    if (Number.isNaN(value)) continue;
    if (!known[group]++) firsts[group] = value;
    else if (value !== firsts[group]) differ[group] = 1;
    sums[group] += value;
  }
  for (let group = 0; group < count; group++) {
    if (differ[group]) firsts[group] = sums[group] / known[group];
    if (log && firsts[group] <= 0) firsts[group] = NaN;
  }
  return firsts;
}

/** Every mark to draw, as arrays: row (its first), size (rows), x, y, low and high (of y), failed (rows), colour. */
function marksOf(state, rows) {
  const [x, y, colour] = ["x", "y", "colour"].map((axis) => columns.get(state[axis]));
  const used = isNumber(y) ? rows.filter((row) => !Number.isNaN(y.values[row])) : rows;
  const apart = [x, y, colour].filter((column) => column && (!isNumber(column) || OF_ONE.includes(column.name)));
  const [numbers, count] = state.seeds === "mean" ? groupNumbers(used, settingColumns(apart.map((column) => column.name)))
    : [Uint32Array.from(used, (_, index) => index), used.length];
  const made = { row: new Int32Array(count).fill(-1), size: new Uint32Array(count), failed: new Uint32Array(count) };
  made.low = new Float64Array(count).fill(Infinity);
  made.high = new Float64Array(count).fill(-Infinity);
  const status = columns.get("status"), done = status.words.indexOf("done") + 1;
  for (let index = 0; index < used.length; index++) {
    const group = numbers[index], row = used[index];
    if (made.row[group] < 0) made.row[group] = row;
    made.size[group]++;
    if (status.codes[row] !== done) made.failed[group]++;
    if (isNumber(y)) {
      made.low[group] = Math.min(made.low[group], y.values[row]);
      made.high[group] = Math.max(made.high[group], y.values[row]);
    }
  }
  made.x = places(x, isLog(state, "x"), used, numbers, count);
  made.y = places(y, isLog(state, "y"), used, numbers, count);
  if (colour) made.colour = places(colour, isLog(state, "colour"), used, numbers, count);
  made.shown = Uint32Array.from({ length: count }, (_, group) => group).filter((group) => !Number.isNaN(made.x[group]) && !Number.isNaN(made.y[group])
    && (!colour || inColours(colour) || !Number.isNaN(made.colour[group])));
  made.groupOf = (row) => { const at = used.indexOf(row); return at < 0 ? -1 : numbers[at]; };
  made.rowsOf = (group) => used.filter((_, index) => numbers[index] === group);
  return made;
}

/** The parts of *marks* that share a colour: [name, colour, marks]; of a scale of colours one part without a colour. */
function partsOf(state, marks) {
  const column = columns.get(state.colour);
  if (!column) return [["all", COLOURS[0], marks.shown]];
  if (!inColours(column)) return [[column.name, null, marks.shown]];
  const names = distinct(column), own = names.slice(0, names.length > COLOURS.length ? COLOURS.length - 1 : COLOURS.length);
  const lists = [...own.map(() => []), []], at = new Map(own.map((name, index) => [name, index]));
  for (const mark of marks.shown) lists[at.get(label(column, marks.row[mark])) ?? own.length].push(mark);
  return lists.map((list, index) => [index < own.length ? own[index] || "none" : "others", index < own.length ? COLOURS[index] : "#9aa5b1", list])
    .filter(([, , list]) => list.length);
}
