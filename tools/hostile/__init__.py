"""Clients that mean harm, against every port of a run that goes on: `make hostile`."""
