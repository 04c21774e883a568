"""One module an output kind; `outputs.py` says which file comes from which."""
