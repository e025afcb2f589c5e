"""`make bench-gpu`: that every engine takes the same course, and what the methods cost on a GPU."""
