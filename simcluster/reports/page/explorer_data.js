// What there is and what is asked for: the sweep's columns, the choices and filters, and the address that holds them.
// Knows no element of the page but the one with the data.
"use strict";
const sweep = JSON.parse(document.getElementById("data").textContent);
const columns = new Map(sweep.columns.map((column) => [column.name, column]));
const rowCount = sweep.reports.length;
const FEW = 12; // so many different values are offered one by one

const isNumber = (column) => column.values !== undefined;
const number = (column, row) => (isNumber(column) ? column.values[row] : null);

/** What a cell says; "" for nothing. */
function label(column, row) {
  const said = column.labels ? column.labels[row] : column.values[row];
  return said === null ? "" : String(said);
}

/** The different labels of a column: numbers rise, words stay in the order in which they come. */
function distinct(column) {
  if (!column.distinct) {
    const first = new Map();
    for (let row = 0; row < rowCount; row++) {
      const said = label(column, row);
      if (!first.has(said)) first.set(said, row);
    }
    const found = [...first.keys()];
    if (isNumber(column)) found.sort((a, b) => number(column, first.get(a)) - number(column, first.get(b)));
    column.distinct = found;
  }
  return column.distinct;
}

/** What is asked for if the address says nothing. */
function fresh() {
  return { ...sweep.start, log: {}, seeds: "mean", point: null, sort: "", filters: new Map() };
}

function filterOf(state, name) {
  if (!state.filters.has(name)) state.filters.set(name, { is: new Set(), min: "", max: "", has: "" });
  return state.filters.get(name);
}

/** [what the address asks for, what in it means nothing here]. */
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

/** The address that asks for *state*, without what is so anyway. */
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

/** Whether an axis is logarithmic: as chosen, else as its column would be. */
function isLog(state, axis) {
  const column = columns.get(state[axis]);
  return Boolean(column && isNumber(column) && (state.log[axis] ?? column.log));
}

function passes(filter, column, row) {
  const said = label(column, row);
  if (filter.is.size && !filter.is.has(said)) return false;
  if (filter.has !== "" && !said.toLowerCase().includes(filter.has.toLowerCase())) return false;
  for (const [bound, sign] of [[filter.min, 1], [filter.max, -1]]) {
    if (bound === "" || !Number.isFinite(Number(bound))) continue;
    const value = number(column, row);
    if (value === null || sign * value < sign * Number(bound)) return false;
  }
  return true;
}

/** The numbers of the rows that pass every filter. */
function chosenRows(state) {
  const filters = [...state.filters].map(([name, filter]) => [filter, columns.get(name)]);
  return Array.from({ length: rowCount }, (_, row) => row).filter((row) =>
    filters.every(([filter, column]) => passes(filter, column, row)),
  );
}

/** Rows that differ in their seed alone. */
function groupsOf(rows, also) {
  const by = [...sweep.keys.filter((key) => key !== "seed"), ...also].map((name) => columns.get(name)).filter(Boolean);
  const groups = new Map();
  for (const row of rows) {
    const key = JSON.stringify(by.map((column) => label(column, row)));
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()];
}

const failed = (row) => label(columns.get("status"), row) !== "done";

/** A number for people: four digits, whole ones whole. */
const shown = (value) =>
  value === null || value === undefined ? "" : String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));

function cell(column, row) {
  return column.labels ? label(column, row) : shown(column.values[row]);
}
