"""The live learner: a service that learns from samples as they arrive and answers at any moment."""
