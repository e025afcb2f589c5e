"""The report: one page, whole in one file, of all runs in a folder."""
