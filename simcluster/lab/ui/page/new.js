// The form that starts a run or a sweep, and the list of started ones.
import { element } from "./dom.js";
import { address, ask, heading, link, repeat } from "./ui.js";

function field(form, name, label, hint, control) {
  const made = element("div", "field"), words = element("label", "", label);
  control.id = `new-${name}`;
  control.name = name;
  words.htmlFor = control.id;
  made.append(words, control);
  if (hint) {
    const more = element("p", "note", hint);
    more.id = `hint-${name}`;
    control.setAttribute("aria-describedby", more.id);
    made.append(more);
  }
  form.append(made);
  return control;
}
function typed(list, names, type = "text") {
  const made = element("input");
  made.type = type;
  made.autocomplete = "off";
  made.spellcheck = false;
  if (list) {
    made.setAttribute("list", list);
    const offered = element("datalist");
    offered.id = list;
    offered.append(...names.map((name) => new Option(name, name)));
    document.getElementById("view").append(offered);
  }
  return made;
}
function chosen(names, none) {
  const made = element("select");
  made.append(new Option(none, ""), ...names.map((name) => new Option(name, name)));
  return made;
}
function kinds(form, changed) {
  const made = element("div", "choice");
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", "what to start");
  for (const [kind, text] of [["run", "One run"], ["sweep", "A sweep"]]) {
    const button = element("button", "", text);
    button.type = "button";
    button.dataset.value = kind;
    button.addEventListener("click", () => changed(kind));
    made.append(button);
  }
  form.append(made);
  return made;
}
const lines = (control) => control.value.split("\n").filter((line) => line.trim());

export function showNew(root, options) {
  const form = element("form", "new"), section = element("section"), problems = element("div", "failure"), go = element("button", "primary", "Start");
  const started = element("section"), list = element("ul", "started"), title = heading("New run");
  let kind = "run";
  problems.setAttribute("role", "alert");
  problems.hidden = started.hidden = true;
  started.append(element("h2", "", "Started from this page"), list);
  section.append(form);
  root.append(title, section, started);
  ask("/api/names").then((known) => {
    const which = kinds(form, turn);
    const experiment = field(form, "experiment", "Experiment", "A shipped one, or the path of a YAML file, seen from where simcluster ui was started.", typed("experiments", [...known.experiments, ...known.files]));
    experiment.required = true;
    experiment.value = options.get("experiment") || "quickstart";
    const algorithm = field(form, "algorithm", "Algorithm", "", chosen(known.algorithms, "as in the experiment"));
    const topology = field(form, "topology", "Topology", "A shipped one, or the path of a YAML file; empty: as in the experiment.", typed("topologies", known.topologies));
    const backend = field(form, "backend", "Backend", "sim computes in virtual time; sockets runs real nodes.", chosen(known.backends, "as in the experiment"));
    const seed = field(form, "seed", "Seed", "", typed("", [], "number"));
    seed.min = 0;
    const seeds = field(form, "seeds", "Seeds per combination", "The same for all; empty: one.", typed("", [], "number"));
    seeds.min = 1;
    const several = (name, label, hint) => {
      const made = field(form, name, label, hint, element("textarea"));
      made.rows = 4;
      made.spellcheck = false;
      return made;
    };
    const sets = several("sets", "Overrides", " ");
    const pairs = several("pairs", "Keys that change together", "One KEY=VALUES per line, all with the same number of values.");
    const targets = several("targets", "Targets", "One per line, such as accuracy=0.9: adds the time to reach it.");
    const folder = field(form, "folder", "Folder", "Below the folder of this page; empty: a new one.", typed("", []));
    function turn(to) {
      kind = to;
      const name = to === "sweep" ? "New sweep" : "New run";
      title.querySelector("h1").textContent = name;
      document.title = `${name} · simcluster`;
      for (const button of which.children) button.setAttribute("aria-pressed", String(button.dataset.value === to));
      for (const one of [seeds, pairs, targets]) one.closest(".field").hidden = to === "run";
      form.querySelector("label[for=new-sets]").textContent = to === "sweep" ? "Swept keys and overrides" : "Overrides";
      document.getElementById("hint-sets").textContent = to === "sweep"
        ? "One KEY=VALUES per line, such as workload.learning_rate=0.01,0.1 or log(0.001,0.1,5); several make a grid. A single value is an override."
        : "One KEY=VALUE per line, such as stop.steps=500.";
      form.querySelector("label[for=new-seed]").textContent = to === "sweep" ? "First seed" : "Seed";
    }
    turn(options.get("kind") === "sweep" ? "sweep" : "run");
    const wanted = () => ({
      kind, experiment: experiment.value, algorithm: algorithm.value, topology: topology.value, backend: backend.value,
      seed: seed.value === "" ? null : Number(seed.value), sets: lines(sets), folder: folder.value.trim(),
      ...(kind === "sweep" ? { seeds: seeds.value === "" ? null : Number(seeds.value), pairs: lines(pairs), targets: lines(targets) } : {}),
    });
    go.type = "submit";
    form.append(problems, go);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      problems.hidden = true;
      try {
        const child = await ask("/api/start", wanted());
        await settled(child.id);
      } catch (error) {
        problems.textContent = (error.problems || [error.message]).join("\n");
        problems.hidden = false;
        problems.scrollIntoView({ block: "nearest" });
      }
      go.disabled = false;
      go.textContent = "Start";
    });
  }).catch((error) => { problems.textContent = error.message; problems.hidden = false; form.append(problems); });
  async function settled(id) {
    // Open the run once it has started; show the problems of a refused request next to the form.
    for (;;) {
      const found = await ask(`/api/run?${new URLSearchParams({ id })}`);
      if (found.child && found.child.code === 2) throw Object.assign(new Error("refused"), { problems: found.child.lines });
      if (found.row || !found.child || found.child.code !== null) { location.hash = `#/run/${address(id)}`; return; }
      if (!root.isConnected) return;
      go.textContent = "Starting…";
      await new Promise((done) => setTimeout(done, 500));
    }
  }
  return repeat(async () => {
    const all = await ask("/api/children");
    started.hidden = !all.length;
    list.replaceChildren(...all.map((child) => {
      const made = element("li");
      made.append(link(child.id, `#/run/${address(child.id)}`), ` ${child.code === null ? "running" : child.code === 0 ? "done" : `exit code ${child.code}`} `, element("code", "", child.argv.join(" ")));
      return made;
    }));
  });
}
