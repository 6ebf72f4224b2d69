// What a reader does with a figure: smooth its curves, look at a logarithmic axis, keep its picture or its numbers.

/** The exponential moving average of *values* by *weight*, 0 to 1, without the bias to its start (as TensorBoard has it). */
export function smoothed(values, weight) {
  let sum = 0, total = 0;
  return Array.from(values, (value) => {
    if (value === null || !Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + 1 - weight;
    return sum / total;
  });
}
const numbers = (trace, key) => decoded(trace[key]);

/** The numbers of a trace as an array: plotly.py packs long ones in base64. */
function decoded(values) {
  if (!values || !values.bdata) return values;
  const bytes = Uint8Array.from(atob(values.bdata), (letter) => letter.charCodeAt(0));
  const kinds = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array, i2: Int16Array, u2: Uint16Array, i1: Int8Array, u1: Uint8Array };
  const flat = [...new kinds[values.dtype](bytes.buffer)];
  if (!values.shape) return flat;
  const wide = Number(values.shape.split(",")[1]);
  return Array.from({ length: flat.length / wide }, (_, row) => flat.slice(row * wide, (row + 1) * wide));
}

/** *traces* with their curves smoothed; what was there stays faintly. Filled areas stay as they are. */
export function smoothedTraces(traces, weight) {
  if (!weight) return traces;
  const isCurve = (trace) => (trace.type || "scatter") === "scatter" && trace.mode?.includes("lines") && !trace.fill;
  return traces.flatMap((trace) => (isCurve(trace) ? [
    { ...trace, opacity: 0.25, showlegend: false, hoverinfo: "skip", hovertemplate: undefined },
    { ...trace, mode: "lines", y: smoothed(numbers(trace, "y"), weight) },
  ] : [trace]));
}
/** Whether every number on the vertical axis could stand on a logarithmic one. */
export const canBeLog = (traces) => traces.every((trace) => Array.from(numbers(trace, "y") || []).every((value) => value === null || value > 0));

const cell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text; // a spreadsheet would compute it
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
const plainText = (text) => new DOMParser().parseFromString(String(text).replace(/<br\s*\/?>/g, "; "), "text/html").body.textContent;

/** The numbers of *traces* as CSV: a row for each point, bar or cell. */
export function csvOf(traces) {
  const rows = [["name", "x", "y", "value", "start", "text"]];
  for (const trace of traces) {
    if (trace.fill === "toself") continue; // the outline of a band is no row of numbers
    const name = plainText(trace.name || ""), [x, y, z, base] = ["x", "y", "z", "base"].map((key) => numbers(trace, key) || []);
    const words = Array.isArray(trace.hovertext) ? trace.hovertext : [];
    if (z.length) {
      z.forEach((row, up) => Array.from(row).forEach((value, across) => rows.push([name, plainText(x[across]), plainText(y[up]), value, "", ""])));
    } else {
      Array.from(y).forEach((value, at) => rows.push([name, x[at], value, "", base[at] ?? "", words[at] === undefined ? "" : plainText(words[at])]));
    }
  }
  const used = rows[0].map((_, column) => column < 3 || rows.slice(1).some((row) => row[column] !== ""));
  return rows.map((row) => row.filter((_, column) => used[column]).map(cell).join(",")).join("\n") + "\n";
}
export function save(content, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
/** Add small buttons to *root*, [text, work] each. */
export function tools(root, buttons) {
  const made = document.createElement("p");
  made.className = "tools";
  made.append(...buttons.map(([text, work]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = text;
    button.addEventListener("click", work);
    return button;
  }));
  root.append(made);
}
/** Buttons that save what *place* shows, under the name *stem*(); *traces*() are its numbers. */
export function saveButtons(place, stem, traces) {
  // of a pair, each stays with its buttons
  const frame = document.createElement("div");
  place.replaceWith(frame);
  frame.append(place);
  tools(frame, [["Save picture", async () => {
    const page = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
    const { data, layout, clientWidth: width, clientHeight: height } = place;
    const url = await Plotly.toImage({ data, layout: { ...layout, paper_bgcolor: page } }, { format: "svg", width, height });
    save(decodeURIComponent(url.slice(url.indexOf(",") + 1)), "image/svg+xml", `${stem()}.svg`);
  }], ["Save data", () => save(csvOf(traces()), "text/csv", `${stem()}.csv`)]]);
}
/** The layout of a vertical axis, logarithmic or not. */
export function withScale(axis, isLog) {
  const { rangemode, dtick, tickformat, ...rest } = axis;
  return isLog ? { ...rest, type: "log", tickformat: "~g" } : { ...rest, type: "linear", rangemode: "tozero" };
}
/** [A slider for smoothing and a box for a logarithmic axis, the box]; *changed* is called with both. */
export function curveControls(changed) {
  const made = document.createElement("p"), now = { weight: 0, log: null };
  const add = (text, type, more, heard) => {
    const label = document.createElement("label"), input = document.createElement("input"), said = document.createElement("output");
    Object.assign(input, { type, ...more });
    input.addEventListener("input", () => { said.textContent = heard(input); changed(now); });
    label.append(`${text} `, input, " ", said);
    made.append(label);
    return input;
  };
  made.className = "curve-tools";
  add("Smoothing", "range", { min: 0, max: 0.99, step: 0.01, value: 0 }, (input) => { now.weight = Number(input.value); return now.weight ? now.weight.toFixed(2) : ""; });
  return [made, add("Logarithmic loss", "checkbox", {}, (input) => { now.log = input.checked; return ""; })];
}
