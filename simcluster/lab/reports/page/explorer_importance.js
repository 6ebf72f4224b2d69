// The share of the variation between points that each setting explains alone: one-way analysis of variance per key.
"use strict";
const MOST_VALUES = 20, PARTS = 10;

/** The group of each of *rows* by the *column*: its values, or ten parts of equal size of more than MOST_VALUES numbers. */
function partsOfColumn(column, rows) {
  const [numbers, count] = groupNumbers(rows, [column]);
  if (count <= MOST_VALUES || !isNumber(column)) return [numbers, count];
  const sorted = Float64Array.from(rows, (row) => column.values[row]).sort();
  const ends = Array.from({ length: PARTS - 1 }, (_, part) => sorted[Math.floor((part + 1) * sorted.length / PARTS)]);
  return [Uint32Array.from(rows, (row) => ends.reduce((sum, end) => sum + (column.values[row] >= end), 0)), PARTS];
}

/**
 * The share of the variance of *values* between the groups *numbers*: epsilon squared, which takes off what as many groups
 * explain by chance, (SS_between - (k - 1) MS_within) / SS_total with k groups. null if nothing varies or too few points are there.
 */
function explained(values, numbers, count) {
  const sums = new Float64Array(count), sizes = new Uint32Array(count);
  let total = 0;
  values.forEach((value, index) => { sums[numbers[index]] += value; sizes[numbers[index]]++; total += value; });
  const mean = total / values.length, groups = sizes.reduce((sum, size) => sum + (size > 0), 0);
  let all = 0, between = 0;
  for (const value of values) all += (value - mean) ** 2;
  for (let group = 0; group < count; group++) if (sizes[group]) between += sizes[group] * (sums[group] / sizes[group] - mean) ** 2;
  if (!(all > 1e-24 * mean * mean * values.length) || values.length <= groups) return null;
  const within = (all - between) / (values.length - groups);
  return Math.min(1, Math.max(0, (between - (groups - 1) * within) / all));
}

/** Return [[column, share], ...], the most important first, and the number of points used. */
function importance(state, rows) {
  const y = columns.get(state.y), log = isLog(state, "y");
  if (!isNumber(y)) return [[], 0];
  const used = rows.filter((row) => !failed(row) && !Number.isNaN(y.values[row]) && (!log || y.values[row] > 0));
  const values = Float64Array.from(used, (row) => (log ? Math.log(y.values[row]) : y.values[row]));
  const settings = [...new Set([...sweep.keys, "seed"])].map((name) => columns.get(name)).filter((column) => column && distinct(column).length > 1);
  const found = settings.map((column) => [column, explained(values, ...partsOfColumn(column, used))]).filter(([, share]) => share !== null);
  return [found.sort((a, b) => b[1] - a[1]), used.length];
}

/** Fill *target* with a bar for each setting, and *note* with the method. */
function showImportance(target, note, state, rows) {
  const [found, count] = importance(state, rows), y = columns.get(state.y);
  target.replaceChildren(...found.map(([column, share]) => {
    const bar = element("i");
    bar.style.width = `${(100 * share).toFixed(1)}%`;
    return element("tr", {}, element("th", { scope: "row", class: "text" }, column.name), element("td", {}, element("span", { class: "bar" }, bar)), element("td", {}, `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`));
  }));
  if (!isNumber(y)) note.textContent = `${y.title} has no variance: choose a number for the vertical axis.`;
  else if (!found.length) note.textContent = "Too few points differ here to share out their variance.";
  else {
    note.textContent = `The share of the variance of ${y.title}${isLog(state, "y") ? " (of its logarithm)" : ""} that each setting explains by itself, over the ${count} points shown `
      + "that did not fail: one-way analysis of variance, less what as many values explain by chance (epsilon squared). "
      + `Of more than ${MOST_VALUES} numbers, ${PARTS} parts of equal size are compared. What is missing to 100 % is due to settings together, to seeds and to chance.`;
  }
}
