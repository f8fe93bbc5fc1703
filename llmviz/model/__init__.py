"""What a model is: architecture registry, hyperparameters, tensors, and how its graph is built."""
