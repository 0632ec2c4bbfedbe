"""Tables: what is per token, per sample and for all, under any names."""
