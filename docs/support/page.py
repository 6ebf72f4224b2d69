"""Imported by the first, hidden cell of a page: its runs go to a temporary directory, without report and progress."""

import atexit
import functools
import logging
import os
import shutil
import tempfile

import simcluster
from simcluster.watching import notebook

folder = tempfile.mkdtemp(prefix="simcluster-page-")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
os.chdir(folder)
logging.getLogger("simcluster").addHandler(logging.NullHandler())  # what a page wants to show of a run, it shows itself
notebook.in_notebook = lambda: False  # no lines of progress, which a page would keep
simcluster.run = functools.partial(simcluster.run, report=False)
