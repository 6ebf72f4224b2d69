"""34 mistakes in names, types, ranges, units, paths, YAML and options."""

from tests.whole.first_ten_minutes.row import EXPERIMENT, NAMES, RUN, TOPOLOGY, Row, experiment, topology, typed

ROWS = (
    experiment("algorithm misspelt", "name: edp", "name: epd", "e.yaml:3:19", "did you mean 'edp'"),
    experiment("setting misspelt", "edp}", "edp, pul_interval: 2}", "e.yaml:3:24", "did you mean 'pull_interval'"),
    experiment("setting as text", "edp}", 'edp, pull_interval: "2"}', "e.yaml:3:39", "'2'", "integer"),
    experiment("setting out of range", "edp}", "edp, pull_interval: 0}", "e.yaml:3:39", "greater than 0"),
    experiment("setting of another algorithm", "edp}", "edp, interval: 3}", "e.yaml:3:24", "unknown setting of edp"),
    experiment("workload misspelt", "mnist_mlp", "minst_mlp", "e.yaml:4:18", "did you mean 'mnist_mlp'"),
    experiment(
        "setting of a workload misspelt", "mlp}", "mlp, bach_size: 3}", "e.yaml:4:29", "did you mean 'batch_size'"
    ),
    experiment("key misspelt", "stop:", "stpo:", "e.yaml:5:1", "did you mean 'stop'"),
    experiment("topology misspelt", "smolcluster", "smolclustre", "e.yaml:2:11", "did you mean 'smolcluster'"),
    experiment("topology without its file", "smolcluster", "shelf.yaml", "e.yaml:2:11", "no such file"),
    experiment("negative steps", "steps: 2", "steps: -2", "e.yaml:5:15", "at least 1"),
    experiment("steps and epochs", "steps: 2", "steps: 2, epochs: 1", "e.yaml:5:7", "either steps or epochs"),
    experiment("time without a unit", "steps: 2", "steps: 2, time: 3", "e.yaml:5:24", "without a unit", "150 us"),
    experiment("negative seed", "stop:", "seed: -1\nstop:", "e.yaml:5:7", "at least 0"),
    experiment("backend misspelt", "stop:", "backend: socket\nstop:", "e.yaml:5:10", "sim or sockets or torch"),
    Row(
        "experiment without its file", NAMES, ("did you mean", "'quickstart'"), "experiment", {}, ("run", "quickstrat")
    ),
    Row("path of no experiment", NAMES, ("a file, or a shipped one",), "'mine/e.yaml'", {}, ("run", "mine/e.yaml")),
    topology("bandwidth without a unit", "1 Gbps", "1000", "t.yaml:7:34", "without a unit", "1 Gbps"),
    topology("unit in another case", "1 Gbps", "1 gbps", "t.yaml:7:34", "did you mean 'Gbps'"),
    topology("device misspelt", "raspberry-pi-5", "rasberry-pi-5", "t.yaml:5:15", "did you mean 'raspberry-pi-5'"),
    topology("link to no node", "[b, c]", "[b, d]", "t.yaml:8:19", "unknown node 'd'"),
    topology(
        "node that nothing reaches",
        "  - {between: [b, c], bandwidth: 1 Gbps, latency: 1 ms}\n",
        "",
        "t.yaml:5:3",
        "no route from c",
    ),
    topology("two nodes of one name", "  b:", "  a:", "t.yaml:4:3", "a second node called a", "line 3"),
    Row(
        "five mistakes in one file",
        NAMES,
        ("t.yaml:3:", "t.yaml:4:", "t.yaml:5:", "t.yaml:7:", "t.yaml:8:"),
        "t.yaml:3:15",
        {
            "t.yaml": TOPOLOGY.replace("mac-mini-m4", "mac-mimi-m4")
            .replace("raspberry-pi-5}", "raspberry-pi-5, prot: 3}")
            .replace("1 Gbps", "1000"),
        },
        ("topology", "check", "t.yaml"),
    ),
    typed("--set of no key", ("--set", "stpo.steps=3"), "--set stpo.steps", "did you mean 'stop'"),
    typed(
        "--set of no node",
        ("--set", "topology.nodes.pi6.device=mac-mini-m4"),
        "--set topology.nodes.pi6.device",
        "did you mean 'pi",
    ),
    typed("--set without a value", ("--set", "stop.steps"), "--set", "KEY=VALUE"),
    typed(
        "--set of another type", ("--set", "stop.steps=many"), "stop.steps (set by --set)", "'many'", "a whole number"
    ),
    typed("--algorithm misspelt", ("--algorithm", "sync-ps"), "--algorithm", "did you mean 'sync_ps'"),
    Row("tab in YAML", NAMES, ("found a tab", "spaces"), "e.yaml:6:1", {"e.yaml": EXPERIMENT + "\tseed: 3\n"}, RUN),
    Row(
        "wrong indentation in YAML",
        NAMES,
        ("1 space", "line 1"),
        "e.yaml:6:2",
        {"e.yaml": EXPERIMENT + " seed: 3\n"},
        RUN,
    ),
    Row("empty file", NAMES, ("an empty file", "simcluster new"), "e.yaml", {"e.yaml": ""}, RUN),
    typed("--seed that is no number", ("--seed", "abc"), "--seed", "'abc'", "a whole number", "run --help"),
    typed("option of real nodes in the simulator", ("--tmux",), "--tmux", "--backend sockets"),
)
