"""Turns the search for garbage off while modules are imported, which takes a tenth longer with it.

Only the process that forks workers imports this, before all others; each worker turns it on again.
"""

from __future__ import annotations

import gc

gc.disable()
