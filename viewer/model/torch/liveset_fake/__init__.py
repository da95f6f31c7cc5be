"""A training step on fake tensors, as a model file (proto/model.proto). fake_step.py is its entry."""
