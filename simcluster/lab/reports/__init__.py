"""Show results of runs as figures, tables, HTML pages and sentences."""
