// The form that starts a run, and the runs that it has started.
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
export function showNew(root, options) {
  const form = element("form", "new"), section = element("section"), problems = element("div", "failure"), go = element("button", "primary", "Start");
  const started = element("section"), list = element("ul", "started");
  problems.setAttribute("role", "alert");
  problems.hidden = started.hidden = true;
  started.append(element("h2", "", "Started from this page"), list);
  section.append(form);
  root.append(heading("New run"), section, started);
  ask("/api/names").then((known) => {
    const experiment = field(form, "experiment", "Experiment", "A shipped one, or the path of a YAML file, seen from where simcluster ui was started.", typed("experiments", [...known.experiments, ...known.files]));
    experiment.required = true;
    experiment.value = options.get("experiment") || "quickstart";
    const algorithm = field(form, "algorithm", "Algorithm", "", chosen(known.algorithms, "as in the experiment"));
    const topology = field(form, "topology", "Topology", "A shipped one, or the path of a YAML file; empty: as in the experiment.", typed("topologies", known.topologies));
    const backend = field(form, "backend", "Backend", "sim computes in virtual time; sockets runs real nodes.", chosen(known.backends, "as in the experiment"));
    const seed = field(form, "seed", "Seed", "", typed("", [], "number"));
    seed.min = 0;
    const sets = field(form, "sets", "Overrides", "One KEY=VALUE per line, such as stop.steps=500.", element("textarea"));
    sets.rows = 4;
    sets.spellcheck = false;
    const folder = field(form, "folder", "Folder of the run", "Below the folder of this page; empty: a new one.", typed("", []));
    go.type = "submit";
    form.append(problems, go);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      problems.hidden = true;
      try {
        const child = await ask("/api/start", {
          experiment: experiment.value, algorithm: algorithm.value, topology: topology.value, backend: backend.value,
          seed: seed.value === "" ? null : Number(seed.value), sets: sets.value.split("\n").filter((line) => line.trim()), folder: folder.value.trim(),
        });
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
    // opens the run once it is one; a request that is refused says why, next to the form
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
