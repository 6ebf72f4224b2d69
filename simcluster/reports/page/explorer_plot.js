// The figure: which points are drawn where, in which colour. Knows the choices and plotly, not the rest of the page.
"use strict";
const narrow = window.matchMedia("(max-width: 560px)");
const COLOURS = [
  "#2f7fb8", "#d1495b", "#2a9d74", "#e0862b", "#8a63c9", "#7d8a97", "#b0863a", "#c764a6", "#3fb1c5", "#6a8d2f",
];

const OF_ONE = ["seed", "point"]; // columns whose mean over seeds means nothing

/** plotly takes some markup in what it writes; names of a sweep are none. */
const safe = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** So much of a word as an axis or a legend has room for. */
function short(text) {
  const most = narrow.matches ? 16 : 40;
  return safe(text.length > most ? `${text.slice(0, most - 1)}…` : text);
}

/** Whether a column's values are told apart by ten colours rather than by a scale. */
const inColours = (column) => !isNumber(column) || (column.swept && distinct(column).length <= COLOURS.length);

const mean = (values) =>
  values.every((value) => value === values[0]) ? values[0] : values.reduce((sum, value) => sum + value) / values.length;

/** The place of a group of rows on an axis; null if it has none there. */
function place(column, rows, log) {
  if (!isNumber(column)) return label(column, rows[0]) || null;
  const values = rows.map((row) => number(column, row)).filter((value) => value !== null);
  const found = values.length ? mean(values) : null;
  return found === null || (log && found <= 0) ? null : found;
}

/** Every point to draw: rows, x, y, the least and the greatest y. */
function marks(state, rows) {
  const [x, y, colour] = ["x", "y", "colour"].map((axis) => columns.get(state[axis]));
  const apart = [x, y, colour].filter((column) => column && (!isNumber(column) || OF_ONE.includes(column.name)));
  const groups = state.seeds === "mean" ? groupsOf(rows, apart.map((column) => column.name)) : rows.map((row) => [row]);
  const found = [];
  for (const all of groups) {
    const group = isNumber(y) ? all.filter((row) => number(y, row) !== null) : all;
    if (!group.length) continue;
    const at = [place(x, group, isLog(state, "x")), place(y, group, isLog(state, "y"))];
    if (at.includes(null)) continue;
    const values = isNumber(y) ? group.map((row) => number(y, row)) : [];
    found.push({ rows: group, x: at[0], y: at[1], low: Math.min(...values), high: Math.max(...values) });
  }
  return found;
}

function hover(mark) {
  const [first] = mark.rows;
  const who = mark.rows.length > 1 ? `${mark.rows.length} seeds` : `point ${first}, seed ${label(columns.get("seed"), first)}`;
  const keys = sweep.keys.map((key) => `${safe(key.split(".").pop())} ${safe(label(columns.get(key), first))}`);
  const bad = mark.rows.filter(failed).length;
  return [who + (bad ? `, ${bad === mark.rows.length ? "" : `${bad} of them `}failed` : ""), ...keys].join("<br>");
}

/** A cross for what has failed, if only for one seed: what it came to is what it had reached by then. */
const symbol = (mark) => (mark.rows.some(failed) ? "x" : "circle");

/** One plotly trace of *found*, which share a colour or a scale of colours. */
function trace(state, found, name, marker) {
  const [x, y] = [columns.get(state.x), columns.get(state.y)];
  if (isNumber(x)) found = [...found].sort((a, b) => a.x - b.x);
  const spread = state.seeds === "mean" && found.some((mark) => mark.low < mark.high);
  // A line where one place follows another: means along a swept key, all of one colour.
  const apart = new Set(found.map((mark) => mark.x)).size === found.length;
  const scaled = Array.isArray(marker.color);
  const line = state.seeds === "mean" && x.swept && isNumber(y) && apart && !scaled;
  return {
    type: "scatter", mode: line && found.length > 1 ? "lines+markers" : "markers", name: short(name), marker: { ...marker, symbol: found.map(symbol) },
    line: { width: 2 },
    x: found.map((mark) => (isNumber(x) ? mark.x : safe(mark.x))),
    y: found.map((mark) => (isNumber(y) ? mark.y : safe(mark.y))),
    error_y: spread && {
      type: "data", symmetric: false, thickness: 1.2, width: 3, color: scaled ? "#9aa5b1" : marker.color,
      array: found.map((mark) => mark.high - mark.y), arrayminus: found.map((mark) => mark.y - mark.low),
    },
    customdata: found.map((mark) => mark.rows[0]),
    text: found.map(hover),
    hovertemplate: `%{text}<br>${safe(x.title)} %{x}<br>${safe(y.title)} %{y:.4g}<extra></extra>`,
  };
}

/** The traces of all *found*: one a value of the colour's column, or one with a scale beside it. */
function traces(state, found) {
  const column = columns.get(state.colour);
  if (!column) return [trace(state, found, "all", { size: 8, color: COLOURS[0] })];
  if (!inColours(column)) {
    const log = isLog(state, "colour");
    const seen = found.filter((mark) => place(column, mark.rows, log) !== null);
    if (isNumber(columns.get(state.x))) seen.sort((a, b) => a.x - b.x);
    const values = seen.map((mark) => place(column, mark.rows, log));
    const title = { text: safe(column.title), side: "right" };
    const color = log ? values.map(Math.log10) : values;
    const colorbar = { title, thickness: 12, ...(log ? decades(values) : {}) };
    return [trace(state, seen, column.name, { size: 8, color, colorscale: "Viridis", showscale: true, colorbar })];
  }
  const of = (mark) => label(column, mark.rows[0]);
  const names = distinct(column);
  const own = names.slice(0, names.length > COLOURS.length ? COLOURS.length - 1 : COLOURS.length);
  const parts = own.map((name, index) => [name || "none", COLOURS[index], found.filter((mark) => of(mark) === name)]);
  parts.push(["others", "#9aa5b1", found.filter((mark) => !own.includes(of(mark)))]);
  return parts
    .filter(([, , part]) => part.length)
    .map(([name, color, part]) => trace(state, part, name, { size: 8, color }));
}

/** Ticks at 1, 2 and 5 times the powers of ten that a logarithmic scale of colours spans. */
function decades(values) {
  if (!values.length) return {};
  const ticks = [];
  for (let power = Math.floor(Math.log10(Math.min(...values))); power <= Math.log10(Math.max(...values)); power++) {
    for (const digit of [1, 2, 5]) ticks.push(digit * 10 ** power);
  }
  return { tickvals: ticks.map(Math.log10), ticktext: ticks.map(shown) };
}

/** A title that fits a phone: of a long key, a line for each few of its parts. */
function titled(text) {
  if (!narrow.matches) return safe(text);
  const lines = [""];
  for (const part of text.split(/(?<=\.)/)) {
    if (lines.at(-1) && (lines.at(-1) + part).length > 28) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines.map(safe).join("<br>");
}

function axis(state, name, style) {
  const column = columns.get(state[name]);
  const grid = "rgba(128,136,146,0.22)";
  const look = {
    title: { text: titled(column.title), standoff: 10 }, gridcolor: grid, zerolinecolor: grid, automargin: true,
    linecolor: style("--line"), ticks: "outside", tickcolor: style("--line"), ticklen: 4,
  };
  if (!isNumber(column)) {
    const words = distinct(column);
    const ticks = words.length <= 30 ? { tickvals: words.map(safe), ticktext: words.map(short) } : {};
    return { ...look, ...ticks, type: "category", categoryorder: "array", categoryarray: words.map(safe) };
  }
  const few = column.labels && distinct(column).length <= 8;
  const rows = few ? distinct(column).map((said) => column.labels.indexOf(said)).filter((row) => row >= 0) : [];
  const ticks = few ? { tickvals: rows.map((row) => number(column, row)) } : {};
  return { ...look, ...ticks, type: isLog(state, name) ? "log" : "linear" };
}

function layoutOf(state, lines) {
  const computed = getComputedStyle(document.documentElement);
  const style = (name) => computed.getPropertyValue(name).trim();
  const column = columns.get(state.colour);
  const title = column ? { text: titled(column.title), font: { size: 12 } } : {};
  return {
    height: 440 + 18 * lines, margin: { l: 56, r: 12, t: 16, b: 60 + 18 * lines }, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", showlegend: Boolean(column && inColours(column)),
    legend: { orientation: "v", yanchor: "top", y: narrow.matches ? -0.28 : -0.18, x: 0, title },
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 13, color: style("--ink") },
    hoverlabel: {
      align: "left", bgcolor: style("--card"), bordercolor: style("--line"), font: { color: style("--ink") },
    },
    // A finger that scrolls the page must not zoom the figure instead.
    dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: axis(state, "x", style), yaxis: axis(state, "y", style),
  };
}

/** Draws *rows* as *state* has it; returns how many places that are, and how many of them have failed. */
function drawFigure(target, state, rows) {
  const found = marks(state, rows);
  const drawn = traces(state, found);
  const places = drawn.reduce((sum, one) => sum + one.x.length, 0);
  const lines = drawn.length;
  const chosen = found.find((mark) => mark.rows.includes(state.point));
  if (chosen) {
    const ring = { size: 17, color: "rgba(0,0,0,0)", line: { width: 2.5, color: "#e0862b" } };
    const mark = trace({ ...state, seeds: "each" }, [chosen], "chosen", ring);
    drawn.push({ ...mark, marker: ring, mode: "markers", hoverinfo: "skip", hovertemplate: undefined, showlegend: false });
  }
  const column = columns.get(state.colour);
  const layout = layoutOf(state, column && inColours(column) ? lines + 1 : 0);
  Plotly.react(target, drawn, layout, { responsive: true, displayModeBar: false });
  target.setAttribute("role", "img");
  target.setAttribute("aria-label", `${layout.yaxis.title.text} against ${layout.xaxis.title.text}`.replace(/<[^>]*>/g, " "));
  const crosses = drawn.flatMap((one) => one.marker.symbol ?? []).filter((one) => one === "x").length;
  return [places, crosses];
}
