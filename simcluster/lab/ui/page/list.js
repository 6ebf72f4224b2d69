// The runs and sweeps of the folder, with filters; ticked ones can be compared.
import { $, element, number, seconds, size, table } from "./dom.js";
import { address, ask, heading, link, query, repeat } from "./ui.js";

const MOST_COMPARED = 12;
const filters = { text: "", state: "", algorithm: "", topology: "" };
const ticked = new Set();

function picker(label, key, root, redraw) {
  const made = element("label", "filter", `${label} `), choice = element("select");
  choice.dataset.key = key;
  choice.addEventListener("change", () => { filters[key] = choice.value; redraw(); });
  made.append(choice);
  root.append(made);
  return choice;
}
function offer(choice, values) {
  const all = ["", ...new Set([...values, choice.value].filter(Boolean))];
  const wanted = [all[0], ...all.slice(1).sort()];
  if ([...choice.options].map((one) => one.value).join("\n") === wanted.join("\n")) return;
  const before = filters[choice.dataset.key];
  choice.replaceChildren(...wanted.map((value) => new Option(value || "all", value)));
  choice.value = wanted.includes(before) ? before : "";
}
export function showList(root, under) {
  let rows = [], told = "";
  const bar = element("div", "filters"), found = element("p", "note"), wide = element("div", "wide"), list = element("table");
  const compare = element("button", "primary", "Compare"), text = element("input");
  found.setAttribute("role", "status");
  list.setAttribute("aria-label", "runs and sweeps");
  const search = element("label", "filter", "text ");
  text.type = "search";
  text.value = filters.text;
  text.addEventListener("input", () => { filters.text = text.value; draw(); });
  search.append(text);
  bar.append(search);
  const pickers = ["state", "algorithm", "topology"].map((key) => picker(key, key, bar, draw));
  bar.append(compare);
  compare.type = "button";
  compare.addEventListener("click", () => { location.hash = `#/compare?${new URLSearchParams([...ticked].map((id) => ["id", id]))}`; });
  wide.append(list);
  const title = heading(under ? `Points of ${under}` : "Runs");
  const section = element("section");
  section.append(bar, found, wide);
  root.append(title, section);

  const matches = (row) => (!filters.state || row.state === filters.state) && (!filters.algorithm || row.algorithm === filters.algorithm)
    && (!filters.topology || row.topology === filters.topology)
    && [row.id, row.swept, row.name, row.algorithm, row.topology, row.backend].join(" ").toLowerCase().includes(filters.text.trim().toLowerCase());
  // Leave out parts that other columns show; the title has the whole path.
  const short = (row) => row.id.slice(under ? under.length + 1 : 0).replace(`-${String(row.algorithm).replace(":", "_")}-${row.backend}-seed${row.seed}`, "");
  function tick(row) {
    const box = element("input");
    box.type = "checkbox";
    box.checked = ticked.has(row.id);
    box.disabled = !["done", "failed"].includes(row.state) || row.kind !== "run";
    box.setAttribute("aria-label", `compare ${row.id}`);
    box.addEventListener("change", () => { if (box.checked) ticked.add(row.id); else ticked.delete(row.id); state(); });
    return box;
  }
  function state() {
    compare.disabled = ticked.size < 1 || ticked.size > MOST_COMPARED;
    compare.textContent = ticked.size ? `Compare ${ticked.size}${ticked.size > MOST_COMPARED ? `, at most ${MOST_COMPARED}` : ""}` : "Compare";
  }
  function pages(row) {
    const made = element("span");
    for (const page of row.pages) {
      const one = link(page.replace(".html", ""), `/files/${address(row.id)}/${page}`);
      one.setAttribute("aria-label", `${page.replace(".html", "")} of ${row.id}`);
      made.append(one, " ");
    }
    return made;
  }
  function pill(row) {
    const made = element("span", `pill ${row.state.replaceAll(" ", "-")}`, row.state);
    if (row.error) made.title = row.error;
    return made;
  }
  function draw() {
    const shown = rows.filter(matches);
    ["state", "algorithm", "topology"].forEach((key, place) => offer(pickers[place], rows.map((row) => row[key])));
    found.textContent = rows.length ? `${shown.length} of ${rows.length}` : "No runs here yet: start one with New run, or with simcluster run in a terminal.";
    const focused = document.activeElement && document.activeElement.getAttribute("aria-label");
    table(list, [["", true], ["run", true], ["state", true], ["algorithm", true], ["topology", true], ["backend", true], ["seed", false], ["steps", false], ["time", false], ["loss", false], ["accuracy", false], ["sent", false], ["pages", true]],
      shown.map((row) => {
        const to = link(row.swept || short(row), `#/${row.kind === "run" ? "run" : "sweep"}/${address(row.id)}`);
        to.setAttribute("aria-label", `open ${row.id}`);
        to.title = row.id;
        const what = row.kind !== "run" ? [row.kind === "sweep" ? `sweep, ${row.points} points` : `what-if, ${row.points} runs`, "", "", "", "", "", "", "", ""] : [row.algorithm || "", row.topology || "", row.backend || "", String(row.seed ?? ""), row.of_steps ? `${row.steps} of ${row.of_steps}` : String(row.steps ?? ""), seconds(row.elapsed_s), number(row.loss), number(row.accuracy, 3), row.bytes === undefined ? "" : size(row.bytes)];
        return [[tick(row), to, pill(row), ...what, pages(row)], ""];
      }));
    if (focused) document.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
    state();
  }
  return repeat(async () => {
    const answer = await ask(`/api/runs?${query({ under })}`);
    const now = JSON.stringify(answer.rows);
    $("folder").textContent = answer.folder;
    if (now === told) return;
    told = now;
    rows = answer.rows;
    for (const id of ticked) if (!under && !rows.some((row) => row.id === id) && !id.includes("/points/")) ticked.delete(id);
    draw();
  });
}
