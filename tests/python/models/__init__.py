"""Recorded answers of models, and the clients that read them."""
