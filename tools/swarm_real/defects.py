"""Defects of the sockets backend that the real swarm must find.

Examples are losses that are not reported, and processes and ports that are left open.
"""

from __future__ import annotations

from tools.mutants.planted import plant

SOCKETS = "backends/simcluster_backends/sockets/"
LAUNCH = SOCKETS + "launcher/launcher.py"

PLANTED = [
    plant(
        1,
        "a lost peer is not reported to the algorithm",
        SOCKETS + "node/member.py",
        "connection.on_lost = lambda reason: self.lose(rank, GIVEN_UP if rank in self._unheard else reason)",
        "connection.on_lost = lambda reason: None",
        kinds=("kill", "crash"),
    ),
    plant(
        2,
        "orphan: a dropped node is not killed",
        SOCKETS + "launcher/fork_server.py",
        '            self._write({"signal": name, "to": pid})\n',
        '            if name != "SIGKILL":\n                self._write({"signal": name, "to": pid})\n',
        kinds=("stop",),
    ),
    plant(
        3,
        "a node that hangs is never resumed",
        SOCKETS + "launcher/faults.py",
        '            self._signal(member, "SIGCONT")\n',
        "",
        kinds=("hang",),
    ),
    plant(
        4,
        "a cut never ends",
        SOCKETS + "node/cuts.py",
        "change, order, -1",
        "change, order, +1",
        kinds=("cut", "flap", "partition"),
    ),
    plant(
        5,
        "the launcher's port stays open",
        LAUNCH,
        "            await self._listener.close()\n",
        "",
    ),
    plant(
        6,
        "a loss that no plan knows of does not fail the run",
        SOCKETS + "launcher/departures.py",
        "        self.verdict.died(member.rank, reason, self.at_s())\n",
        "",
        kinds=("kill", "stop"),
    ),
    plant(
        7,
        "a request to leave is not passed on",
        LAUNCH,
        "                member.tell(LeaveOrder(NOTICE_S))\n",
        "                pass\n",
        kinds=("post",),
    ),
]
