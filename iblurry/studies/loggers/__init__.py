"""Loggers: runs in TensorBoard, Weights & Biases or MLflow, from their journals."""
