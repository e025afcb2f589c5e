"""The live learner: learns from samples as they arrive, answers at any time, and loses nothing."""
