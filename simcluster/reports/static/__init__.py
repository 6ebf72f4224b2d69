"""Figures for paper: any of our plotly figures drawn again by matplotlib, from its own traces, as SVG, PDF or PNG."""
