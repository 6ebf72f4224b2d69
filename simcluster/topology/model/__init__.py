"""The topology as the rest of the library sees it: nodes, devices, links, conditions."""
