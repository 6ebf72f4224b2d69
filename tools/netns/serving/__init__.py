"""Serving, predicted against measured: real nodes over shaped links, with accelerators that take their time."""
