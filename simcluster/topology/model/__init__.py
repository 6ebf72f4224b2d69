"""A cluster as the rest of the library sees it: nodes, devices, links, conditions."""
