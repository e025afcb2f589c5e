"""The live learner: a service that learns from a running stream and answers at any time."""
