"""One reader per kind of data, each a function from a place on disk (or from options) to a Dataset."""
