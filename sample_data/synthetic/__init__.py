"""A synthetic GUI, a tiny Qwen2.5-VL that learns it, and the two passes compared."""
