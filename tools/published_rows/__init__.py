"""`python -m tools.published_rows`: published token rates against the times that `plan` computes."""
