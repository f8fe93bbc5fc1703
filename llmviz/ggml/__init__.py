"""ggml in Python: tensor types, quantizations, graphs, allocation, scheduling, backends."""
