// The state of the explorer: the sweep's columns, the choices and filters, and the address that stores them.
// This file uses no element of the page. Columns are typed arrays: a page of 100,000 points has no object for a point.
"use strict";
let sweep, columns, rowCount;
const FEW = 12; // up to this number, a filter offers each value

/** Take the columns from *bytes*, in the order in which explorer.py writes them. */
function openSweep(head, bytes) {
  let at = 0;
  const next = (kind) => {
    const found = new kind(bytes, at, head.rows);
    at += found.byteLength;
    return found;
  };
  sweep = head;
  rowCount = head.rows;
  for (const column of head.columns) if (column.is_number) column.values = next(Float64Array);
  for (const column of head.columns) if (column.words) column.codes = next(Uint32Array);
  for (const own of head.own) own.codes = next(Uint32Array);
  sweep.known = next(Uint8Array);
  sweep.reports = next(Uint8Array);
  columns = new Map(head.columns.map((column) => [column.name, column]));
}

const isNumber = (column) => column.values !== undefined;
const number = (column, row) => (isNumber(column) && !Number.isNaN(column.values[row]) ? column.values[row] : null);
const wordOf = (column, row) => (column.codes[row] ? column.words[column.codes[row] - 1] : "");

/** Return the text of a cell; "" if it is empty. */
function label(column, row) {
  if (column.codes) return wordOf(column, row);
  return Number.isNaN(column.values[row]) ? "" : String(column.values[row]);
}

/** Return [a code per cell, the number of codes]: equal cells have equal codes. */
function codesOf(column) {
  if (column.codes) return [column.codes, column.words.length + 1];
  if (!column.own) {
    const seen = new Map(), own = new Uint32Array(rowCount);
    for (let row = 0; row < rowCount; row++) {
      const value = column.values[row];
      let code = seen.get(value);
      if (code === undefined) { code = seen.size; seen.set(value, code); }
      own[row] = code;
    }
    column.own = [own, seen.size];
  }
  return column.own;
}

/** The different labels of a column: numbers rise, words stay in the order in which they come. */
function distinct(column) {
  if (!column.distinct) {
    const [codes, size] = codesOf(column), first = new Int32Array(size).fill(-1);
    for (let row = rowCount - 1; row >= 0; row--) first[codes[row]] = row;
    const found = [...first].filter((row) => row >= 0);
    if (isNumber(column)) found.sort((a, b) => number(column, a) - number(column, b));
    else found.sort((a, b) => a - b);
    column.distinct = found.map((row) => label(column, row));
  }
  return column.distinct;
}

/** Return the default choices. */
function fresh() {
  return { ...sweep.start, log: {}, seeds: "mean", point: null, sort: "", filters: new Map() };
}

function filterOf(state, name) {
  if (!state.filters.has(name)) state.filters.set(name, { is: new Set(), min: "", max: "", has: "" });
  return state.filters.get(name);
}

/** Return [the choices in the address, its parts that this sweep does not have]. */
function readAddress() {
  const state = fresh();
  const unknown = [];
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    const dot = key.indexOf(".");
    const [kind, name] = dot < 0 ? [key, ""] : [key.slice(0, dot), key.slice(dot + 1)];
    if (["x", "y"].includes(key) && columns.has(value)) state[key] = value;
    else if (key === "colour" && (value === "" || columns.has(value))) state.colour = value;
    else if (kind === "log" && ["x", "y", "colour"].includes(name)) state.log[name] = value === "1";
    else if (key === "seeds" && ["mean", "each"].includes(value)) state.seeds = value;
    else if (key === "point" && /^\d+$/.test(value) && Number(value) < rowCount) state.point = Number(value);
    else if (key === "sort" && columns.has(value.replace(/^-/, ""))) state.sort = value;
    else if (kind === "is" && columns.has(name)) filterOf(state, name).is.add(value);
    else if (["min", "max", "has"].includes(kind) && columns.has(name)) filterOf(state, name)[kind] = value;
    else unknown.push(`${key}=${value}`);
  }
  return [state, unknown];
}

/** Return the address for *state*, without default choices. */
function addressOf(state) {
  const asked = new URLSearchParams();
  for (const key of ["x", "y", "colour", "seeds", "sort"]) if (state[key] !== fresh()[key]) asked.append(key, state[key]);
  for (const [axis, on] of Object.entries(state.log)) {
    if (on !== Boolean(columns.get(state[axis])?.log)) asked.append(`log.${axis}`, on ? "1" : "0");
  }
  for (const [name, filter] of state.filters) {
    for (const value of filter.is) asked.append(`is.${name}`, value);
    for (const kind of ["min", "max", "has"]) if (filter[kind] !== "") asked.append(`${kind}.${name}`, filter[kind]);
  }
  if (state.point !== null) asked.append("point", state.point);
  return `#${asked}`;
}

/** Return whether an axis is logarithmic: as chosen, or by default as its column suggests. */
function isLog(state, axis) {
  const column = columns.get(state[axis]);
  return Boolean(column && isNumber(column) && (state.log[axis] ?? column.log));
}

/** Clear *mask* for the rows that *filter* excludes. */
function keepOut(mask, column, filter) {
  const bound = (text) => (text === "" || !Number.isFinite(Number(text)) ? null : Number(text));
  const [min, max] = [bound(filter.min), bound(filter.max)];
  if ((min !== null || max !== null) && isNumber(column)) {
    for (let row = 0; row < rowCount; row++) {
      const value = column.values[row];
      if (!((min === null || value >= min) && (max === null || value <= max))) mask[row] = 0; // NaN fails, too
    }
  } else if (min !== null || max !== null) mask.fill(0);
  if (!filter.is.size && filter.has === "") return;
  const [codes, size] = codesOf(column), asked = filter.has.toLowerCase();
  const allowed = new Int8Array(size).fill(-1);
  for (let row = 0; row < rowCount; row++) {
    const code = codes[row];
    if (allowed[code] < 0) {
      const said = label(column, row);
      allowed[code] = (!filter.is.size || filter.is.has(said)) && said.toLowerCase().includes(asked) ? 1 : 0;
    }
    if (!allowed[code]) mask[row] = 0;
  }
}

/** The numbers of the rows that pass every filter. */
function chosenRows(state) {
  const mask = new Uint8Array(rowCount).fill(1);
  for (const [name, filter] of state.filters) keepOut(mask, columns.get(name), filter);
  const found = new Uint32Array(mask.reduce((sum, one) => sum + one, 0));
  for (let row = 0, at = 0; row < rowCount; row++) if (mask[row]) found[at++] = row;
  return found;
}

/** [The number of each row's group, how many groups]: rows of a group agree in the columns *by*. */
function groupNumbers(rows, by) {
  const numbers = new Uint32Array(rows.length);
  let count = Math.min(1, rows.length);
  for (const column of by) {
    const [codes, size] = codesOf(column), seen = new Map();
    for (let at = 0; at < rows.length; at++) {
      const key = numbers[at] * size + codes[rows[at]];
      let number = seen.get(key);
      if (number === undefined) { number = seen.size; seen.set(key, number); }
      numbers[at] = number;
    }
    count = seen.size;
  }
  return [numbers, count];
}

/** The columns in which the seeds of one setting agree. */
const settingColumns = (also = []) => [...sweep.keys.filter((key) => key !== "seed"), ...also].map((name) => columns.get(name)).filter(Boolean);

const failed = (row) => label(columns.get("status"), row) !== "done";

/** A number for people: four digits, whole ones whole. */
const shown = (value) =>
  value === null || value === undefined ? "" : String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));

function cell(column, row) {
  return column.words ? label(column, row) : shown(number(column, row));
}
