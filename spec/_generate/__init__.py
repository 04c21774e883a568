"""The emitters, one module per kind of output; `outputs.py` lists the generated files."""
