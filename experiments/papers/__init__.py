"""Results of papers, reproduced: a file each, run by `make papers`, and in short by the tests."""
