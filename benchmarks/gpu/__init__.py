"""`make bench-gpu`: whether every engine computes the same, and what the methods cost on a GPU."""
