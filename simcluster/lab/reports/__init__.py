"""Results of runs as figures, tables, HTML pages and sentences."""
