"""Claims of the systems that simcluster began with, measured: SmolCluster's table, and single sentences."""
